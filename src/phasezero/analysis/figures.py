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
    term_forms,
)
from phasezero.analysis.spectra import Form
from phasezero.config import leaves
from phasezero.errors import UserError
from phasezero.results.record import class_hash
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
    chosen = [
        (title, some, shared_classes(some) if classes is None else classes)
        for title, some in panels.items()
        if some
    ]
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
    wanted = shared_classes(analyses) if classes is None else classes
    chosen = [(titles[one], analyses, [one]) for one in wanted]  # two classes may have the same name
    write_figure(path, lambda: _alpha_figure(chosen, split, form, name), caption)


def _alpha_figure(
    panels: Sequence[tuple[str, Sequence[Analysis], Sequence[str]]],
    split: Split,
    form: Form,
    name: Name | None,
) -> Figure:
    """Of each panel: its title, the models, the classes (by their ids) whose mean is drawn."""
    if not panels or not all(classes for _, _, classes in panels):
        raise UserError("nothing to draw: no models, or none that have a class in common")
    # Grouped all together: a model keeps its name in every panel; models of one name share a line.
    groups = group_analyses({id(one): one for _, some, _ in panels for one in some}.values())
    labels = [name(group.first) if name else group.label for group in groups]
    shown = list(dict.fromkeys(labels))
    figure, grid = _grid(len(panels), legend_lines=len(shown))
    lines = {}
    for axes, (title, some, classes) in zip(grid, panels, strict=True):
        here, largest = {id(one) for one in some}, 1
        for group, label in zip(groups, labels, strict=True):
            runs = [one for one in group.analyses if id(one) in here]
            if runs:
                ks = [k for k in runs[0]["k"] if all(k in one["k"] for one in runs)]
                if not ks:
                    raise UserError(
                        f"{group.label}: its seeds have no k in common; analyse them with the same"
                    )
                largest = max(largest, *ks)
                values = [[_mean(alpha_of(one, split, form, classes, k)) for one in runs] for k in ks]
                lines[label] = draw_spread(axes, ks, values, shown.index(label))
        axes.set_xscale("log", base=2)
        axes.set_xticks([2**power for power in range(int(math.log2(largest)) + 1)])
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
    """The information proxy over eta (the appendix's figure), one line for models that differ in nothing else.

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
    families = _lines_over_eta(group_analyses(analyses))
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


def _lines_over_eta(groups: Sequence[AnalysisGroup]) -> dict[str, list[AnalysisGroup]]:
    """By label: models with one form of CwD, or without it, that otherwise differ in nothing.

    A model without CwD begins every line of models that were made like it. Where there is none it begins those of
    its data and network: on ImageNet100 the published LUCIR with CwD has a learning rate of its own.
    """
    lines: dict[Facts, list[AnalysisGroup]] = {}
    for group in groups:
        if _terms(group) == ["cwd"]:
            lines.setdefault(_facts(group.first), []).append(group)
    with_cwd = list(lines)
    for group in groups:
        if not _terms(group):
            own = _facts(group.first)
            model = {fact for fact in own if fact[0] in _MODEL}
            alike = [facts for facts in with_cwd if set(own) <= set(facts)]
            near = [facts for facts in with_cwd if model <= set(facts)]
            for facts in alike or near or [own]:
                lines.setdefault(facts, []).append(group)
    ranked = sorted(lines, key=lambda facts: lines[facts][0].first["phase_sizes"])
    return {_label(dict(facts), [dict(other) for other in ranked]): lines[facts] for facts in ranked}


Facts = tuple[tuple[str, str], ...]
"""What a model is made of besides its seed and eta: names and values, in the order in which a legend tells them."""

_MODEL = ("name", "protocol.data", "network.name", "classes")


def _terms(group: AnalysisGroup) -> list[str]:
    return [term["name"] for term in group.first["config"]["initial"]]


def _facts(analysis: Analysis) -> Facts:
    ignored = ("name", "seed", "engine.", "initial")
    settings = {key: value for key, value in leaves(analysis["config"]) if not key.startswith(ignored)}
    found = {
        "name": f"{analysis['method']}, classes {'+'.join(map(str, analysis['phase_sizes']))}",
        **settings,
        "classes": class_hash(analysis["classes"][: analysis["seen_classes"]])[:8],
        **{f"{term['name']}.{key}": term[key] for term in term_forms(analysis) for key in term},
    }
    return tuple((key, str(value)) for key, value in found.items())


def _label(facts: Mapping[str, str], everybody: Iterable[Mapping[str, str]]) -> str:
    """The name; among namesakes also the first facts that tell them all apart."""
    namesakes = [other for other in everybody if other["name"] == facts["name"]]
    told: list[str] = []

    def kinds(keys: Sequence[str]) -> int:
        return len({tuple(other.get(key) for key in keys) for other in namesakes})

    for key in dict.fromkeys(key for other in namesakes for key in other):
        if kinds([*told, key]) > kinds(told):
            told.append(key)
    words = ", ".join(f"{key}={facts[key]}" for key in told if key in facts)
    return f"{facts['name']} ({words})" if words else facts["name"]


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
