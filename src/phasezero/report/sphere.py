"""Three-dimensional unit features on the sphere (the paper's Fig. 1 and appendix D)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from phasezero.errors import UserError
from phasezero.records.analysis import Analysis, Split
from phasezero.report.looks import COLOURS, MARKERS
from phasezero.report.style import COLUMN, PAGE, place_legend, plain_text, write_figure


def draw_sphere(
    panels: Mapping[str, Analysis], path: str | Path, *, split: Split = "train", future: bool = True, caption: str = ""
) -> list[Path]:
    """Draw unit features on a sphere, with a panel for each model; `future` also shows later classes.

    Each sphere is turned to face its points. Points on the far side are hollow.
    """
    columns = min(len(panels), 4)
    width = COLUMN if columns < 3 else PAGE
    height = (width / columns + 0.2) * -(-len(panels) // columns)

    def make() -> Figure:
        figure = Figure(figsize=(width, height))
        grid = list(figure.subplots(-(-len(panels) // columns), columns, squeeze=False).flat)
        names: dict[str, str] = {}
        handles: dict[str, Artist] = {}
        for axes, (title, analysis) in zip(grid, panels.items(), strict=False):
            if analysis["points"] is None:
                raise UserError(f"{title}: features have {analysis['feature_size']} dimensions, a sphere needs 3")
            ids = analysis["classes"] if future else analysis["classes"][: analysis["seen_classes"]]
            names |= dict(zip(ids, analysis["class_names"], strict=False))
            clouds = dict(zip(ids, analysis["points"][split], strict=False))
            _draw_globe(axes)
            points = torch.tensor([point for cloud in clouds.values() for point in cloud], dtype=torch.float64)
            turned = facing(points).split([len(cloud) for cloud in clouds.values()])
            for key, cloud in zip(clouds, turned, strict=True):
                handles[key] = _draw_cloud(axes, cloud, list(names).index(key))
            plain_text(axes.title, title)
        for axes in grid:
            axes.set_axis_off()
        place_legend(figure, list(handles.values()), [names[key] for key in handles])
        return figure

    about = f"Unit features of {split} images. Hollow markers are on the far side of the sphere."
    return write_figure(path, make, f"{caption} {about}".lstrip())


def facing(points: Tensor) -> Tensor:
    """Turn unit vectors [n, 3] towards the viewer: (right, up, near), rotated but not mirrored.

    Their mean direction (or, if that is zero, the axis of least spread) is in the middle. Their widest spread across it
    is from left to right. Features are defined only up to a rotation, so nothing is lost.
    """

    def axes_of_spread(some: Tensor) -> Any:  # eigenvectors of the second moments, as columns by rising moment
        return torch.linalg.eigh(some.mT @ some).eigenvectors

    mean = points.mean(0)
    length = torch.linalg.vector_norm(mean)
    near = mean / length if length > 0.05 else axes_of_spread(points)[:, 0]
    right = axes_of_spread(points - (points @ near)[:, None] * near)[:, 2]
    # An axis has two directions; the longer tail goes to the right, on every machine.
    right = right if float((points @ right).pow(3).sum()) >= 0 else -right
    return points @ torch.stack([right, torch.linalg.cross(near, right), near], dim=1)


def _draw_cloud(axes: Axes, cloud: Tensor, index: int) -> Artist:
    """Draw filled points in front and hollow points behind."""
    colour, near = COLOURS[index % len(COLOURS)], cloud[:, 2] >= 0
    style: dict[str, Any] = {"s": 9, "marker": MARKERS[index % len(MARKERS)]}
    hollow = {**style, "facecolors": "none", "edgecolors": colour, "linewidths": 0.5, "alpha": 0.5, "zorder": 2}
    axes.scatter(*cloud[~near, :2].T, **hollow)
    return axes.scatter(*cloud[near, :2].T, **style, color=colour, edgecolors="white", linewidths=0.3, zorder=3)


def _draw_globe(axes: Axes) -> None:
    """Draw the outline and the near half of some circles of latitude and longitude, seen a little from above."""
    axes.set(aspect="equal", xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
    around = torch.linspace(-math.pi, math.pi, 181, dtype=torch.float64)
    axes.plot(around.cos(), around.sin(), color="0.6", linewidth=0.7)
    tilt, half = math.radians(20), around / 2
    degrees = torch.arange(-180, 180, 30, dtype=torch.float64)
    circles = [
        *((a.cos() * around.sin(), a.sin().expand(181), a.cos() * around.cos()) for a in degrees[4:9].deg2rad()),
        *((half.cos() * a.sin(), half.sin(), half.cos() * a.cos()) for a in degrees.deg2rad()),
    ]
    for x, up, near in circles:
        y, z = up * math.cos(tilt) - near * math.sin(tilt), up * math.sin(tilt) + near * math.cos(tilt)
        axes.plot(x.where(z >= 0, math.nan), y, color="0.88", linewidth=0.5, zorder=1)
