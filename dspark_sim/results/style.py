"""How a policy looks, the same in every picture.

Colours are those of Okabe and Ito, told apart with any common colour vision; shapes differ too. A
policy's look depends on its own spec alone, never on what else is in the picture.
"""

from __future__ import annotations

import colorsys
import re
import zlib
from dataclasses import dataclass

#: Rule -> (colour, marker) of its default options.
LOOKS: dict[str, tuple[str, str]] = {
    "off": ("#555555", "s"),
    "mtp": ("#E69F00", "D"),
    "static": ("#CC79A7", "v"),
    "full": ("#D55E00", "X"),
    "threshold": ("#332288", "P"),
    "dspark": ("#009E73", "^"),
    "dspark-async": ("#0072B2", "o"),
}
_OTHERS = (("#8C6D31", "*"), ("#882255", "p"), ("#44AA99", "h"), ("#56B4E9", "<"), ("#999933", ">"))
_BY_K = (1.0, 0.93, 0.86, 0.78, 0.7, 0.62, 0.55, 0.48)  # lightness factor of k = 0..7: longer is darker
_BY_OTHERS = (0.6, 0.75, 1.3, 1.5)
_TEXT_LIGHTNESS = 0.38  # the lightest that a word on white may be
SYNTHETIC_RED = "#B00020"
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))


@dataclass(frozen=True, slots=True)
class Look:
    """Colour and marker of one policy; ``text`` is the colour, dark enough for words on white."""

    colour: str
    marker: str
    text: str


def look(policy: str) -> Look:
    """Return the look of a normalised spec: hue and marker by rule, lightness by its options."""
    rule, _, options = policy.partition(":")
    if rule.endswith(".py"):
        rule, options = policy, ""
    colour, marker = LOOKS.get(rule) or _OTHERS[zlib.crc32(rule.encode()) % len(_OTHERS)]
    factor = _factor(options)
    return Look(_shade(colour, factor), marker, _shade(colour, factor, _TEXT_LIGHTNESS))


def _factor(options: str) -> float:
    """Return how much lighter or darker than its rule's colour a policy with ``options`` is drawn."""
    length = re.fullmatch(r"k=(\d+)", options)
    if length:
        return _BY_K[min(int(length[1]), len(_BY_K) - 1)]
    return _BY_OTHERS[zlib.crc32(options.encode()) % len(_BY_OTHERS)] if options else 1.0


def _shade(colour: str, factor: float, most: float = 1.0) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    shaded = colorsys.hls_to_rgb(hue, min(most, lightness * factor), saturation)
    return "#" + "".join(f"{round(255 * part):02X}" for part in shaded)
