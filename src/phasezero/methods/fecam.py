"""FeCAM on a frozen phase 0 (Goswami et al., NeurIPS 2023): Mahalanobis distance with one covariance per class.

Features pass Tukey's power t(f) = sign(f) |f|^beta. Class k has the mean m_k and the covariance S_k of t(f), shrunk to

    S'_k = S_k + g V1 I + g V2 (11' - I)

with the means V1 and V2 of the diagonal and the other entries of S_k. C_k is S'_k scaled to a correlation matrix. For
unit vectors x = t(f) / |t(f)| and u_k = m_k / |m_k| the score is

    -(x - u_k)' C_k^-1 (x - u_k) = -x' C_k^-1 x + 2 x' C_k^-1 u_k - u_k' C_k^-1 u_k,

which is linear in x and the products x_i x_j, i <= j. The sums of t(f) and of its products are all that is kept.

Differences from the authors' code: features here are signed, as the last ReLU is removed. The mean is that of t(f),
not t of the mean of f. Covariances are shrunk once. Twice by 1, as there, is once by 3. Phase 0 has the
same classifier as later phases.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.methods.base import MethodOptions, register_method
from phasezero.methods.frozen import SUMS, Frozen, FrozenHead
from phasezero.nets import GrowingHead
from phasezero.validation import ABOVE_ZERO, option

AT_ONCE = 64  # classes whose covariances are in memory at once
LEAST_VARIANCE = 1e-12  # a class with a single image has the identity as correlation matrix


def correlations(covariances: Tensor, shrinkage: float) -> Tensor:
    """Return covariances [C, d, d], shrunk and scaled to a diagonal of ones.

    >>> import torch
    >>> from phasezero.methods.fecam import correlations
    >>> correlations(torch.tensor([[[2.0, 0.5], [0.5, 2.0]]]), shrinkage=1.0)
    tensor([[[1.0000, 0.2500],
             [0.2500, 1.0000]]])
    """
    size = covariances.shape[-1]
    eye = torch.eye(size, dtype=covariances.dtype, device=covariances.device)
    trace = covariances.diagonal(dim1=1, dim2=2).sum(1)
    rest = (covariances.sum((1, 2)) - trace) / max(size * (size - 1), 1)
    target = (trace / size)[:, None, None] * eye + rest[:, None, None] * (1 - eye)
    shrunk = covariances + shrinkage * target + LEAST_VARIANCE * eye
    deviations = shrunk.diagonal(dim1=1, dim2=2).sqrt()
    return shrunk / (deviations[:, :, None] * deviations[:, None, :])


class CovarianceHead(FrozenHead):
    """A classifier that is linear in features and their products."""

    first: Tensor
    second: Tensor

    def __init__(self, feature_size: int, power: float, shrinkage: float) -> None:
        super().__init__(feature_size, feature_size + feature_size * (feature_size + 1) // 2)
        self.power, self.shrinkage = power, shrinkage
        first, second = torch.triu_indices(feature_size, feature_size)
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)

    def transform(self, features: Tensor) -> Tensor:
        return features.sign() * features.abs() ** self.power

    def add(self, position: int, features: Tensor) -> None:
        transformed = self.transform(features.to(SUMS))
        products = (transformed.T @ transformed)[self.first, self.second]
        self.class_counts[position] += len(features)
        self.feature_sums[position] += torch.cat([transformed.sum(0), products])

    def solve(self) -> tuple[Tensor, Tensor]:
        parts = zip(self.class_counts.split(AT_ONCE), self.feature_sums.split(AT_ONCE), strict=True)
        weights, offsets = zip(*(self.solve_classes(counts, sums) for counts, sums in parts), strict=True)
        return torch.cat(weights), torch.cat(offsets)

    def solve_classes(self, counts: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights and offsets of some classes. They do not depend on other classes."""
        total, products = sums.split([self.feature_size, self.width - self.feature_size], dim=1)
        means = total / counts.clamp_min(1)[:, None]
        scatter = products.new_zeros(len(sums), self.feature_size, self.feature_size)
        scatter[:, self.first, self.second] = scatter[:, self.second, self.first] = products
        scatter -= total[:, :, None] * means[:, None, :]
        inverse = torch.linalg.inv(correlations(scatter / (counts - 1).clamp_min(1)[:, None, None], self.shrinkage))
        unit = F.normalize(means, dim=1)
        linear = (inverse @ unit[:, :, None]).squeeze(2)
        twice = 2 - self.first.eq(self.second).to(SUMS)  # x_i x_j also replaces x_j x_i
        return torch.cat([2 * linear, -twice * inverse[:, self.first, self.second]], 1), -(linear * unit).sum(1)

    def embed(self, features: Tensor) -> Tensor:
        """Return what is scored: x and its products. The sums are those of t(f), before it has unit length."""
        unit = F.normalize(self.transform(features), dim=1)
        return torch.cat([unit, unit[:, self.first] * unit[:, self.second]], 1)


@register_method("fecam", "FeCAM (NeurIPS 2023) on a frozen phase 0, no exemplars")
class FeCam(Frozen):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "fecam"
        power: float = option(0.5, least=ABOVE_ZERO, most=1, later=True)  # exponent of features: the paper's beta
        shrinkage: float = option(1.0, least=ABOVE_ZERO, later=True)  # of covariances, for both terms: the paper's g

    label = "FeCAM"
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return CovarianceHead(feature_size, self.options.power, self.options.shrinkage)
