"""The colour, marker and line style of each method, in every figure and on the report page."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

# A colour on white, its counterpart on a dark ground, and a marker. No two of the colours on white are closer than 15
# (CIE 1976) to a reader with protanopia or deuteranopia, and each has a contrast of 3:1 to its ground. Markers and line
# styles keep lines apart in grey.
METHOD_LOOKS = {
    "joint": ("#000000", "#F4F4F4", "*"),
    "finetune": ("#464646", "#A8A8A8", "X"),
    "lwf": ("#491346", "#E7A6E2", "<"),
    "icarl": ("#D36F9F", "#E59CC6", "P"),
    "bic": ("#169DDB", "#93D6FF", ">"),
    "lucir": ("#005E9B", "#4AA3E0", "o"),
    "podnet": ("#00895D", "#1FC795", "s"),
    "aanet": ("#B84700", "#FF7F3A", "^"),
    "ncm": ("#BE8B00", "#F3B43F", "v"),
    "slda": ("#688E3C", "#A9D070", "p"),
    "ridge": ("#7652EE", "#A993FF", "D"),
    "fecam": ("#903C2C", "#E58673", "h"),
}
OTHER_LOOKS = (("#4C5B8F", "#A3B1E6", "d"), ("#7D6A3A", "#CDB878", "H"), ("#3F7C85", "#86C9D3", "8"))
"""The looks of methods from plug-ins, chosen by name, so that each has the same in all figures."""

VALUES_LOOK = ("#4C5B8F", "#A3B1E6", "o")
"""The look of lines that are values of a setting, such as eta, over all methods: in shades of a colour."""

ORACLE = "joint"
"""The method whose look an oracle has: both learn all classes at once."""

Dash = tuple[float, ...]
DASHES: dict[str, Dash] = {
    "": (),
    "cwd": (4.5, 1.8),
    "mimic": (1.2, 1.4),
    "augment": (6, 1.6, 1.2, 1.6),
    "sla": (2.6, 1.3),
    "augment+cwd": (6, 1.6, 1.2, 1.6, 1.2, 1.6),
}
"""Lengths of strokes and gaps in line widths, by phase-0 strategies; empty for a solid line."""
OTHER_DASH: Dash = (9, 2)

# Colours of things that are not methods, such as classes: Okabe and Ito's, without the yellow and darker.
COLOURS = ("#005E9B", "#B84700", "#00895D", "#D36F9F", "#BE8B00", "#000000", "#169DDB")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")


@dataclass(frozen=True)
class Look:
    """How a line is drawn: colours on white and on a dark ground, matplotlib's marker, strokes and gaps."""

    colour: str
    dark: str
    marker: str
    dash: Dash = ()

    @property
    def stroke(self) -> str | tuple[int, Dash]:
        """Return matplotlib's line style."""
        return (0, self.dash) if self.dash else "-"


def method_look(method: str, strategies: Sequence[str] = ()) -> Look:
    """Return how a method with these phase-0 strategies is drawn."""
    colour, dark, marker = METHOD_LOOKS.get(method) or OTHER_LOOKS[zlib.crc32(method.encode()) % len(OTHER_LOOKS)]
    return Look(colour, dark, marker, DASHES.get("+".join(strategies), OTHER_DASH))


def looks_among(models: Sequence[tuple[str, Sequence[str]]]) -> list[Look]:
    """Return the looks of a figure's lines, each a method with its strategies; equal models get shades of a colour."""
    looks = [method_look(method, strategies) for method, strategies in models]
    return [_varied(look, looks[:place].count(look), looks.count(look)) for place, look in enumerate(looks)]


def looks_of_values(count: int) -> list[Look]:
    """Return the looks of lines for the values of a setting in their order: from a light to a dark shade."""
    return [_varied(Look(*VALUES_LOOK), place, count) for place in range(count)]


def _varied(look: Look, place: int, count: int) -> Look:
    """Return the place-th of `count` looks of the same method and strategies: from a light to a dark shade."""
    if count < 2:
        return look
    share, others = place / (count - 1), [marker for marker in MARKERS if marker != look.marker]
    marker = others[(place - 1) % len(others)] if place else look.marker
    # On a dark ground a darker shade would be hard to see.
    return Look(_shade(look.colour, share), _shade(look.dark, share / 2), marker, look.dash)


def _shade(colour: str, share: float) -> str:
    """Mix a colour with 45% white (share 0) to 45% black (share 1)."""
    strength, ground = 0.9 * abs(share - 0.5), 255 if share < 0.5 else 0
    parts = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#" + "".join(f"{round(part + (ground - part) * strength):02X}" for part in parts)
