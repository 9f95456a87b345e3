"""k-means in a few lines: several starts at once, the best one wins, the same on every run."""

from __future__ import annotations

import torch
from torch import Tensor


def kmeans(
    points: Tensor, clusters: int, generator: torch.Generator, *, starts: int = 10, iterations: int = 100
) -> Tensor:
    """Centres [clusters, d] of points [n, d]: Lloyd's iterations from k-means++ starts, in float64.

    With fewer points than clusters some centres coincide. The random numbers are drawn on the CPU.
    """
    x = points.double()
    draws = torch.rand(clusters, starts, 1, generator=generator, dtype=torch.float64).to(x.device)
    centres = _spread(x, draws)
    assigned = torch.full((starts, len(x)), -1, device=x.device)
    for _ in range(iterations):
        before, assigned = assigned, _square_distances(x, centres).argmin(2)
        if torch.equal(before, assigned):
            break
        members = torch.nn.functional.one_hot(assigned, clusters).to(x)  # [starts, n, clusters]
        sizes = members.sum(1)[..., None]
        # A cluster that lost all its points stays where it is.
        centres = torch.where(sizes > 0, members.mT @ x / sizes.clamp_min(1), centres)
    spread = _square_distances(x, centres).amin(2).sum(1)
    return centres[int(spread.argmin())].to(points.dtype)


def _spread(x: Tensor, draws: Tensor) -> Tensor:
    """k-means++: each centre is a point drawn by its squared distance from those before. [starts, clusters, d]"""
    picks = [x[(draws[0, :, 0] * len(x)).long()]]
    nearest = torch.full((draws.shape[1], len(x)), torch.inf, device=x.device, dtype=x.dtype)
    for draw in draws[1:]:
        nearest = torch.minimum(nearest, _square_distances(x, picks[-1][:, None])[..., 0])
        shares = nearest.cumsum(1)
        pick = torch.searchsorted(shares, draw * shares[:, -1:], right=True)[:, 0]
        picks.append(x[pick.clamp_max(len(x) - 1)])
    return torch.stack(picks, 1)


def _square_distances(x: Tensor, centres: Tensor) -> Tensor:
    """[n, d] and [starts, k, d] -> [starts, n, k]"""
    squares = x.square().sum(1)[:, None] + centres.square().sum(2)[:, None]
    return (squares - 2 * x @ centres.mT).clamp_min(0)
