"""The figure of a leaderboard: average accuracy over the computing time of a run, with published numbers as lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from phasezero.report.looks import Look, method_look
from phasezero.report.style import COLUMN, place_legend, plain_text, write_figure

HEIGHT = 1.75  # inches of a panel
PLAIN = "plain"
"""The name of a phase 0 without strategies."""
FILLS: tuple[Any, ...] = ("full", "left", "top", "right", "bottom")
"""The filled half of a marker, by strategies: plain first, then the others in the board's order.

Further strategies start again, with a black edge."""
LABEL = 0.075  # the height of a label, as a share of a panel's


@dataclass(frozen=True)
class Point:
    """The runs of a method that continue from a phase 0 with some strategies."""

    label: str
    method: str
    strategies: str
    seconds: float
    averages: Sequence[float]


@dataclass(frozen=True)
class PublishedLine:
    """A published number in the look of its method, or dotted if its setting is another than the runs' (open)."""

    label: str
    average: float
    look: Look | None

    @property
    def colour(self) -> str:
        return self.look.colour if self.look else "0.35"

    @property
    def stroke(self) -> Any:
        return self.look.stroke if self.look else ":"


@dataclass(frozen=True)
class Board:
    title: str
    points: Sequence[Point]
    lines: Sequence[PublishedLine] = ()


def draw_boards(boards: Sequence[Board], path: Path, *, device: str, caption: str = "") -> list[Path]:
    """Draw a panel for each board, and return the figure's files. Looks are methods, filled halves are strategies."""
    points = [point for board in boards for point in board.points]
    methods = {point.label: point.method for point in points}
    strategies = sorted(dict.fromkeys(point.strategies for point in points), key=lambda name: name != PLAIN)

    def make() -> Figure:
        figure = Figure(figsize=(COLUMN, 0.3 + HEIGHT * len(boards)))
        panels = figure.subplots(len(boards), 1, squeeze=False, sharex=True)[:, 0]
        for axes, board in zip(panels, boards, strict=True):
            for point in board.points:
                look = method_look(point.method)
                marker = _marker(look.marker, look.colour, strategies.index(point.strategies))
                marker.set_data([point.seconds], [fmean(point.averages)])
                axes.add_line(marker)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.margins(x=0.1, y=0.08)
            axes.autoscale_view()
            _draw_lines(axes, board.lines)
            axes.set(ylabel="Average accuracy (%)")
            plain_text(axes.title, board.title)
        panels[-1].set_xlabel(f"Seconds of a run ({device})")
        looks = {label: method_look(method) for label, method in methods.items()}
        handles = [_marker(look.marker, look.colour, 0) for look in looks.values()]
        handles += [_marker("o", "0.35", place) for place in range(len(strategies))]
        place_legend(figure, handles, [*methods, *strategies])
        return figure

    about = f"n={_range(len(point.averages) for point in points)}."
    if any(board.lines for board in boards):
        about += " Lines are published averages: dashed in our setting, dotted in settings that allow more."
    return write_figure(path, make, f"{caption} {about}".lstrip())


def _range(counts: Iterable[int]) -> str:
    known = sorted(counts)
    return " to ".join(dict.fromkeys(map(str, (known[0], known[-1]))))


def _marker(shape: str, colour: str, strategies: int) -> Line2D:
    """Return the marker of a method in its colour, filled by the place of its strategies."""
    edge = colour if strategies < len(FILLS) else "black"
    options: dict[str, Any] = {
        "color": colour,
        "markerfacecoloralt": "white",
        "markeredgecolor": edge,
        "markeredgewidth": 0.7,
    }
    fill = FILLS[strategies % len(FILLS)]
    return Line2D([], [], linestyle="", marker=shape, markersize=6, fillstyle=fill, zorder=3, **options)


def _draw_lines(axes: Axes, lines: Sequence[PublishedLine]) -> None:
    """Draw published numbers, with labels in the right margin that are moved apart where they would overlap."""
    ordered = sorted(lines, key=lambda line: line.average)
    for line in ordered:
        axes.axhline(line.average, color=line.colour, linestyle=line.stroke, linewidth=0.9, zorder=1)
    low, high = axes.get_ylim()
    heights = apart([(line.average - low) / (high - low) for line in ordered], LABEL)
    for line, height in zip(ordered, heights, strict=True):
        place = [(line.average - low) / (high - low), height, height]
        axes.plot([1, 1.03, 1.05], place, transform=axes.transAxes, color=line.colour, linewidth=0.5, clip_on=False)
        text = axes.text(1.06, height, "", fontsize=6, color=line.colour, va="center", transform=axes.transAxes)
        plain_text(text, line.label)


def apart(places: Sequence[float], distance: float) -> list[float]:
    """Return rising places moved as little as needed to be this far apart: overlapping ones around their middle."""
    blocks: list[tuple[float, int]] = []  # the middle and the number of places that touch
    for place in places:
        middle, count = place, 1
        while blocks and blocks[-1][0] + distance * (blocks[-1][1] + count) / 2 > middle:
            before, others = blocks.pop()
            middle, count = (before * others + middle * count) / (others + count), others + count
        blocks.append((middle, count))
    return [middle + distance * (at - (count - 1) / 2) for middle, count in blocks for at in range(count)]
