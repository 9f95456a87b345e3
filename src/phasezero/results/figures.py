"""Records as a figure for a paper: accuracy over the number of classes seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from phasezero.errors import UserError
from phasezero.results.record import Classifier, Record
from phasezero.results.style import draw_legend, draw_spread, plain_axes, plain_text, write_figure
from phasezero.results.tables import Group, group_records, spread

_INSIDE_LEGEND = 4  # more lines than this, and the legend goes below the axes


def draw_curves(records: Iterable[Record], path: str | Path, *, classifier: Classifier | None = None) -> None:
    """One line a group of runs, shaded by the sample standard deviation; PNG, SVG or PDF by the suffix."""
    draw_groups(group_records(records), path, classifier=classifier)


def draw_groups(
    groups: Iterable[Group],
    path: str | Path,
    *,
    classifier: Classifier | None = None,
    title: str = "",
    caption: str = "",
) -> None:
    """The same for groups that have their labels already."""
    write_figure(path, lambda: _figure(groups, classifier, title), caption)


def draw_sweep(
    lines: Mapping[str, Sequence[tuple[float, Sequence[float]]]],
    path: str | Path,
    *,
    x_label: str,
    y_label: str,
    caption: str = "",
) -> None:
    """Label -> points (x, the values of some runs there), one line each."""

    def figure() -> Figure:
        drawing = Figure(figsize=(4.8, 3.4), layout="constrained")
        axes = drawing.add_subplot()
        drawn = [
            draw_spread(axes, [x for x, _ in points], [values for _, values in points], index)
            for index, points in enumerate(lines.values())
        ]
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        plain_axes(axes)
        draw_legend(axes, drawn, list(lines))
        return drawing

    if not any(lines.values()):
        raise UserError("nothing to draw: no run")
    write_figure(path, figure, caption)


def _figure(groups: Iterable[Group], classifier: Classifier | None, title: str) -> Figure:
    curves = [
        (group, accuracies)
        for group in groups
        if (accuracies := group.accuracies(classifier or group.classifier)) is not None
    ]
    if not curves:
        raise UserError(f"nothing to draw: no run was measured with the classifier {classifier!r}")
    inside = len(curves) <= _INSIDE_LEGEND
    height = 3.4 if inside else 3.6 + 0.17 * len(curves)  # the legend must not eat the axes
    figure = Figure(figsize=(4.8, height), layout="constrained")
    axes = figure.add_subplot()
    lines, labels = [], []
    for index, (group, accuracies) in enumerate(curves):
        lines.append(draw_spread(axes, group.seen, accuracies, index))
        averages = [sum(run) / len(run) for run in zip(*accuracies, strict=True)]
        labels.append(f"{group.label}: {spread(averages)}")

    axes.set_xlabel("Number of classes seen")
    axes.set_ylabel("Accuracy on all seen classes (%)")
    points = sorted({seen for group, _ in curves for seen in group.seen})
    if len(points) <= 8:
        axes.set_xticks(points)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))
    plain_axes(axes)
    plain_text(axes.title, title)
    draw_legend(axes if inside else figure, lines, labels, "Run: average incremental accuracy (%)")
    return figure
