"""Analyses as figures: alpha_k over k, the information proxy and the overlap over eta, the sphere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phasezero.analysis.compare import alpha_of
from phasezero.analysis.record import (
    Analysis,
    AnalysisGroup,
    Measurement,
    Split,
    cwd_weight,
    group_analyses,
    measured,
    shared_classes,
)
from phasezero.analysis.spectra import Form
from phasezero.analysis.sphere import facing
from phasezero.errors import UserError
from phasezero.results.style import (
    COLOURS,
    MARKERS,
    draw_legend,
    draw_spread,
    plain_axes,
    plain_text,
    write_figure,
)

_PANEL = (3.1, 2.5)
_COLUMNS = 3


def draw_alpha(
    analyses: Iterable[Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "raw",
    classes: Sequence[str] | None = None,
) -> None:
    """alpha_k over k (the paper's Fig. 3), one line a group: mean over classes, shaded by the seeds' deviation.

    By default over all classes that every model has seen; `classes` names others by their ids.
    """
    draw_alpha_panels({"": list(analyses)}, path, split=split, form=form, classes=classes)


def draw_alpha_panels(
    panels: Mapping[str, Sequence[Analysis]],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "raw",
    classes: Sequence[str] | None = None,
    caption: str = "",
) -> None:
    """The same, side by side: title -> analyses (the paper's Fig. 4: with and without CwD, by number of classes)."""
    if not all(panels.values()) or not panels:
        raise UserError("nothing to draw: no analysis")
    chosen = {
        title: (group_analyses(some), classes or shared_classes(some)) for title, some in panels.items()
    }
    write_figure(path, lambda: _alpha_figure(chosen, split, form), caption)


def draw_alpha_by_class(
    analyses: Sequence[Analysis],
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    split: Split = "train",
    form: Form = "raw",
    caption: str = "",
) -> None:
    """A panel for each class (the appendix's figure for classes 2 to 10)."""
    groups = group_analyses(analyses)
    first = analyses[0]
    names = dict(zip(first["classes"], first["class_names"], strict=True))
    chosen = {names[one]: (groups, [one]) for one in classes or shared_classes(analyses)}
    write_figure(path, lambda: _alpha_figure(chosen, split, form), caption)


def _alpha_figure(
    panels: Mapping[str, tuple[list[AnalysisGroup], Sequence[str]]], split: Split, form: Form
) -> Figure:
    # A model keeps its line in every panel.
    labels = list(dict.fromkeys(group.label for groups, _ in panels.values() for group in groups))
    figure, grid = _grid(len(panels), legend_lines=len(labels))
    lines = {}
    for axes, (title, (groups, classes)) in zip(grid, panels.items(), strict=True):
        if not classes:
            raise UserError("nothing to draw: these models have no class in common")
        for group in groups:
            ks = group.first["k"]
            by_k = [[_mean(alpha_of(one, split, form, classes, k)) for one in group.analyses] for k in ks]
            lines[group.label] = draw_spread(axes, ks, by_k, labels.index(group.label))
        axes.set_xscale("log", base=2)
        axes.set_xticks([2**power for power in range(int(math.log2(max(ks))) + 1)])
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("k")
        if axes in grid[::_COLUMNS]:
            axes.set_ylabel(r"$\alpha_k$" + f", {form} features, {split} images")
        plain_text(axes.title, title)
        plain_axes(axes)
    draw_legend(figure, list(lines.values()), list(lines))
    return figure


def draw_information(
    analyses: Iterable[Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    form: Form = "unit",
    caption: str = "",
) -> None:
    """The information proxy over eta (the appendix's figure), one line for each number of classes."""
    measures = {
        r"$\frac{1}{C}\sum_c \sum_i \log\,\lambda_i^{(c)}$": lambda found: found["information"]["mean"]
    }
    _draw_over_eta(analyses, path, measures, split, form, caption)


def draw_overlap(
    analyses: Iterable[Analysis], path: str | Path, *, split: Split = "test", form: Form = "unit"
) -> None:
    """What grows when eta is too large: scatter within classes over that between, and nearest-mean errors."""
    analyses = list(analyses)
    measures: dict[str, Callable[[Measurement], float | None]] = {
        "scatter within / between classes": lambda found: found["overlap"]["scatter_ratio"],
        "nearest-mean error (%)": lambda found: found["overlap"]["nearest_mean_error"],
    }
    if any(measured(one, split, form)["overlap"]["seen_as_future"] is not None for one in analyses):
        measures |= {
            "seen images nearest to a future class (%)": lambda found: found["overlap"]["seen_as_future"],
            "future images nearest to a seen class (%)": lambda found: found["overlap"]["future_as_seen"],
        }
    _draw_over_eta(analyses, path, measures, split, form)


def _draw_over_eta(
    analyses: Iterable[Analysis],
    path: str | Path,
    measures: Mapping[str, Callable[[Measurement], float | None]],
    split: Split,
    form: Form,
    caption: str = "",
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
                values = [[value(measured(one, split, form)) for one in group.analyses] for group in ranked]
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


def draw_sphere(
    panels: Mapping[str, Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    future: bool = True,
    caption: str = "",
) -> None:
    """Three-dimensional unit features on the sphere, a panel for each model; `future`: classes to come, too.

    Each sphere is turned to show most of its points; those on the far side are hollow.
    """
    clouds = {}
    for title, analysis in panels.items():
        points = analysis["points"]
        if points is None:
            raise UserError(f"{title}: features have {analysis['feature_size']} dimensions, a sphere needs 3")
        shown = len(analysis["classes"]) if future else analysis["seen_classes"]
        clouds[title] = dict(zip(analysis["class_names"][:shown], points[split], strict=False))
    write_figure(path, lambda: _sphere_figure(clouds, split), caption)


def _sphere_figure(panels: Mapping[str, Mapping[str, list[list[float]]]], split: Split) -> Figure:
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.3 * columns, 2.5 * rows + 0.5), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    names = list(dict.fromkeys(name for clouds in panels.values() for name in clouds))
    handles = {}
    for axes, (title, clouds) in zip(grid, panels.items(), strict=False):
        _globe(axes)
        points = torch.tensor([point for cloud in clouds.values() for point in cloud], dtype=torch.float64)
        turned = facing(points).split([len(cloud) for cloud in clouds.values()])
        for name, cloud in zip(clouds, turned, strict=True):
            handles[name] = _draw_cloud(axes, cloud, names.index(name))
        plain_text(axes.title, title)
    for axes in grid:
        axes.set_axis_off()
    draw_legend(figure, list(handles.values()), list(handles), f"unit features, {split} images", ncols=4)
    return figure


def _draw_cloud(axes: Axes, cloud: torch.Tensor, index: int) -> Artist:
    """Points in front are filled, those behind hollow."""
    colour, near = COLOURS[index % len(COLOURS)], cloud[:, 2] >= 0
    marker: dict[str, Any] = {"s": 9, "marker": MARKERS[index % len(MARKERS)]}
    axes.scatter(
        *cloud[~near, :2].T,
        **marker,
        facecolors="none",
        edgecolors=colour,
        linewidths=0.5,
        alpha=0.5,
        zorder=2,
    )
    return axes.scatter(
        *cloud[near, :2].T, **marker, color=colour, edgecolors="white", linewidths=0.3, zorder=3
    )


def _globe(axes: Axes) -> None:
    """The outline and the near half of some circles of latitude and longitude, seen a little from above."""
    axes.set_aspect("equal")
    axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    around = torch.linspace(-math.pi, math.pi, 181, dtype=torch.float64)
    axes.plot(around.cos(), around.sin(), color="0.6", linewidth=0.7)
    tilt = math.radians(20)
    half = around / 2
    degrees = torch.arange(-180, 180, 30, dtype=torch.float64)
    circles = [
        *(
            (a.cos() * around.sin(), a.sin().expand(181), a.cos() * around.cos())
            for a in degrees[4:9].deg2rad()
        ),
        *((half.cos() * a.sin(), half.sin(), half.cos() * a.cos()) for a in degrees.deg2rad()),
    ]
    for x, up, near in circles:
        y, z = up * math.cos(tilt) - near * math.sin(tilt), up * math.sin(tilt) + near * math.cos(tilt)
        axes.plot(x.where(z >= 0, math.nan), y, color="0.88", linewidth=0.5, zorder=1)
