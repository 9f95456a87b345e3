"""The sphere (the paper's Fig. 1 and appendix D): two phases of two classes, three-dimensional unit features.

The paper names neither the classes nor the epochs nor the coefficients. Here: the first four of the class order,
and otherwise the data set's usual training and mimic's usual weight, through the ordinary trainer. CwD as the
published code has it grows with the number of samples of a class in a batch, so that its usual coefficient is far
too large where a batch has two classes instead of fifty; `CWD_WEIGHT` puts about the same pressure on a correlation.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.presets import build_config, standard_name

CLASSES_A_PHASE = 2

# The code's form is about (C / N) (N / C - 1)^2 r^2 for batches of N images of C classes and correlations r:
# 0.95 r^2 for N = 128 and C = 50, but 62 r^2 for C = 2. The usual 0.5 over the ratio of these:
CWD_WEIGHT = 0.0077


def sphere_configs(data: str = "cifar100", *, seed: int = 0) -> dict[str, RunConfig]:
    """By the title of its panel: naive, oracle (all four classes at once), mimicking it, and CwD."""

    def config(phase_sizes: tuple[int, ...], *initial: str) -> RunConfig:
        plain = build_config("lucir", data, initial=initial, base=CLASSES_A_PHASE, step=CLASSES_A_PHASE)
        chosen = plain.override({"network.name": "alexnet-3d", "protocol.phase_sizes": list(phase_sizes)})
        return replace(chosen, seed=seed, name=f"sphere/{standard_name(chosen)}")

    two_phases = (CLASSES_A_PHASE, CLASSES_A_PHASE)
    return {
        "naive": config(two_phases),
        "oracle": config((sum(two_phases),)),
        "mimicking the oracle": config(two_phases, "mimic"),
        "CwD": config(two_phases, f"cwd:{CWD_WEIGHT}"),
    }


def facing(points: Tensor) -> Tensor:
    """Unit vectors [n, 3] turned so that the picture plane (the first two coordinates) shows most of their spread.

    The third coordinate points to the viewer, and more of the points are in front than behind. Features are
    defined up to a rotation only, so nothing is lost.
    """
    moments = points.mT @ points
    axes = torch.linalg.eigh(moments).eigenvectors.flip(1)  # by falling second moment
    turned: Tensor = points @ axes
    # eigh leaves each axis's sign open; fixed here, so that a picture is the same on every machine.
    signs = torch.where(turned.sum(0) < 0, -1.0, 1.0).to(turned)
    return torch.mul(turned, signs)
