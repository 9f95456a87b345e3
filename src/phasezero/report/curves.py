"""The figure of records: accuracy over the number of classes seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator

from phasezero.errors import UserError
from phasezero.identity import shortened, strategies_of
from phasezero.methods import classifier_of
from phasezero.report.looks import looks_among
from phasezero.report.panels import Line, Panel, write_panels
from phasezero.report.published import PublishedCell, published_for
from phasezero.report.tables import Runs, accuracies_of, group_classifier, seen_classes, spread

ABOUT = (
    "Accuracy on all classes seen so far, by their number. The legend has average incremental accuracies: means over "
    "all phases."
)


def draw_curves(
    groups: Iterable[Runs], path: str | Path, *, classifier: str | None = None, title: str = "", caption: str = ""
) -> list[Path]:
    """Draw a line for each group of runs, and the paper's averages beside the axes; return the figure's files."""
    shown, common = shortened(list(groups))
    used = [(group, classifier or group_classifier(group)) for group in shown]
    measured = [(group, by, found) for group, by in used if (found := accuracies_of(group, by)) is not None]
    if not measured:
        raise UserError(f"nothing to draw: no run was measured with the classifier {classifier!r}")
    looks = looks_among([(group.first["method"], strategies_of(group.first)) for group, _, _ in measured])
    lines, averages, counts = [], [], set[int]()
    for look, (group, by, accuracies) in zip(looks, measured, strict=True):
        average = [sum(run) / len(run) for run in zip(*accuracies, strict=True)]
        label, cell = f"{group.label}: {spread(average)}", _published(group, by)
        lines.append(Line(label, list(zip(seen_classes(group), accuracies, strict=True)), look))
        averages.append(Line(label, [(0, average)], look, [(1, cell.mean, cell.std)] if cell else ()))
        counts.update(seen_classes(group))
    many = MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10])
    ticks = FixedLocator(sorted(counts)) if len(counts) <= 8 else many
    labels = "Number of classes seen", "Accuracy on all seen classes (%)"
    panels = [Panel(lines, *labels, title or common, lambda axes: axes.xaxis.set_major_locator(ticks))]
    if any(line.published for line in averages):
        panels.append(Panel(averages, "", "", "average", partial(_mark_averages, averages), is_strip=True))
    about = f"{caption or ABOUT}{f' All runs are of {common}.' if common else ''}"
    return write_panels(path, panels, legend="Average incremental accuracy (%)", caption=about)


def _published(group: Runs, classifier: str) -> PublishedCell | None:
    """Return the paper's average of these runs, if it was published with this classifier."""
    return published_for(group.first) if classifier == classifier_of(group.first["method"]) else None


def _mark_averages(lines: Sequence[Line], axes: Axes) -> None:
    """Label both columns, and join our average with the paper's: strokes tell lines of a method apart."""
    for line in lines:
        for at, mean, _ in line.published:
            ours = [(x, sum(values) / len(values)) for x, values in line.points]
            axes.plot(*zip(*ours, (at, mean), strict=True), color=line.look.colour, linestyle=line.look.stroke)
    axes.set_xticks([0, 1], ["ours", "paper"], rotation=90)
    axes.set_xlim(-0.6, 1.6)
