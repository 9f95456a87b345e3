"""PODNet's local similarity classifier (Douillard et al., ECCV 2020): several proxies a class."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets.heads import GrowingHead, Scores
from phasezero.nets.kmeans import kmeans


def local_similarity(features: Tensor, proxies: Tensor) -> Tensor:
    """As in the published code: features [n, d], proxies [C, K, d] -> class similarities [n, C].

    A proxy's similarity is minus the squared distance of unit vectors, 2 cos - 2; a class's is the mean of its
    proxies', weighted by their own softmax.
    """
    cosines = F.normalize(features, dim=1) @ F.normalize(proxies.flatten(0, 1), dim=1).T
    similarities = (2 * cosines - 2).reshape(-1, *proxies.shape[:2])
    return (similarities.softmax(2) * similarities).sum(2)


def imprint_proxies(
    old_proxies: Tensor, class_features: Sequence[Tensor], generator: torch.Generator
) -> Tensor:
    """Proxies from data: the k-means centres of each class's unit features, times the old proxies' mean length."""
    length: Tensor = torch.linalg.vector_norm(old_proxies, dim=2).mean()
    centres = [kmeans(F.normalize(f, dim=1), old_proxies.shape[1], generator) for f in class_features]
    return torch.stack(centres) * length


class LocalSimilarityHead(GrowingHead):
    """logits = eta * class similarity, with one learnable eta for all classes, first 1. Blocks are [c, K, d]."""

    def __init__(self, feature_size: int, *, proxies: int = 10) -> None:
        super().__init__(feature_size)
        self.proxies = proxies
        self.scale = nn.Parameter(torch.ones(()))

    def grow(self, classes: int, generator: torch.Generator) -> nn.Parameter:
        """Appends a block, Kaiming normal of linear gain: deviation 1/sqrt(d)."""
        drawn = torch.randn(classes, self.proxies, self.feature_size, generator=generator)
        block = nn.Parameter((drawn / math.sqrt(self.feature_size)).to(self.place))
        self.blocks.append(block)
        return block

    def forward(self, features: Tensor) -> Scores:
        similarities = local_similarity(features, self.weight())
        return Scores(self.scale * similarities, similarities)
