"""How the figures of this project look, and how they are written: for a paper's column, legible in grey."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from phasezero.errors import UserError
from phasezero.results.files import replacing
from phasezero.results.metrics import mean_and_deviation

SUFFIXES = (".png", ".svg", ".pdf")

# After Okabe and Ito's colours, which colour-blind readers tell apart; less the yellow, and darker, so that each has
# a contrast of 3:1 on white (theirs: orange 2.2, sky blue 2.3). Markers and line styles repeat with other periods,
# so that a grey print still tells the lines apart.
COLOURS = ("#005E9B", "#B84700", "#00895D", "#D36F9F", "#BE8B00", "#000000", "#169DDB")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))

MOST_MARKERS = 13  # S=2 has 26 phases; more markers than this merge into a band

_SETTINGS: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.linewidth": 0.8,
    "text.usetex": False,
    "svg.fonttype": "none",  # text stays text: searchable, and editable in a drawing program
    "svg.hashsalt": "phasezero",  # the same records, the same file
    "pdf.fonttype": 42,  # TrueType: publishers refuse the default, Type 3
}


def write_figure(path: str | Path, make: Callable[[], Figure], caption: str = "") -> None:
    """PNG, SVG or PDF by the suffix, a caption below; the same figure gives the same file."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: a figure's name must end in one of {', '.join(SUFFIXES)}")
    with matplotlib.rc_context(_SETTINGS):  # a Figure of our own, never pyplot: nothing of ours stays behind
        figure = make()
        if caption:
            # A tight crop moves the figure's edge, and a legend outside the axes with it, onto the caption: so
            # everything is laid out before, and stays there.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            for legend in figure.legends:
                legend.set_bbox_to_anchor((0, 0, 1, 1), figure.transFigure)
            lines = textwrap.fill(caption, round(19 * figure.get_figwidth()))
            plain_text(figure.text(0.0, -0.02, "", fontsize=7, ha="left", va="top"), lines)
        form = path.suffix.lower().removeprefix(".")
        stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
        with replacing(path) as temporary:
            figure.savefig(
                temporary, format=form, dpi=200, bbox_inches="tight", pad_inches=0.03, metadata=stamp
            )


def write_every_format(
    base: Path, make: Callable[[Path], None], suffixes: Sequence[str] = SUFFIXES
) -> list[Path]:
    """One figure as PNG, SVG and PDF (or some of them), all of this name with a suffix."""
    paths = [base.with_name(base.name + suffix) for suffix in suffixes]
    for path in paths:
        make(path)
    return paths


def draw_spread(axes: Axes, x: Sequence[float], values: Sequence[Sequence[float]], index: int) -> Line2D:
    """The index-th line of a plot: at each x the mean of some values, shaded by their sample deviation."""
    colour = COLOURS[index % len(COLOURS)]
    spread = [mean_and_deviation(some) for some in values]
    means = [mean for mean, _, _ in spread]
    (line,) = axes.plot(
        x,
        means,
        color=colour,
        linestyle=_LINES[index % len(_LINES)],
        linewidth=1.4,
        marker=MARKERS[index % len(MARKERS)],
        markersize=4.5,
        markeredgecolor="white",
        markeredgewidth=0.5,
        markevery=-(-len(means) // MOST_MARKERS),
        zorder=3,
    )
    known = [
        (place, mean - deviation, mean + deviation)
        for place, (mean, deviation, _) in zip(x, spread, strict=True)
        if deviation is not None
    ]
    if known:
        places, low, high = zip(*known, strict=True)
        if 1 < len(known) == len(means):
            axes.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
        else:  # a band would narrow towards points of one run, as if these were certain
            axes.vlines(places, low, high, color=colour, linewidth=1)
    return line


def plain_axes(axes: Axes) -> None:
    """A faint grid behind, no frame above and on the right."""
    axes.grid(color="0.88", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plain_text(text: Any, words: str) -> None:
    """Words as they are: matplotlib would read $...$ as mathematics."""
    text.set_parse_math(False)
    text.set_text(words)


def draw_legend(
    where: Axes | Figure, handles: Sequence[Artist], labels: Sequence[str], title: str = "", **options: Any
) -> Legend:
    """Inside axes where there is room, or below a whole figure; labels appear as they are."""
    inside = isinstance(where, Axes)
    legend = where.legend(
        handles,
        [str(index) for index in range(len(handles))],
        title=title or None,
        loc="best" if inside else "outside lower center",
        handlelength=3.2,
        frameon=inside,
        framealpha=0.9,
        edgecolor="0.85",
        fancybox=False,
        **options,
    )
    legend.get_title().set_fontsize(8)
    # The names go in afterwards: matplotlib hides labels that start with "_".
    for text, label in zip(legend.get_texts(), labels, strict=True):
        plain_text(text, label)
    return legend
