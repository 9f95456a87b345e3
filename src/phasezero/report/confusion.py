"""Which classes a classifier confuses: tables, and a self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape

import numpy as np
import numpy.typing as npt

from phasezero.report.grid import NOTHING, Grid
from phasezero.validation import printable

Cell = tuple[int, int, int]
"""A true class, the class that was predicted, and how often."""


@dataclass(frozen=True)
class Confusion:
    """Counts by true class (rows) and predicted class, with the name and the phase of each class."""

    names: Sequence[str]
    phases: Sequence[int]
    counts: npt.ArrayLike

    @cached_property
    def cells(self) -> list[Cell]:
        """The counts that are not zero."""
        counts = np.asarray(self.counts)
        rows, columns = counts.nonzero()
        return list(zip(rows.tolist(), columns.tolist(), counts[rows, columns].tolist(), strict=True))

    @cached_property
    def totals(self) -> list[int]:
        return self._sums(self.cells)

    @cached_property
    def right(self) -> list[int]:
        return self._sums([cell for cell in self.cells if cell[0] == cell[1]])

    def _sums(self, cells: Sequence[Cell]) -> list[int]:
        found = [0] * len(self.names)
        for truth, _, count in cells:
            found[truth] += count
        return found

    @property
    def accuracy(self) -> float:
        return self._share(range(len(self.names)))

    def _share(self, classes: Sequence[int]) -> float:
        return sum(self.right[at] for at in classes) / sum(self.totals[at] for at in classes)

    def tested(self) -> list[int]:
        """Return the classes that have images, with the smallest accuracy first."""
        return sorted(filter(self.totals.__getitem__, range(len(self.names))), key=lambda at: self._share([at]))

    def pairs(self) -> list[Cell]:
        """Return the confusions, most frequent first."""
        return sorted((cell for cell in self.cells if cell[0] != cell[1]), key=lambda cell: -cell[2])

    def phase_grid(self) -> Grid:
        by_phase: list[list[int]] = [[] for _ in range(1 + max(self.phases))]
        for at in self.tested():
            by_phase[self.phases[at]].append(at)
        rows = []
        for phase, own in enumerate(by_phase):
            share = _percent(self._share(own)) if own else NOTHING
            rows.append([str(phase), str(len(own)), str(sum(self.totals[at] for at in own)), share])
        return Grid(["phase", "classes", "photos", "accuracy %"], rows, words=0)

    def class_grid(self, most: int | None = None) -> Grid:
        """Return accuracies by class, worst first, and what each class is most often taken for."""
        chosen = self.tested()
        first = {truth: answer for truth, answer, _ in reversed(self.pairs())}
        rows = [
            [
                printable(self.names[at]),
                str(self.phases[at]),
                str(self.totals[at]),
                _percent(self._share([at])),
                printable(self.names[first[at]]) if at in first else NOTHING,
            ]
            for at in chosen[:most]
        ]
        left = len(chosen) - len(rows)
        header = ["class", "phase", "photos", "accuracy %", "most often taken for"]
        caption = f"worst {len(rows)} of {len(chosen)} classes" if left else ""
        return Grid(header, rows, caption, remarks=True)

    def pair_grid(self, most: int | None = None) -> Grid:
        """Return the most frequent confusions, as a count and as a share of the true class."""
        rows = [
            [
                printable(self.names[truth]),
                printable(self.names[answer]),
                str(count),
                _percent(count / self.totals[truth]),
            ]
            for truth, answer, count in self.pairs()[:most]
        ]
        return Grid(["class", "taken for", "times", "% of the class"], rows, words=2)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


LARGEST, SMALLEST, WIDTH = 28, 2, 900  # pixels: sides of a cell, and of the whole matrix
LABELLED = 9  # the smallest cell beside which a name fits
LONGEST = 24  # characters of a name on an axis

STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1b2026, #e6e9ee); --paper: light-dark(#fff, #14171c);
  --faint: light-dark(#5a6572, #9aa5b3); --rule: light-dark(#dfe3e8, #313843);
  --right: light-dark(#1f78b4, #6db9ee); --wrong: light-dark(#b84700, #ff7f3a); }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
.scroll { overflow: auto; } text { fill: var(--ink); } p, caption { color: var(--faint); }
.right { fill: var(--right); } .wrong { fill: var(--wrong); } .frame { fill: none; stroke: var(--rule); }
table { border-collapse: collapse; margin: 1rem 0; } caption { text-align: left; }
th, td { padding: 0.15rem 0.8rem 0.15rem 0; border-bottom: 1px solid var(--rule); text-align: left;
  overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def confusion_page(confusion: Confusion, title: str) -> str:
    """Return an HTML page without scripts that shows the matrix, the classes and the confusions."""
    tables = [("Classes", confusion.class_grid()), ("Confusions", confusion.pair_grid())]
    if max(confusion.phases):
        tables.insert(0, ("Phases", confusion.phase_grid()))
    parts = [f"<h2>{heading}</h2>\n{_table(grid)}" for heading, grid in tables if grid.rows]
    shown = _text(title)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{shown}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{shown}</h1>
<p>{100 * confusion.accuracy:.2f} % of {sum(confusion.totals):,} photos are classified correctly.
Rows are true classes, columns are answers. Blue is right, orange is wrong.
A full colour means all photos of the class.</p>
<div class="scroll">{_matrix(confusion)}</div>
{chr(10).join(parts)}
</body>
</html>
"""


def _matrix(confusion: Confusion) -> str:
    """Return the matrix as SVG, with names on its axes if a cell is as high as a line of text."""
    count = len(confusion.names)
    side = max(SMALLEST, min(LARGEST, WIDTH // count))
    labelled = side >= LABELLED
    size = min(12, side)
    longest = max(len(_short(name)) for name in confusion.names)
    edge = int(longest * size * 0.62) + 8 if labelled else 1
    whole = edge + count * side + 1
    parts = []
    for truth, answer, times in confusion.cells:
        share = times / confusion.totals[truth]
        told = f"{_text(confusion.names[truth])}: {times} of {confusion.totals[truth]}"
        told += "" if truth == answer else f" taken for {_text(confusion.names[answer])}"
        kind, x, y = "right" if truth == answer else "wrong", edge + answer * side, edge + truth * side
        place = f'x="{x}" y="{y}" width="{side}" height="{side}" fill-opacity="{0.15 + 0.85 * share:.3f}"'
        parts.append(f'<rect class="{kind}" {place}><title>{told}</title></rect>')
    for at, name in enumerate(confusion.names) if labelled else ():
        middle = edge + at * side + side / 2
        text, style = _text(_short(name)), f'font-size="{size}" dominant-baseline="central"'
        parts.append(f'<text x="{edge - 4}" y="{middle}" text-anchor="end" {style}>{text}</text>')
        parts.append(f'<text transform="translate({middle} {edge - 4}) rotate(-90)" {style}>{text}</text>')
    starts = [at for at in range(1, count) if confusion.phases[at] != confusion.phases[at - 1]]
    for at in [0, *starts, count]:
        line = edge + at * side
        parts.append(f'<path class="frame" d="M{edge} {line}H{whole - 1}M{line} {edge}V{whole - 1}"/>')
    label = f"Confusion matrix of {count} classes"
    return f'<svg width="{whole}" height="{whole}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _table(grid: Grid) -> str:
    header, *rows = grid.lines()
    kinds = ["" if grid.holds_words(place) else ' class="number"' for place in range(len(header))]
    head = "".join(f"<th{kind}>{_text(cell)}</th>" for kind, cell in zip(kinds, header, strict=True))
    lines = ["".join(f"<td{kind}>{_text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows]
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _text(text: str) -> str:
    return escape(printable(text))
