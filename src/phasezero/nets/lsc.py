"""PODNet's local similarity classifier (Douillard et al., ECCV 2020): several proxies per class, set by k-means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets.heads import GrowingHead, Scores


def local_similarity(features: Tensor, proxies: Tensor) -> Tensor:
    """Return class similarities [n, C] of features [n, d] to proxies [C, K, d], as in the published code.

    The similarity to a proxy is minus the squared distance of unit vectors, 2 cos - 2. The similarity to a class is the
    mean over its proxies, weighted by their softmax.
    """
    cosines = F.normalize(features, dim=1) @ F.normalize(proxies.flatten(0, 1), dim=1).T
    similarities = (2 * cosines - 2).reshape(-1, *proxies.shape[:2])
    return (similarities.softmax(2) * similarities).sum(2)


def imprint_proxies(old_proxies: Tensor, class_features: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    """Return proxies from data: k-means centres of each class's unit features, times the old proxies' mean length."""
    length: Tensor = torch.linalg.vector_norm(old_proxies, dim=2).mean()
    centres = [kmeans(F.normalize(f, dim=1), old_proxies.shape[1], generator) for f in class_features]
    return torch.stack(centres) * length


class LocalSimilarityHead(GrowingHead):
    """logits = eta * class similarity, with a learnable eta for all classes, initially 1. Blocks are [c, K, d]."""

    def __init__(self, feature_size: int, *, proxies: int = 10) -> None:
        super().__init__(feature_size)
        self.proxies = proxies
        self.scale = nn.Parameter(torch.ones(()))

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Append a block, Kaiming normal of linear gain: deviation 1/sqrt(d)."""
        drawn = torch.randn(classes, self.proxies, self.feature_size, generator=generator)
        self.blocks.append(nn.Parameter((drawn / math.sqrt(self.feature_size)).to(self.place)))

    def forward(self, features: Tensor) -> Scores:
        similarities = local_similarity(features, self.weight())
        return Scores(self.scale * similarities, similarities)


def kmeans(points: Tensor, clusters: int, generator: torch.Generator, starts: int = 10) -> Tensor:
    """Return centres [clusters, d] of points [n, d]: the best of several k-means++ starts, in float64.

    With fewer points than clusters some centres coincide. The random numbers are drawn on the CPU.
    """
    x = points.double()
    draws = torch.rand(clusters, starts, 1, generator=generator, dtype=torch.float64).to(x.device)
    centres = _spread(x, draws)
    assigned = torch.full((starts, len(x)), -1, device=x.device)
    for _ in range(100):
        before, assigned = assigned, _square_distances(x, centres).argmin(2)
        if torch.equal(before, assigned):
            break
        members = F.one_hot(assigned, clusters).to(x)  # [starts, n, clusters]
        sizes = members.sum(1)[..., None]
        # A cluster that lost all its points stays where it is.
        centres = torch.where(sizes > 0, members.mT @ x / sizes.clamp_min(1), centres)
    spread = _square_distances(x, centres).amin(2).sum(1)
    return centres[int(spread.argmin())].to(points.dtype)


def _spread(x: Tensor, draws: Tensor) -> Tensor:
    """Return k-means++ starts [starts, clusters, d]: points drawn by squared distance from the earlier points."""
    picks = [x[(draws[0, :, 0] * len(x)).long()]]
    nearest = torch.full((draws.shape[1], len(x)), torch.inf, device=x.device, dtype=x.dtype)
    for draw in draws[1:]:
        nearest = torch.minimum(nearest, _square_distances(x, picks[-1][:, None])[..., 0])
        shares = nearest.cumsum(1)
        pick = torch.searchsorted(shares, draw * shares[:, -1:], right=True)[:, 0]
        picks.append(x[pick.clamp_max(len(x) - 1)])
    return torch.stack(picks, 1)


def _square_distances(x: Tensor, centres: Tensor) -> Tensor:
    """Return [starts, n, k] for points [n, d] and centres [starts, k, d]."""
    squares = x.square().sum(1)[:, None] + centres.square().sum(2)[:, None]
    return (squares - 2 * x @ centres.mT).clamp_min(0)
