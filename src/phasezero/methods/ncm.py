"""Nearest class mean on a frozen phase 0. Features and the means of classes are scaled to unit length.

It is iCaRL's classifier (Rebuffi et al., CVPR 2017) with the means of all images instead of exemplars.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.methods.base import MethodOptions, register_method
from phasezero.methods.frozen import Frozen, FrozenHead
from phasezero.nets import GrowingHead


class NearestMeanHead(FrozenHead):
    def embed(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=1)

    def solve(self) -> tuple[Tensor, Tensor]:
        # The nearest of several unit vectors has the largest product.
        return F.normalize(self.feature_sums, dim=1), torch.zeros_like(self.class_counts)


@register_method("ncm", "nearest class mean on a frozen phase 0, no exemplars")
class NearestClassMean(Frozen):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "ncm"

    label = "NCM"
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return NearestMeanHead(feature_size)
