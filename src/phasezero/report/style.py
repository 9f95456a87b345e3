"""The style and file formats of figures: sized for a paper's column, legible in grey."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phasezero.errors import UserError
from phasezero.records.files import replacing
from phasezero.records.metrics import mean_and_deviation
from phasezero.report.looks import COLOURS, MARKERS

SUFFIXES = (".png", ".svg", ".pdf")
STYLE = Path(__file__).with_name("figures.mplstyle")

_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))

MOST_MARKERS = 13  # S=2 has 26 phases; more markers than this merge into a band
COLUMNS = 3  # of panels
LONG = 60  # characters of a label


def write_figure(path: str | Path, make: Callable[[], Figure], caption: str = "") -> None:
    """Write a figure as PNG, SVG or PDF by the suffix, a caption below; the same figure gives the same file."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: a figure's name must end in one of {', '.join(SUFFIXES)}")
    with matplotlib.rc_context(fname=STYLE):  # not pyplot, which keeps global state
        figure = make()
        if caption:
            # A tight crop would move the figure's edge, and a legend outside the axes, onto the caption. So
            # everything is laid out before and stays in place.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            for legend in figure.legends:
                legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
            lines = textwrap.fill(caption, round(19 * figure.get_figwidth()))
            plain_text(figure.text(0.0, -0.02, "", fontsize=7, ha="left", va="top"), lines)
        form = path.suffix.lower().removeprefix(".")
        stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
        content = io.BytesIO()  # matplotlib's own files raise other errors than OSError on a full disk
        figure.savefig(content, format=form, metadata=stamp)
        with replacing(path) as temporary:
            temporary.write_bytes(content.getvalue())


def write_every_format(base: Path, make: Callable[[Path], None], suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """Write a figure as PNG, SVG and PDF (or some of them), all with this name and a suffix."""
    paths = [base.with_name(base.name + suffix) for suffix in suffixes]
    for path in paths:
        make(path)
    return paths


Points = Sequence[tuple[float, Sequence[float]]]
"""Positions on the x axis, each with the values of some runs."""


@dataclass(frozen=True)
class Panel:
    """Lines in one set of axes. A label has the same colour in every panel of a figure."""

    lines: Sequence[tuple[str, Points]]
    x_label: str
    y_label: str
    title: str = ""
    mark: Callable[[Axes], None] = lambda axes: None
    """Sets scale and ticks of the x axis when the lines are drawn."""


def write_panels(
    path: str | Path,
    panels: Sequence[Panel],
    *,
    legend: str = "",
    height: float | None = None,
    inside: bool = False,
    caption: str = "",
) -> None:
    """Write a figure of panels. The legend, with this title, is below all panels or inside a single panel."""
    labels = list(dict.fromkeys(label for panel in panels for label, _ in panel.lines))
    columns = min(len(panels), COLUMNS)
    rows = -(-len(panels) // columns)
    height = height or 2.5 * rows + 0.4 + 0.17 * len(labels)
    size = 4.8 if columns == 1 else 3.1 * columns, height + 0.17 * sum(folded(label).count("\n") for label in labels)

    def make() -> Figure:
        figure = Figure(figsize=size)
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        drawn: dict[str, Artist] = {}
        for axes, panel in zip(grid, panels, strict=False):
            for label, points in panel.lines:
                if points:
                    drawn[label] = draw_spread(axes, points, labels.index(label))
            panel.mark(axes)
            axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
            plain_text(axes.title, panel.title)
        for spare in grid[len(panels) :]:
            spare.set_axis_off()
        shown = [label for label in labels if label in drawn]
        draw_legend(grid[0] if inside else figure, [drawn[label] for label in shown], shown, legend)
        return figure

    write_figure(path, make, caption)


def draw_spread(axes: Axes, points: Points, index: int) -> Line2D:
    """Draw the index-th line of a plot: at each x the mean of the values, shaded by their sample deviation."""
    colour, x = COLOURS[index % len(COLOURS)], [place for place, _ in points]
    spread = [mean_and_deviation(values)[:2] for _, values in points]
    means = [mean for mean, _ in spread]
    style: dict[str, Any] = {"linestyle": _LINES[index % len(_LINES)], "marker": MARKERS[index % len(MARKERS)]}
    (line,) = axes.plot(x, means, color=colour, markevery=-(-len(means) // MOST_MARKERS), zorder=3, **style)
    known = [(at, mean - off, mean + off) for at, (mean, off) in zip(x, spread, strict=True) if off is not None]
    if known:
        places, low, high = zip(*known, strict=True)
        if 1 < len(known) == len(means):
            axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
        else:  # a band would narrow at points with a single run, as if these were certain
            axes.vlines(places, low, high, color=colour, linewidth=1)
    return line


def plain_text(text: Any, words: str) -> None:
    """Escape text, because matplotlib reads $...$ as mathematics."""
    text.set_parse_math(False)
    text.set_text(words)


def draw_legend(
    where: Axes | Figure, handles: Sequence[Artist], labels: Sequence[str], title: str = "", **options: Any
) -> None:
    """Draw a legend inside axes with room for it, or below a whole figure; labels appear unchanged."""
    inside = isinstance(where, Axes)
    options |= {"loc": "best" if inside else "outside lower center", "frameon": inside, "title": title or None}
    # The names go in afterwards: matplotlib hides labels that start with "_".
    legend = where.legend(handles, list(map(str, range(len(handles)))), **options)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        plain_text(text, folded(label))


def folded(label: str) -> str:
    """Break a label at its settings, but not within a number: a long legend would leave no room for the axes."""
    return re.sub(rf"(.{{1,{LONG}}}(?:$|(?<=[, ])(?!±)(?<!± )))", r"\1\n", label).rstrip("\n")
