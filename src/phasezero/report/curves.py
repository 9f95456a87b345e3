"""The figure of records: accuracy over the number of classes seen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from matplotlib.ticker import FixedLocator, MaxNLocator

from phasezero.errors import UserError
from phasezero.identity import shortened
from phasezero.report.style import LONG, Panel, folded, write_panels
from phasezero.report.tables import Runs, accuracies_of, group_classifier, seen_classes, spread

_INSIDE_LEGEND = 4  # with more lines, or a long label, the legend goes below the axes


def draw_curves(
    groups: Iterable[Runs], path: str | Path, *, classifier: str | None = None, title: str = "", caption: str = ""
) -> None:
    """Draw a line for each group of runs, shaded by the sample standard deviation; PNG, SVG or PDF by the suffix."""
    lines, counts = [], set[int]()
    shown, common = shortened(list(groups))
    for group in shown:
        accuracies = accuracies_of(group, classifier or group_classifier(group))
        if accuracies is not None:
            averages = [sum(run) / len(run) for run in zip(*accuracies, strict=True)]
            points = list(zip(seen_classes(group), accuracies, strict=True))
            lines.append((f"{group.label}: {spread(averages)}", points))
            counts.update(seen_classes(group))
    if not lines:
        raise UserError(f"nothing to draw: no run was measured with the classifier {classifier!r}")
    many = MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10])
    ticks = FixedLocator(sorted(counts)) if len(counts) <= 8 else many
    labels = "Number of classes seen", "Accuracy on all seen classes (%)"
    panel = Panel(lines, *labels, title, lambda axes: axes.xaxis.set_major_locator(ticks))
    inside = len(lines) <= _INSIDE_LEGEND and max(len(label) for label, _ in lines) <= LONG
    height = 3.4 if inside else 3.6 + 0.17 * len(lines)  # make room for the legend
    legend = "Run: average incremental accuracy (%)"
    if common:
        legend = f"{folded(f'METHOD/{common}:')}\naverage incremental accuracy (%)"
    write_panels(path, [panel], legend=legend, height=height, inside=inside, caption=caption)
