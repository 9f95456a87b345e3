"""The figure of a leaderboard: average accuracy over the computing time of a run, with published numbers as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from phasezero.report.looks import COLOURS, MARKERS
from phasezero.report.style import draw_legend, plain_text, write_figure

CLOSE = 0.5
"""Points of accuracy between published numbers whose labels would overlap."""


@dataclass(frozen=True)
class Line:
    """A published number; `is_open` for another setting than the runs'."""

    label: str
    average: float
    is_open: bool


@dataclass(frozen=True)
class Board:
    """A panel: runs as (method, strategies, seconds, averages), and published numbers."""

    title: str
    points: Sequence[tuple[str, str, float, Sequence[float]]]
    lines: Sequence[Line] = ()


def draw_boards(boards: Sequence[Board], path: Path, *, device: str, caption: str = "") -> None:
    """Draw a panel for each board. Colours are methods, markers are phase-0 strategies."""
    methods = list(dict.fromkeys(point[0] for board in boards for point in board.points))
    strategies = list(dict.fromkeys(point[1] for board in boards for point in board.points))

    def make() -> Figure:
        figure = Figure(figsize=(max(4.8, 3.4 * len(boards)), 3.6 + 0.17 * max(len(methods) + 2, len(strategies))))
        panels = figure.subplots(1, len(boards), squeeze=False)[0]
        for axes, board in zip(panels, boards, strict=True):
            for method, strategy, seconds, averages in board.points:
                style = {"color": COLOURS[methods.index(method) % len(COLOURS)], "linestyle": ""}
                marker = MARKERS[strategies.index(strategy) % len(MARKERS)]
                axes.plot([seconds], [fmean(averages)], marker=marker, markersize=6, **style)
            for is_open in (False, True):
                _draw_lines(axes, [line for line in board.lines if line.is_open == is_open], is_open)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.margins(x=0.15)
            axes.set(xlabel=f"Seconds of a run ({device})", ylabel="Average incremental accuracy (%)")
            plain_text(axes.title, board.title)
        handles = [
            Line2D([], [], linestyle="", marker="o", color=COLOURS[i % len(COLOURS)]) for i in range(len(methods))
        ]
        handles += [
            Line2D([], [], linestyle="", marker=MARKERS[i % len(MARKERS)], color="0.35") for i in range(len(strategies))
        ]
        labels = [*methods, *strategies]
        if any(line for board in boards for line in board.lines):
            handles += [Line2D([], [], color="0.35", linestyle=kind) for kind in ("--", ":")]
            labels += ["published, strict setting", "published, open setting"]
        draw_legend(figure, handles, labels, ncols=2 + (len(boards) > 1))
        return figure

    write_figure(path, make, caption)


def _draw_lines(axes: Axes, lines: Sequence[Line], is_open: bool) -> None:
    """Draw published numbers, dotted with labels on the left (open setting) or dashed with labels on the right."""
    labels: dict[float, list[str]] = {}
    for line in sorted(lines, key=lambda line: -line.average):
        axes.axhline(line.average, color="0.35", linestyle=":" if is_open else "--", linewidth=0.8, zorder=1)
        near = next((place for place in labels if place - line.average < CLOSE), line.average)
        labels.setdefault(near, []).append(line.label)  # numbers this close share a text
    for place, names in labels.items():
        across, align = (0.01, "left") if is_open else (0.99, "right")
        text = axes.text(across, place, "", fontsize=6, color="0.35", ha=align, va="bottom", zorder=2)
        text.set_transform(axes.get_yaxis_transform())
        plain_text(text, ", ".join(names))
