"""The sphere (the paper's Fig. 1 and appendix D): two phases of two classes, three-dimensional unit features.

The paper names neither the classes nor the epochs nor the coefficients. Here: the first four of the class order,
and otherwise the data set's usual training and mimic's usual weight, through the ordinary trainer. CwD as the
published code has it grows with the number of samples of a class in a batch, so that its usual coefficient is far
too large where a batch has two classes instead of fifty; `CWD_WEIGHT` puts about the same pressure on a correlation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from phasezero.analysis.record import Analysis, Split
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.presets import build_config, standard_name
from phasezero.results.style import COLOURS, MARKERS, draw_legend, plain_text, write_figure

CLASSES_A_PHASE = 2
NETWORK = "alexnet-3d"

# The code's form is about (C / N) (N / C - 1)^2 r^2 for batches of N images of C classes and correlations r:
# 0.95 r^2 for N = 128 and C = 50, but 62 r^2 for C = 2. The usual 0.5 over the ratio of these:
CWD_WEIGHT = 0.0077

_TWO_PHASES = (CLASSES_A_PHASE, CLASSES_A_PHASE)
MODELS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "naive": ("lucir", _TWO_PHASES),
    "oracle": ("lucir", (sum(_TWO_PHASES),)),
    "mimicking the oracle": ("lucir+mimic", _TWO_PHASES),
    "CwD": (f"lucir+cwd:{CWD_WEIGHT}", _TWO_PHASES),
}
"""By the title of its panel: a model's method with its phase-0 term, and the classes of its phases."""


def sphere_configs(data: str = "cifar100", *, seed: int = 0) -> dict[str, RunConfig]:
    """Those of `MODELS`, by the titles of their panels."""

    def config(run: str, phase_sizes: tuple[int, ...]) -> RunConfig:
        method, *initial = run.split("+")
        plain = build_config(method, data, initial=initial, base=CLASSES_A_PHASE, step=CLASSES_A_PHASE)
        chosen = plain.override({"network.name": NETWORK, "protocol.phase_sizes": list(phase_sizes)})
        return replace(chosen, seed=seed, name=f"sphere/{standard_name(chosen)}")

    return {title: config(*model) for title, model in MODELS.items()}


def facing(points: Tensor) -> Tensor:
    """Unit vectors [n, 3] turned towards the viewer: (right, up, near), rotated but not mirrored.

    Their mean direction is in the middle, their widest spread across it lies from left to right. (Without a mean
    direction, the view is along the one in which they spread least.) Features are defined up to a rotation only,
    so nothing is lost.
    """
    mean = points.mean(0)
    length = torch.linalg.vector_norm(mean)
    near = mean / length if length > 0.05 else _axes_of_spread(points)[:, 0]
    right = _axes_of_spread(points - (points @ near)[:, None] * near)[:, 2]
    # An axis has two directions; the longer tail goes to the right, on every machine.
    right = right if float((points @ right).pow(3).sum()) >= 0 else -right
    return points @ torch.stack([right, torch.linalg.cross(near, right), near], dim=1)


def _axes_of_spread(points: Tensor) -> Tensor:
    """Eigenvectors of the second moments, as columns by rising moment."""
    axes: Tensor = torch.linalg.eigh(points.mT @ points).eigenvectors
    return axes


def draw_sphere(
    panels: Mapping[str, Analysis],
    path: str | Path,
    *,
    split: Split = "train",
    future: bool = True,
    caption: str = "",
) -> None:
    """Three-dimensional unit features on the sphere, a panel for each model; `future`: classes to come, too.

    Each sphere is turned to face its points; those on the far side are hollow.
    """
    clouds: dict[str, dict[str, list[list[float]]]] = {}
    names: dict[str, str] = {}
    for title, analysis in panels.items():
        points = analysis["points"]
        if points is None:
            raise UserError(f"{title}: features have {analysis['feature_size']} dimensions, a sphere needs 3")
        shown = len(analysis["classes"]) if future else analysis["seen_classes"]
        ids = analysis["classes"][:shown]
        clouds[title] = dict(zip(ids, points[split], strict=False))
        names |= dict(zip(ids, analysis["class_names"], strict=False))
    write_figure(path, lambda: _sphere_figure(clouds, names, split), caption)


def _sphere_figure(
    panels: Mapping[str, Mapping[str, list[list[float]]]], names: Mapping[str, str], split: Split
) -> Figure:
    """Of each panel the points by the ids of their classes, which have these names."""
    columns = min(len(panels), 4)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(2.3 * columns, 2.5 * rows + 0.5), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    ids, handles = list(names), {}
    for axes, (title, clouds) in zip(grid, panels.items(), strict=False):
        _globe(axes)
        points = torch.tensor([point for cloud in clouds.values() for point in cloud], dtype=torch.float64)
        turned = facing(points).split([len(cloud) for cloud in clouds.values()])
        for one, cloud in zip(clouds, turned, strict=True):
            handles[one] = _draw_cloud(axes, cloud, ids.index(one))
        plain_text(axes.title, title)
    for axes in grid:
        axes.set_axis_off()
    title = f"unit features, {split} images; hollow: on the far side of the sphere"
    draw_legend(figure, list(handles.values()), [names[one] for one in handles], title, ncols=4)
    return figure


def _draw_cloud(axes: Axes, cloud: Tensor, index: int) -> Artist:
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
