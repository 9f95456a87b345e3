"""Figures of analyses: alpha_k over k, the information proxy and the overlap over eta."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from matplotlib.axes import Axes

from phasezero.analysis.compare import lines_over_eta, mean_of
from phasezero.errors import UserError
from phasezero.identity import cwd_weight, group_analyses
from phasezero.records.analysis import Analysis, Form, OverlapRecord, Split, floors, shared_classes
from phasezero.report.style import COLUMNS, Panel, write_panels


class Look(TypedDict, total=False):
    """Which features are drawn, what models are called, and what is said below."""

    split: Split
    form: Form
    name: Callable[[Analysis], str] | None  # without it, by the run's name
    caption: str


def by_classes(analysis: Analysis) -> str:
    """Name a model in a legend by the classes it began with."""
    return f"{analysis['phase_sizes'][0]} classes"


def draw_alpha(
    analyses: Iterable[Analysis], path: str | Path, *, classes: Sequence[str] | None = None, **look: Unpack[Look]
) -> None:
    """Draw alpha_k over k (the paper's Fig. 3), one line a group: mean over classes, shaded by the seeds' deviation.

    By default over all classes that every model has seen; `classes` names others by their ids.
    """
    draw_alpha_panels({"": list(analyses)}, path, classes=classes, **look)


def draw_alpha_panels(
    panels: Mapping[str, Sequence[Analysis]],
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    **look: Unpack[Look],
) -> None:
    """Draw the same side by side, by title (the paper's Fig. 4: with and without CwD, by number of classes)."""
    chosen = [
        (title, some, shared_classes(some) if classes is None else classes) for title, some in panels.items() if some
    ]
    _draw_alpha(chosen, path, **look)


def draw_alpha_by_class(
    analyses: Sequence[Analysis], path: str | Path, *, classes: Sequence[str] | None = None, **look: Unpack[Look]
) -> None:
    """Draw a panel for each class (the appendix's figure for classes 2 to 10)."""
    titles = dict(zip(analyses[0]["classes"], analyses[0]["class_names"], strict=True))
    wanted = shared_classes(analyses) if classes is None else classes
    _draw_alpha([(titles[one], analyses, [one]) for one in wanted], path, **look)  # two classes may have the same name


def _draw_alpha(
    panels: Sequence[tuple[str, Sequence[Analysis], Sequence[str]]],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "raw",
    name: Callable[[Analysis], str] | None = None,
    caption: str = "",
) -> None:
    """Draw panels, each with its title, its models and the classes (by their ids) whose mean is drawn."""
    if not panels or not all(classes for _, _, classes in panels):
        raise UserError("nothing to draw: no models, or none that have a class in common")
    # Grouped all together: a model keeps its name in every panel; models of one name share a line.
    groups = group_analyses({id(one): one for _, some, _ in panels for one in some}.values())
    drawn = []
    for place, (title, some, classes) in enumerate(panels):
        here, lines = {id(one) for one in some}, []
        for group in groups:
            runs = [one for one in group.members if id(one) in here]
            ks = [k for k in runs[0]["k"] if all(k in one["k"] for one in runs)] if runs else []
            if runs and not ks:
                raise UserError(f"{group.label}: its seeds have no k in common; analyse them with the same")
            points = [(k, [mean_of(one, split, form, classes, k) for one in runs]) for k in ks]
            lines.append((name(group.first) if name else group.label, points))
        y_label = "" if place % COLUMNS else rf"$\alpha_k$, {form} features, {split} images"
        drawn.append(Panel(lines, "k", y_label, title, _mark_powers))
    write_panels(path, drawn, caption=caption)


def _mark_powers(axes: Axes) -> None:
    largest = axes.dataLim.xmax
    axes.set_xscale("log", base=2)
    axes.set_xticks([2**power for power in range(int(math.log2(largest)) + 1)])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")


def draw_information(
    analyses: Iterable[Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "unit",
    classes: Sequence[str] | None = None,
    caption: str = "",
) -> None:
    """Draw the information proxy over eta (the appendix's figure), one line for models that differ in nothing else.

    By default over all classes that each model has seen; `classes` names others by their ids.
    """
    analyses = list(analyses)
    if len(found := floors(analyses, split, form)) > 1:
        told = " and ".join(f"{floor:g}" for floor in found)
        raise UserError(f"the figure of information: different floors ({told}) cannot be compared")
    label = r"$\Sigma_i\,\log\,\lambda_i$, mean over classes"
    measures = {label: lambda one: mean_of(one, split, form, classes, None)}
    _draw_over_eta(analyses, path, measures, f"{form} features, {split} images", caption)


def draw_overlap(
    analyses: Iterable[Analysis], path: str | Path, *, split: Split = "test", form: Form = "unit", caption: str = ""
) -> None:
    """Draw what grows when eta is too large: scatter within classes over that between, and nearest-mean errors."""
    analyses = list(analyses)

    def overlap(one: Analysis) -> OverlapRecord:
        return one[split][form]["overlap"]

    measures: dict[str, Callable[[Analysis], float | None]] = {
        "scatter within / between classes": lambda one: overlap(one)["scatter_ratio"],
        "nearest-mean error (%)": lambda one: overlap(one)["nearest_mean_error"],
    }
    if any(overlap(one)["seen_as_future"] is not None for one in analyses):
        measures["seen images nearest to a future class (%)"] = lambda one: overlap(one)["seen_as_future"]
        measures["future images nearest to a seen class (%)"] = lambda one: overlap(one)["future_as_seen"]
    _draw_over_eta(analyses, path, measures, f"{form} features, {split} images", caption)


def _draw_over_eta(
    analyses: Iterable[Analysis],
    path: str | Path,
    measures: Mapping[str, Callable[[Analysis], float | None]],
    legend: str,
    caption: str,
) -> None:
    """Draw a panel for each measure, by its label."""
    lines = lines_over_eta(group_analyses(analyses))
    if not lines:
        raise UserError("nothing to draw: no model without a phase-0 term or with CwD")
    panels = []
    for y_label, value in measures.items():
        drawn = []
        for label, groups in lines.items():
            points: dict[float, dict[int, float]] = {}  # a seed counts once, though several runs may share its phase 0
            for one in (one for group in groups for one in group.members):
                if (found := value(one)) is not None:
                    points.setdefault(cwd_weight(one), {}).setdefault(one["seed"], found)
            drawn.append((label, [(eta, list(points[eta].values())) for eta in sorted(points)]))
        panels.append(Panel(drawn, r"CwD coefficient $\eta$", y_label))
    write_panels(path, panels, legend=legend, caption=caption)
