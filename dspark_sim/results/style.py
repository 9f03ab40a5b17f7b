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
    "threshold": ("#56B4E9", "P"),
    "dspark": ("#009E73", "^"),
    "dspark-async": ("#0072B2", "o"),
}
_OTHERS = (("#8C6D31", "*"), ("#882255", "p"), ("#44AA99", "h"), ("#332288", "<"), ("#999933", ">"))
_SHADES = (1.0, 1.0, 0.88, 0.78, 0.69, 0.61, 0.54, 0.48)
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
    factor = _SHADES[_variant(options)]
    return Look(_shade(colour, factor), marker, _shade(colour, factor, _TEXT_LIGHTNESS))


def _variant(options: str) -> int:
    """Return which shade a rule with ``options`` takes; small numbers, such as k, differ surely."""
    numbers = re.findall(r"\d+", options)
    if not options:
        return 0
    return (int(numbers[-1]) if numbers else zlib.crc32(options.encode())) % len(_SHADES)


def _shade(colour: str, factor: float, most: float = 1.0) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    shaded = colorsys.hls_to_rgb(hue, min(most, lightness * factor), saturation)
    return "#" + "".join(f"{round(255 * part):02X}" for part in shaded)
