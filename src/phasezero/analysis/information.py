"""The information proxy (the paper's appendix B): (1/C) sum over classes of sum_i log lambda_i^(c).

Up to a factor and a constant it is I(X; Z | Y) if each class's features are Gaussian. A class of n images has at most
n - 1 eigenvalues above zero, and CIFAR100 has 500 images of a class for 512 features, so that the paper's sum is minus
infinity there. The paper proposes no remedy. Here eigenvalues below a floor are raised to it and counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

FLOOR = 1e-12
"""The default floor, in units of the features' variance. It is the same for all classes and models, so each raised
eigenvalue adds the same constant. Rounding of float32 features near 1 makes eigenvalues of about 1e-15."""


@dataclass(frozen=True)
class InformationProxy:
    by_class: Tensor
    """sum_i log lambda_i of each class, [C]."""
    floor: float
    floored: Tensor
    """The number of eigenvalues of each class that were raised to the floor, [C]."""
    unavoidable: Tensor
    """How many of these must be zero because the class has few images: d - (n_c - 1) where positive, [C]."""


def information_proxy(eigenvalues: Tensor, counts: Tensor, floor: float = FLOOR) -> InformationProxy:
    """Return the proxy from `eigenvalues` [C, d] of the covariances of classes with `counts` [C] images.

    >>> import torch
    >>> from phasezero import information_proxy
    >>> information_proxy(torch.tensor([[2.0, 0.5], [1.0, 0.0]]), torch.tensor([9, 2]), floor=1e-3).by_class
    tensor([ 0.0000, -6.9078])
    """
    if not 0 < floor < math.inf:
        raise ValueError(f"the floor must be above zero and finite, got {floor}")
    return InformationProxy(
        by_class=eigenvalues.clamp_min(floor).log().sum(1),
        floor=floor,
        floored=(eigenvalues < floor).sum(1),
        unavoidable=(eigenvalues.shape[1] - (counts - 1)).clamp_min(0),
    )
