"""Columns of text made to fit a width: as they are, else broken at good places, else in parts below each other."""

from __future__ import annotations

import re
from collections.abc import Sequence

# After a space, or after the / or + of a name ("lucir+cwd/cifar100/b50s10"); a number keeps its sign.
_BREAK = re.compile(r"(?<=\s)|(?<=\w[/+])")

Part = tuple[list[int], list[list[str]]]
"""Which columns, and their cells line by line from the heading on; a cell may have several lines."""


def fit(lines: Sequence[Sequence[str]], words: int, width: int) -> list[Part]:
    """Return parts that each fit. The first column, which names rows, is in all; the first `words` get spare room."""
    columns = list(zip(*lines, strict=True))
    most = [max(map(len, column)) for column in columns]
    if sum(most) + len(most) - 1 <= width:
        return [(list(range(len(most))), [list(line) for line in lines])]
    least = [max(len(piece.rstrip()) for cell in column for piece in _BREAK.split(cell)) for column in columns]
    least[:words] = [min(one, width // 3) for one in least[:words]]
    parts = [[0]]
    for place in range(1, len(columns)):
        if len(parts[-1]) > 1 and _total(least, [*parts[-1], place]) > width:
            parts.append([0])
        parts[-1].append(place)
    found = []
    for part in parts:
        widths = list(least)
        for _ in range(width - _total(least, part)):  # to the narrowest column of words that can use it
            if growing := [place for place in part if place < words and widths[place] < most[place]]:
                widths[min(growing, key=widths.__getitem__)] += 1
        found.append((part, [["\n".join(wrap(line[place], widths[place])) for place in part] for line in lines]))
    return found


def _total(widths: Sequence[int], part: Sequence[int]) -> int:
    return sum(widths[place] for place in part) + len(part) - 1


def wrap(text: str, width: int) -> list[str]:
    """Return lines of at most this width, broken within a word only where a word alone is longer."""
    lines = [""]
    for piece in _BREAK.split(text):
        if len((lines[-1] + piece).rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]
