"""DeCov ("DC" in the paper's appendix): Cogswell et al., "Reducing Overfitting in Deep Networks by
Decorrelating Representations", ICLR 2016. Covariances between features, over all samples whatever their class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.initial.base import TERMS, Term, TermOptions
from phasezero.methods.base import Batch


def batch_covariance(features: Tensor, normalize: bool) -> Tensor:
    """Eq. 1: the d x d covariance of a batch [N, d], divided by N. Half precision is computed in float32."""
    with torch.autocast(features.device.type, enabled=False):
        x = features.to(torch.promote_types(features.dtype, torch.float32))
        if normalize:
            x = F.normalize(x, dim=1)
        samples = max(len(x), 1)
        centred = x - x.sum(0) / samples
        return centred.T @ centred / samples


def decov(features: Tensor, *, normalize: bool = True) -> Tensor:
    """Eq. 2: half the squares of a batch's covariances, without the variances: features [N, d] -> a scalar.

    `normalize` first scales each feature vector to unit length, as CwD has it; DeCov's paper does not.
    """
    covariance = batch_covariance(features, normalize)
    return (covariance - covariance.diagonal().diag()).square().sum() / 2


@TERMS.register("decov")
class DeCov(Term):
    @dataclass(frozen=True)
    class Options(TermOptions):
        name: str = "decov"
        # Ours: the paper's coefficient is unknown. Variances of unit 512-d features are near 1/512 and the loss
        # far below 1, so a useful weight is orders of magnitude above CwD's eta.
        weight: float = 100.0
        normalize: bool = True  # unit features, so that it compares with CwD; what the paper did is unknown

    # Ours: on these 64-d features 100 costs phase 0 four points, 10 nothing.
    published = {"glyphs": {"weight": 10.0}}
    options: Options

    def __call__(self, batch: Batch) -> Tensor:
        return decov(batch.output.features, normalize=self.options.normalize)
