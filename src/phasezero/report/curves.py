"""Figures of records: accuracy over the number of classes seen, and averages over a setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from phasezero.errors import UserError
from phasezero.identity import group_by_identity
from phasezero.records.run import Record
from phasezero.report.style import Panel, Points, write_panels
from phasezero.report.tables import Runs, accuracies_of, group_classifier, seen_classes, spread

_INSIDE_LEGEND = 4  # more lines than this, and the legend goes below the axes


def draw_curves(records: Iterable[Record], path: str | Path, *, classifier: str | None = None) -> None:
    """Draw one line a group of runs, shaded by the sample standard deviation; PNG, SVG or PDF by the suffix."""
    draw_groups(group_by_identity(records), path, classifier=classifier)


def draw_groups(
    groups: Iterable[Runs], path: str | Path, *, classifier: str | None = None, title: str = "", caption: str = ""
) -> None:
    """Draw the same for groups that have their labels already."""
    lines, counts = [], set[int]()
    for group in groups:
        accuracies = accuracies_of(group, classifier or group_classifier(group))
        if accuracies is not None:
            averages = [sum(run) / len(run) for run in zip(*accuracies, strict=True)]
            points = list(zip(seen_classes(group), accuracies, strict=True))
            lines.append((f"{group.label}: {spread(averages)}", points))
            counts.update(seen_classes(group))
    if not lines:
        raise UserError(f"nothing to draw: no run was measured with the classifier {classifier!r}")

    def mark(axes: Axes) -> None:
        if len(counts) <= 8:
            axes.set_xticks(sorted(counts))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))

    panel = Panel(lines, "Number of classes seen", "Accuracy on all seen classes (%)", title, mark)
    inside = len(lines) <= _INSIDE_LEGEND
    height = 3.4 if inside else 3.6 + 0.17 * len(lines)  # the legend must not eat the axes
    legend = "Run: average incremental accuracy (%)"
    write_panels(path, [panel], legend=legend, height=height, inside=inside, caption=caption)


def draw_sweep(lines: Mapping[str, Points], path: str | Path, *, x_label: str, y_label: str, caption: str = "") -> None:
    """Draw one line a label, over a setting that runs differ in."""
    if not any(lines.values()):
        raise UserError("nothing to draw: no run")
    write_panels(path, [Panel(list(lines.items()), x_label, y_label)], height=3.4, inside=True, caption=caption)
