"""Analyses as figures: alpha_k over k, the information proxy and the overlap over eta."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phasezero.analysis.compare import alpha_of, values_of
from phasezero.analysis.record import (
    Analysis,
    AnalysisGroup,
    OverlapRecord,
    Split,
    cwd_weight,
    floors,
    group_analyses,
    measured,
    shared_classes,
)
from phasezero.analysis.spectra import Form
from phasezero.errors import UserError
from phasezero.results.style import draw_legend, draw_spread, plain_axes, plain_text, write_figure

_PANEL = (3.1, 2.5)
_COLUMNS = 3


Name = Callable[[Analysis], str]
"""What to call a model in a legend, instead of its run's name; see `by_classes` and `by_eta`."""


def by_classes(analysis: Analysis) -> str:
    return f"{analysis['phase_sizes'][0]} classes"


def by_eta(analysis: Analysis) -> str:
    return f"{by_classes(analysis)}, η = {cwd_weight(analysis):g}"


def draw_alpha(
    analyses: Iterable[Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "raw",
    classes: Sequence[str] | None = None,
    name: Name | None = None,
    caption: str = "",
) -> None:
    """alpha_k over k (the paper's Fig. 3), one line a group: mean over classes, shaded by the seeds' deviation.

    By default over all classes that every model has seen; `classes` names others by their ids.
    """
    panels = {"": list(analyses)}
    draw_alpha_panels(panels, path, split=split, form=form, classes=classes, name=name, caption=caption)


def draw_alpha_panels(
    panels: Mapping[str, Sequence[Analysis]],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "raw",
    classes: Sequence[str] | None = None,
    name: Name | None = None,
    caption: str = "",
) -> None:
    """The same, side by side: title -> analyses (the paper's Fig. 4: with and without CwD, by number of classes)."""
    chosen = {title: (some, classes or shared_classes(some)) for title, some in panels.items() if some}
    write_figure(path, lambda: _alpha_figure(chosen, split, form, name), caption)


def draw_alpha_by_class(
    analyses: Sequence[Analysis],
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    split: Split = "train",
    form: Form = "raw",
    name: Name | None = None,
    caption: str = "",
) -> None:
    """A panel for each class (the appendix's figure for classes 2 to 10)."""
    first = analyses[0]
    titles = dict(zip(first["classes"], first["class_names"], strict=True))
    chosen = {titles[one]: (analyses, [one]) for one in classes or shared_classes(analyses)}
    write_figure(path, lambda: _alpha_figure(chosen, split, form, name), caption)


def _alpha_figure(
    panels: Mapping[str, tuple[Sequence[Analysis], Sequence[str]]],
    split: Split,
    form: Form,
    name: Name | None,
) -> Figure:
    if not panels or not all(classes for _, classes in panels.values()):
        raise UserError("nothing to draw: no models, or none that have a class in common")
    # Grouped all together: a model keeps its name in every panel; models of one name share a line.
    groups = group_analyses({id(one): one for some, _ in panels.values() for one in some}.values())
    labels = [name(group.first) if name else group.label for group in groups]
    shown = list(dict.fromkeys(labels))
    figure, grid = _grid(len(panels), legend_lines=len(shown))
    lines = {}
    for axes, (title, (some, classes)) in zip(grid, panels.items(), strict=True):
        here = {id(one) for one in some}
        for group, label in zip(groups, labels, strict=True):
            runs = [one for one in group.analyses if id(one) in here]
            if runs:
                ks = [k for k in runs[0]["k"] if all(k in one["k"] for one in runs)]
                values = [[_mean(alpha_of(one, split, form, classes, k)) for one in runs] for k in ks]
                lines[label] = draw_spread(axes, ks, values, shown.index(label))
        axes.set_xscale("log", base=2)
        axes.set_xticks([2**power for power in range(int(math.log2(max(ks))) + 1)])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("k")
        if axes in grid[::_COLUMNS]:
            axes.set_ylabel(r"$\alpha_k$" + f", {form} features, {split} images")
        plain_text(axes.title, title)
        plain_axes(axes)
    draw_legend(figure, [lines[label] for label in shown], shown)
    return figure


def draw_information(
    analyses: Iterable[Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "unit",
    classes: Sequence[str] | None = None,
    caption: str = "",
) -> None:
    """The information proxy over eta (the appendix's figure), one line for each number of classes.

    By default over all classes that each model has seen; `classes` names others by their ids.
    """
    analyses = list(analyses)
    if len(found := floors(analyses, split, form)) > 1:
        told = " and ".join(f"{floor:g}" for floor in found)
        raise UserError(f"the figure of information: different floors ({told}) cannot be compared")

    def proxy(one: Analysis) -> float:
        chosen = one["classes"][: one["seen_classes"]] if classes is None else classes
        return _mean(values_of(one, split, form, chosen, None))

    measures = {r"$\Sigma_i\,\log\,\lambda_i$, mean over classes": proxy}
    _draw_over_eta(analyses, path, measures, split, form, caption)


def draw_overlap(
    analyses: Iterable[Analysis],
    path: str | Path,
    *,
    split: Split = "test",
    form: Form = "unit",
    caption: str = "",
) -> None:
    """What grows when eta is too large: scatter within classes over that between, and nearest-mean errors."""
    analyses = list(analyses)

    def overlap(one: Analysis) -> OverlapRecord:
        return measured(one, split, form)["overlap"]

    measures: dict[str, Callable[[Analysis], float | None]] = {
        "scatter within / between classes": lambda one: overlap(one)["scatter_ratio"],
        "nearest-mean error (%)": lambda one: overlap(one)["nearest_mean_error"],
    }
    if any(overlap(one)["seen_as_future"] is not None for one in analyses):
        measures |= {
            "seen images nearest to a future class (%)": lambda one: overlap(one)["seen_as_future"],
            "future images nearest to a seen class (%)": lambda one: overlap(one)["future_as_seen"],
        }
    _draw_over_eta(analyses, path, measures, split, form, caption)


def _draw_over_eta(
    analyses: Iterable[Analysis],
    path: str | Path,
    measures: Mapping[str, Callable[[Analysis], float | None]],
    split: Split,
    form: Form,
    caption: str,
) -> None:
    families: dict[str, list[AnalysisGroup]] = {}
    for group in group_analyses(analyses):
        terms = {term["name"] for term in group.first["config"]["initial"]}
        if terms <= {"cwd"}:
            sizes = "+".join(map(str, group.first["phase_sizes"]))
            families.setdefault(f"{group.first['method']}, classes {sizes}", []).append(group)
    if not families:
        raise UserError("nothing to draw: no model without a phase-0 term or with CwD")

    def figure() -> Figure:
        drawing, grid = _grid(len(measures), legend_lines=len(families))
        for axes, (label, value) in zip(grid, measures.items(), strict=True):
            lines = []
            for index, groups in enumerate(families.values()):
                ranked = sorted(groups, key=lambda group: cwd_weight(group.first))
                values = [[value(one) for one in group.analyses] for group in ranked]
                known = [
                    (cwd_weight(group.first), [one for one in some if one is not None])
                    for group, some in zip(ranked, values, strict=True)
                ]
                points = [(eta, some) for eta, some in known if some]
                lines.append(
                    draw_spread(axes, [eta for eta, _ in points], [some for _, some in points], index)
                )
            axes.set_xlabel(r"CwD coefficient $\eta$")
            axes.set_ylabel(label)
            plain_axes(axes)
        draw_legend(drawing, lines, list(families), f"{form} features, {split} images")
        return drawing

    write_figure(path, figure, caption)


def _grid(panels: int, legend_lines: int) -> tuple[Figure, list[Axes]]:
    columns = min(panels, _COLUMNS)
    rows = -(-panels // columns)
    width = 4.8 if columns == 1 else _PANEL[0] * columns
    figure = Figure(figsize=(width, _PANEL[1] * rows + 0.4 + 0.17 * legend_lines), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in grid[panels:]:
        spare.set_axis_off()
    return figure, grid[:panels]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
