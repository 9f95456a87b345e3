"""Figures of analyses: alpha_k over k, the information proxy and the overlap over eta."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from phasezero.analysis.compare import lines_over_eta, mean_of
from phasezero.errors import UserError
from phasezero.identity import cwd_weight, group_analyses, strategies_of
from phasezero.records.analysis import Analysis, Form, Split, floors, shared_classes
from phasezero.report.looks import ORACLE, looks_among
from phasezero.report.panels import COLUMNS, Line, Panel, write_panels

Measure = Callable[[Analysis], float | None]


def by_classes(analysis: Analysis) -> str:
    """Return the legend label of a model by its number of classes in phase 0."""
    return f"{analysis['phase_sizes'][0]} classes"


def draw_alpha(
    analyses: Sequence[Analysis] | Mapping[str, Sequence[Analysis]],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "raw",
    classes: Sequence[str] | None = None,
    by_class: bool = False,
    name: Callable[[Analysis], str] | None = None,
    oracles: Collection[str] = (),
    caption: str = "",
) -> list[Path]:
    """Draw alpha_k over k (the paper's Fig. 3), a line per group: mean over classes, shaded by the seeds' deviation.

    A mapping gives panels by title (Fig. 4), `by_class` a panel for each class. By default the mean is over all classes
    that every model of a panel has seen; `classes` names others by their ids. `name` names a model in the legend.
    `oracles` are the names of models that are drawn as an oracle.
    """
    by_title = analyses if isinstance(analyses, Mapping) else {"": analyses}
    panels: list[tuple[str, Sequence[Analysis], Sequence[str]]] = []
    for title, some in by_title.items():
        ids = shared_classes(some) if classes is None else classes
        if some and by_class:
            names = dict(zip(some[0]["classes"], some[0]["class_names"], strict=True))
            panels += [(names[key], some, [key]) for key in ids]
        elif some:
            panels.append((title, some, ids))
    if not panels or not all(ids for _, _, ids in panels):
        raise UserError("nothing to draw: no models, or none that have a class in common")
    # All panels are grouped together, so a model keeps its name in every panel. Models of the same name share a line.
    groups = group_analyses({id(model): model for _, some, _ in panels for model in some}.values())
    firsts = [group.first for group in groups]
    looks = looks_among([(ORACLE, []) if one["name"] in oracles else _model(one) for one in firsts])
    drawn = []
    for place, (title, some, ids) in enumerate(panels):
        here, lines = {id(model) for model in some}, []
        for group, look in zip(groups, looks, strict=True):
            runs = [model for model in group.members if id(model) in here]
            ks = [k for k in runs[0]["k"] if all(k in model["k"] for model in runs)] if runs else []
            if runs and not ks:
                raise UserError(f"{group.label}: the seeds have no k in common; analyse them with the same --k")
            points = [(k, [mean_of(model, split, form, ids, k) for model in runs]) for k in ks]
            lines.append(Line(name(group.first) if name else group.label, points, look))
        y_label = "" if place % COLUMNS else r"Share of variance $\alpha_k$"
        drawn.append(Panel(lines, "k", y_label, title, _mark_powers))
    return write_panels(path, drawn, caption=_with_choices(caption, form, split))


def _model(analysis: Analysis) -> tuple[str, list[str]]:
    return analysis["method"], strategies_of(analysis)


def _with_choices(caption: str, form: Form, split: Split) -> str:
    return f"{caption} {form.capitalize()} features of {split} images.".lstrip()


def _mark_powers(axes: Axes) -> None:
    largest = axes.dataLim.xmax
    axes.set_xscale("log", base=2)
    axes.set_xticks([2**power for power in range(int(math.log2(largest)) + 1)])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def draw_information(
    analyses: Sequence[Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "unit",
    classes: Sequence[str] | None = None,
    caption: str = "",
) -> list[Path]:
    """Draw the information proxy over eta (the appendix's figure): means over `classes`, or over all seen."""
    used = [f"{floor:g}" for floor in floors(analyses, split, form)]
    if len(used) > 1:
        raise UserError(f"the figure of information: different floors ({' and '.join(used)}) cannot be compared")
    label = r"$\Sigma_i\,\log\,\lambda_i$, mean over classes"
    measures = {label: lambda model: mean_of(model, split, form, classes, None)}
    return _draw_over_eta(analyses, path, measures, _with_choices(caption, form, split))


def draw_overlap(
    analyses: Sequence[Analysis], path: str | Path, *, split: Split = "test", form: Form = "unit", caption: str = ""
) -> list[Path]:
    """Draw the overlap over eta: scatter within classes over scatter between classes, and nearest-mean errors."""
    overlap = {id(model): model[split][form]["overlap"] for model in analyses}
    measures: dict[str, Measure] = {
        "scatter within / between classes": lambda model: overlap[id(model)]["scatter_ratio"],
        "nearest-mean error (%)": lambda model: overlap[id(model)]["nearest_mean_error"],
    }
    if any(each["seen_as_future"] is not None for each in overlap.values()):
        measures["seen images nearest to a future class (%)"] = lambda model: overlap[id(model)]["seen_as_future"]
        measures["future images nearest to a seen class (%)"] = lambda model: overlap[id(model)]["future_as_seen"]
    return _draw_over_eta(analyses, path, measures, _with_choices(caption, form, split))


def _draw_over_eta(
    analyses: Sequence[Analysis], path: str | Path, measures: Mapping[str, Measure], caption: str
) -> list[Path]:
    """Draw a panel for each measure, by its label."""
    lines = lines_over_eta(group_analyses(analyses))
    if not lines:
        raise UserError("nothing to draw: no model without a phase-0 term or with CwD")
    models = [groups[0].first for groups in lines.values()]
    looks = looks_among([(one["method"], [term for term in strategies_of(one) if term != "cwd"]) for one in models])
    panels = []
    for y_label, value in measures.items():
        drawn = []
        for look, (label, groups) in zip(looks, lines.items(), strict=True):
            points: dict[float, dict[int, float]] = {}  # count a seed once, even if several runs share its phase 0
            for model in (model for group in groups for model in group.members):
                if (found := value(model)) is not None:
                    points.setdefault(cwd_weight(model), {}).setdefault(model["seed"], found)
            drawn.append(Line(label, [(eta, list(points[eta].values())) for eta in sorted(points)], look))
        panels.append(Panel(drawn, r"CwD coefficient $\eta$", y_label))
    return write_panels(path, panels, caption=caption)
