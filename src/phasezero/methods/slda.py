"""Streaming LDA on a frozen phase 0 (Hayes and Kanan, CVPR Workshops 2020): class means and one shared covariance.

Class k scores w_k . f + b_k with w_k = L mu_k, b_k = -mu_k . w_k / 2 and L = ((1 - e) S + e I)^-1. S is the covariance
of features within classes. It is computed from the sum of f f' over all images and the class sums, so it is exact after
any sequence of phases. The original updates an estimate image by image.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phasezero.methods.base import MethodOptions, register_method
from phasezero.methods.frozen import SUMS, Frozen, FrozenHead
from phasezero.nets import GrowingHead
from phasezero.validation import ABOVE_ZERO, option


class LdaHead(FrozenHead):
    products: Tensor

    def __init__(self, feature_size: int, shrinkage: float) -> None:
        super().__init__(feature_size)
        self.shrinkage = shrinkage
        self.keep("products", torch.zeros(feature_size, feature_size, dtype=SUMS))

    def add_products(self, embedded: Tensor) -> None:
        self.products += embedded.T @ embedded

    def solve(self) -> tuple[Tensor, Tensor]:
        counts = self.class_counts.clamp_min(1)[:, None]
        means = self.feature_sums / counts
        within = (self.products - means.T @ (counts * means)) / self.class_counts.sum().clamp_min(1)
        eye = torch.eye(self.feature_size, dtype=SUMS, device=within.device)
        weights = torch.linalg.solve((1 - self.shrinkage) * within + self.shrinkage * eye, means.T).T
        return weights, -(weights * means).sum(1) / 2


@register_method("slda", "streaming LDA on a frozen phase 0, no exemplars")
class StreamingLda(Frozen):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "slda"
        # Of the covariance: e in the authors' code.
        shrinkage: float = option(1e-4, least=ABOVE_ZERO, most=1, later=True)

    label = "SLDA"
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return LdaHead(feature_size, self.options.shrinkage)
