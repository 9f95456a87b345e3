"""Figures of lines: means of runs with their deviations, and the paper's own points where they are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from phasezero.records.metrics import mean_and_deviation
from phasezero.report.looks import Look
from phasezero.report.style import COLUMN, PAGE, folded, place_legend, plain_text, write_figure

HIGH, LOW = 2.3, 1.9
"""The height in inches of a single panel, and of each row of several."""
COLUMNS = 3
STRIP = 0.24
"""The width of a strip, as a share of its panel's width."""
MOST_MARKERS = 13  # S=2 has 26 phases; more markers than this merge into a band
SIZE, LARGER = 4, {"*": 1.6}  # points: of a marker, and how much larger those are that would look small
MANY = 14  # lines, whose legend would be too high for a column
TITLE = 48  # characters of a title's line

Points = Sequence[tuple[float, Sequence[float]]]
"""Positions on the x axis, each with the values of some runs."""
Published = Sequence[tuple[float, float, float | None]]
"""Positions on the x axis, each with a published mean and its deviation, if that was published."""


@dataclass(frozen=True)
class Line:
    label: str
    points: Points
    look: Look
    published: Published = ()


@dataclass(frozen=True)
class Panel:
    """Lines in one set of axes. Lines of the same label in several panels share an entry of the legend."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    title: str = ""
    mark: Callable[[Axes], None] = lambda axes: None
    """Sets scale and ticks of the x axis when the lines are drawn."""
    is_strip: bool = False
    """Whether it is a narrow panel that continues the y axis of the panel before."""


def write_panels(path: str | Path, panels: Sequence[Panel], *, legend: str = "", caption: str = "") -> list[Path]:
    """Write a figure of panels with a legend of this title; return its files. The caption ends with n."""
    whole = [panel for panel in panels if not panel.is_strip]
    columns = len(panels) if len(whole) == 1 else min(len(whole), COLUMNS)
    rows = -(-len(panels) // columns)
    many = len({line.label for panel in panels for line in panel.lines}) > MANY
    size = (PAGE if many else COLUMN, HIGH) if len(whole) == 1 else (PAGE, LOW * rows)
    shares = [STRIP if panel.is_strip else 1 for panel in panels[:columns]]

    def make() -> Figure:
        figure = Figure(figsize=size)
        grid = list(figure.subplots(rows, columns, squeeze=False, width_ratios=shares).flat)
        handles: dict[str, Artist] = {}
        for place, (axes, panel) in enumerate(zip(grid, panels, strict=False)):
            if panel.is_strip:
                axes.sharey(grid[place - 1])
                axes.tick_params(axis="y", labelleft=False)
            for line in (line for line in panel.lines if line.points or line.published):
                handle = draw_line(axes, line)
                handles.setdefault(line.label, handle)
            panel.mark(axes)
            axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
            plain_text(axes.title, folded(panel.title, TITLE))
        for spare in grid[len(panels) :]:
            spare.set_axis_off()
        if any(line.published for panel in whole for line in panel.lines):
            handles["paper"] = hollow("o", "0.3")
        place_legend(figure, list(handles.values()), list(handles), legend, inside=grid[0] if whole == panels else None)
        return figure

    about = about_lines([line for panel in panels for line in panel.lines])
    return write_figure(path, make, " ".join(filter(None, [caption, about])))


def draw_line(axes: Axes, line: Line) -> Line2D:
    """Draw the means of a line's runs, shaded by their sample deviation, and the published points as hollow markers."""
    look, x = line.look, [place for place, _ in line.points]
    spread = [mean_and_deviation(values)[:2] for _, values in line.points]
    means = [mean for mean, _ in spread]
    every = -(-len(means) // MOST_MARKERS) or None
    options: dict[str, Any] = {
        "marker": look.marker,
        "markevery": every,
        "markersize": SIZE * LARGER.get(look.marker, 1),
    }
    (drawn,) = axes.plot(x, means, color=look.colour, linestyle=look.stroke, zorder=3, **options)
    known = [(at, mean - off, mean + off) for at, (mean, off) in zip(x, spread, strict=True) if off is not None]
    if known:
        places, low, high = zip(*known, strict=True)
        if 1 < len(known) == len(means):
            axes.fill_between(places, low, high, color=look.colour, alpha=0.15, linewidth=0)
        else:  # a band would narrow at points with a single run, as if these were certain
            axes.vlines(places, low, high, color=look.colour, linewidth=1)
    for at, mean, deviation in line.published:
        axes.vlines([at], mean - (deviation or 0), mean + (deviation or 0), color=look.colour, linewidth=0.8, zorder=4)
        axes.add_line(hollow(look.marker, look.colour, at, mean))
    return drawn


def hollow(marker: str, colour: str, *place: float) -> Line2D:
    """Return a hollow marker, which shows a published number, or its entry in a legend."""
    size = 1.1 * SIZE * LARGER.get(marker, 1)
    edge: dict[str, Any] = {
        "markerfacecolor": "white",
        "markeredgecolor": colour,
        "markeredgewidth": 0.9,
        "markersize": size,
    }
    return Line2D(place[:1], place[1:], linestyle="", marker=marker, zorder=5, **edge)


def about_lines(lines: Iterable[Line]) -> str:
    """Return how many runs the lines of a figure show, and what is hollow."""
    lines = list(lines)
    counts = sorted({len(values) for line in lines for _, values in line.points})
    several = " to ".join(dict.fromkeys(map(str, counts[:1] + counts[-1:])))
    parts = [f"Means and sample standard deviations of {several} runs." if counts[-1:] > [1] else "n=1."]
    parts += ["Hollow markers: numbers of the CwD paper."] * any(line.published for line in lines)
    return " ".join(parts)
