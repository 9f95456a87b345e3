"""DeCov ("DC" in the CwD paper's appendix): Reducing Overfitting in Deep Networks by Decorrelating Representations
(Cogswell et al., ICLR 2016). It reduces covariances between features, over all samples regardless of their class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.initial.base import StrategyOptions, Term, register_initial
from phasezero.methods.stage import Batch
from phasezero.validation import WEIGHT, option


def batch_covariance(features: Tensor, normalize: bool) -> Tensor:
    """Return Eq. 1: the d x d covariance of features [N, d], divided by N. Half precision is computed in float32."""
    with torch.autocast(features.device.type, enabled=False):
        x = features.to(torch.promote_types(features.dtype, torch.float32))
        if normalize:
            x = F.normalize(x, dim=1)
        samples = max(len(x), 1)
        centred = x - x.sum(0) / samples
        return centred.T @ centred / samples


def decov(features: Tensor, *, normalize: bool = True) -> Tensor:
    """Return Eq. 2: half the sum of squared covariances of features [N, d], without the variances.

    `normalize` first scales each feature vector to unit length, as CwD does. DeCov's paper does not.

    >>> import torch
    >>> from phasezero import decov
    >>> decov(torch.tensor([[0.0, 0.0], [2.0, 2.0]]), normalize=False)
    tensor(1.)
    """
    covariance = batch_covariance(features, normalize)
    return (covariance - covariance.diagonal().diag()).square().sum() / 2


@register_initial("decov", "DeCov (ICLR 2016): covariances over all samples")
class DeCov(Term):
    label, paper_suffix = "DC", "+dc"

    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "decov"
        # Coefficient, ours: the CwD paper's is unknown. Variances of unit 512-d features are near 1/512 and the loss
        # is far below 1, so a useful weight is orders of magnitude above CwD's eta.
        weight: float = option(100.0, **WEIGHT)
        normalize: bool = True  # unit features first, as CwD does; what the CwD paper did is unknown

    # Ours: on these 64-d features a weight of 100 costs phase 0 four points, 10 nothing.
    published = {"glyphs": {"weight": 10.0}}
    options: Options

    def __call__(self, batch: Batch) -> Tensor:
        return decov(batch.output.features, normalize=self.options.normalize)
