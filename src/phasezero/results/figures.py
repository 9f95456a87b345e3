"""Records as a figure for a paper: accuracy over the number of classes seen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from phasezero.errors import UserError
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.record import Classifier, Record
from phasezero.results.tables import group_records, spread

SUFFIXES = (".png", ".svg", ".pdf")

# Okabe and Ito's colours, told apart by colour-blind readers (less the yellow, too pale on white); markers
# and line styles repeat with other periods, so that a grey print still tells the lines apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))

_MOST_MARKERS = 13  # S=2 has 26 phases; more markers than this merge into a band
_INSIDE_LEGEND = 4  # more lines than this, and the legend goes below the axes

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.linewidth": 0.8,
    "text.usetex": False,
    "svg.fonttype": "none",  # text stays text: searchable, and editable in a drawing program
    "svg.hashsalt": "phasezero",  # the same records, the same file
    "pdf.fonttype": 42,  # TrueType: publishers refuse the default, Type 3
}


def draw_curves(records: Iterable[Record], path: str | Path, *, classifier: Classifier = "head") -> None:
    """One line a group of runs, shaded by the sample standard deviation; PNG, SVG or PDF by the suffix."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: a figure's name must end in one of {', '.join(SUFFIXES)}")
    with matplotlib.rc_context(_STYLE):  # a Figure of our own, never pyplot: nothing of ours stays behind
        figure = _figure(records, classifier)
        path.parent.mkdir(parents=True, exist_ok=True)
        stamp = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        figure.savefig(path, dpi=200, bbox_inches="tight", pad_inches=0.03, metadata=stamp)


def _figure(records: Iterable[Record], classifier: Classifier) -> Figure:
    curves = [
        (group, accuracies)
        for group in group_records(records)
        if (accuracies := group.accuracies(classifier)) is not None
    ]
    if not curves:
        raise UserError(f"nothing to draw: no run was measured with the classifier {classifier!r}")
    inside = len(curves) <= _INSIDE_LEGEND
    height = 3.4 if inside else 3.6 + 0.17 * len(curves)  # the legend must not eat the axes
    figure = Figure(figsize=(4.8, height), layout="constrained")
    axes = figure.add_subplot()
    lines, labels = [], []
    for index, (group, accuracies) in enumerate(curves):
        colour = _COLOURS[index % len(_COLOURS)]
        by_phase = [mean_and_deviation(values) for values in accuracies]
        means = [mean for mean, _, _ in by_phase]
        (line,) = axes.plot(
            group.seen,
            means,
            color=colour,
            linestyle=_STYLES[index % len(_STYLES)],
            linewidth=1.4,
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            markevery=-(-len(means) // _MOST_MARKERS),
            zorder=3,
        )
        if len(group.records) > 1:
            low = [mean - (deviation or 0.0) for mean, deviation, _ in by_phase]
            high = [mean + (deviation or 0.0) for mean, deviation, _ in by_phase]
            axes.fill_between(group.seen, low, high, color=colour, alpha=0.18, linewidth=0)
        lines.append(line)
        averages = [sum(run) / len(run) for run in zip(*accuracies, strict=True)]
        labels.append(f"{group.label}: {spread(averages)}")

    axes.set_xlabel("Number of classes seen")
    axes.set_ylabel("Accuracy on all seen classes (%)")
    points = sorted({seen for group, _ in curves for seen in group.seen})
    if len(points) <= 8:
        axes.set_xticks(points)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, steps=[1, 2, 5, 10]))
    axes.grid(color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)

    legend_in = axes if inside else figure
    legend = legend_in.legend(
        lines,
        [str(index) for index in range(len(lines))],
        title="Run: average incremental accuracy (%)",
        loc="best" if inside else "outside lower center",
        handlelength=3.2,
        frameon=inside,
        framealpha=0.9,
        edgecolor="0.85",
        fancybox=False,
    )
    legend.get_title().set_fontsize(8)
    # The names go in afterwards: matplotlib hides labels that start with "_" and reads $...$ as mathematics.
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_parse_math(False)
        text.set_text(label)
    return figure
