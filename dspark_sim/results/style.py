"""How a policy looks, the same in every picture.

Colours are those of Okabe and Ito, told apart with any common colour vision; shapes differ too. A
policy's look depends on its own spec alone, never on what else is in the picture.
"""

from __future__ import annotations

import colorsys
import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: Rule (or drafter kind) -> (colour, marker) of its default options. Rules of one origin share a colour;
#: two rules whose colours are hard to tell apart differ in shape.
LOOKS: dict[str, tuple[str, str]] = {
    "off": ("#555555", "s"),
    "mtp": ("#E69F00", "D"),
    "static": ("#CC79A7", "v"),
    "full": ("#D55E00", "X"),
    "threshold": ("#332288", "P"),
    "dspark": ("#009E73", "^"),
    "dspark-async": ("#0072B2", "o"),
    # Our own.
    "draft-length": ("#661100", "d"),
    "draft-skip": ("#661100", "*"),
    # SGLang, TensorRT-LLM, vLLM, ATOM, sfllm.
    "sglang": ("#56B4E9", "<"),
    "sglang-adaptive": ("#56B4E9", ">"),
    "trtllm": ("#117733", "d"),
    "trtllm-exact": ("#117733", "h"),
    "vllm-adaptive": ("#882255", "p"),
    "vllm-ascend": ("#882255", "H"),
    "vllm-manager": ("#882255", "*"),
    "vllm-table": ("#882255", "8"),
    "atom": ("#8C6D31", "<"),
    "budget": ("#8C6D31", "8"),
    # DFlash's, D-Cut, and drafters as such.
    "dcut": ("#44AA99", "*"),
    "dflash-auto": ("#44AA99", "p"),
    "dflash": ("#56B4E9", "h"),
    "eagle": ("#AA4499", "d"),
    # Written from abstracts.
    "adaspec": ("#999933", "*"),
    "dsde": ("#999933", "p"),
    "echo": ("#999933", ">"),
    "nightjar": ("#999933", "h"),
    "smartspec": ("#999933", "<"),
    "specdec-pp": ("#999933", "d"),
    "tetris": ("#999933", "H"),
}
#: Of texts by their domain, in pictures of drafters.
DOMAINS = {
    "mean": ("#222222", "o"),
    "math": ("#4477AA", "o"),
    "code": ("#EE6677", "s"),
    "chat": ("#228833", "^"),
}
#: Of rules without a look of their own: a colour and, independently, a marker.
_COLOURS = ("#AA4499", "#AA3377", "#6A51A3", "#7F3C8D", "#B15928", "#4D4D9F", "#A6761D")
_MARKERS = ("*", "p", "h", "<", ">", "d", "H", "8")
_BY_K = (1.0, 0.93, 0.86, 0.78, 0.7, 0.62, 0.55, 0.48)  # lightness factor of k = 0..7: longer is darker
_RAMP = (1.15, 0.35)  # lightness factors of the shortest and the longest of a rule's lengths
_RAMP_MARKERS = ("v", "<", "D", "h", ">", "d", "*", "8")
_BY_OTHERS = (0.6, 0.75, 1.3, 1.5)
_TEXT_LIGHTNESS = 0.38  # the lightest that a word on white may be
SYNTHETIC_RED = "#B00020"
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and marker of one policy.

    ``text`` is the colour, dark enough for words on white; ``on_dark`` light enough for a dark page.
    """

    colour: str
    marker: str
    text: str
    on_dark: str


def look(policy: str) -> Look:
    """Return the look of a normalised spec: hue and marker by rule, lightness by its options."""
    rule, _, options = policy.partition(":")
    if rule.endswith(".py"):
        rule, options = policy, ""
    colour, marker = LOOKS.get(rule) or _other(rule)
    return _of(colour, _factor(options), marker)


def _of(colour: str, factor: float, marker: str) -> Look:
    return Look(
        _shade(colour, factor),
        marker,
        _shade(colour, factor, lambda lightness: min(_TEXT_LIGHTNESS, lightness)),
        _shade(colour, factor, lambda lightness: 0.5 + 0.4 * lightness),
    )


def looks(policies: Iterable[str]) -> dict[str, Look]:
    """Return the look of each spec; of the k of one rule, a ramp from light to dark with own markers.

    For pictures with many lengths of one rule, whose own lightness steps are too small to tell apart.
    """
    found = {policy: look(policy) for policy in policies}
    rules: dict[str, list[str]] = {}
    for policy in found:
        rules.setdefault(policy.partition(":")[0], []).append(policy)
    for rule, mine in rules.items():
        if len(mine) > 1 and rule in LOOKS and all(re.fullmatch(rf"{rule}:k=\d+", p) for p in mine):
            mine.sort(key=lambda policy: int(policy.rpartition("=")[2]))
            for place, policy in enumerate(mine):
                lightest, darkest = _RAMP
                factor = lightest + (darkest - lightest) * place / (len(mine) - 1)
                found[policy] = _of(LOOKS[rule][0], factor, _RAMP_MARKERS[place % len(_RAMP_MARKERS)])
    return found


def dasharray(drafter: int) -> str | None:
    """Return the dashes of the n-th drafter's lines as SVG writes them; None for a whole line."""
    dash = DASHES[drafter % len(DASHES)]
    return None if isinstance(dash, str) else " ".join(str(3 * length) for length in dash[1])


def _other(rule: str) -> tuple[str, str]:
    drawn = zlib.crc32(rule.encode())
    return _COLOURS[drawn % len(_COLOURS)], _MARKERS[drawn // len(_COLOURS) % len(_MARKERS)]


def _factor(options: str) -> float:
    """Return how much lighter or darker than its rule's colour a policy with ``options`` is drawn."""
    length = re.fullmatch(r"k=(\d+)", options)
    if length:
        return _BY_K[min(int(length[1]), len(_BY_K) - 1)]
    return _BY_OTHERS[zlib.crc32(options.encode()) % len(_BY_OTHERS)] if options else 1.0


def _shade(colour: str, factor: float, turn: Callable[[float], float] = float) -> str:
    """Return ``colour`` with its lightness times ``factor``, then turned; hue and saturation stay."""
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    shaded = colorsys.hls_to_rgb(hue, turn(min(1.0, lightness * factor)), saturation)
    return "#" + "".join(f"{round(255 * part):02X}" for part in shaded)
