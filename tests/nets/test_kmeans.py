"""k-means and the proxies that it sets, against loops over single numbers and all partitions."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from phasezero.nets import imprint_proxies
from phasezero.nets.lsc import kmeans
from slow import normal, rng


def spread(points: Tensor, centres: Tensor) -> float:
    """The sum over points of the squared distance to the nearest centre, in loops."""
    return sum(
        min(sum((a - b) ** 2 for a, b in zip(p, c, strict=True)) for c in centres.tolist()) for p in points.tolist()
    )


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_finds_the_best_of_all_partitions(seed: int) -> None:
    points = normal(7, 2, seed=seed)
    best = math.inf
    for labels in itertools.product(range(3), repeat=len(points)):
        if set(labels) == {0, 1, 2} and labels[0] == 0:
            chosen = torch.tensor(labels)
            centres = torch.stack([points[chosen == k].mean(0) for k in range(3)])
            best = min(best, float((points - centres[chosen]).square().sum()))
    centres = kmeans(points, 3, rng(seed), starts=50)
    assert spread(points, centres) == pytest.approx(best, rel=1e-12)


def test_kmeans_centres_are_the_means_of_their_points() -> None:
    points = normal(60, 5)
    centres = kmeans(points, 6, rng())
    assert torch.equal(centres, kmeans(points, 6, rng()))
    nearest = [min(range(6), key=lambda k: float((p - centres[k]).square().sum())) for p in points]
    for k in range(6):
        own = points[torch.tensor([label == k for label in nearest])]
        assert torch.allclose(own.mean(0), centres[k], rtol=0, atol=1e-12)


@pytest.mark.parametrize("points", [normal(1, 4), normal(2, 4), normal(3, 4), torch.ones(20, 4)])
def test_kmeans_with_fewer_points_than_clusters(points: Tensor) -> None:
    centres = kmeans(points, 10, rng())
    assert centres.shape == (10, 4)
    assert centres.dtype == points.dtype
    assert spread(points, centres) == pytest.approx(0, abs=1e-12)  # every point is a centre
    assert spread(centres, points) == pytest.approx(0, abs=1e-12)  # and every centre a point


def test_imprinting() -> None:
    old = normal(4, 3, 5) * 2
    features = [normal(20, 5, seed=6) * 30, normal(2, 5, seed=7)]
    found = imprint_proxies(old, features, rng())
    lengths = [math.sqrt(sum(x * x for x in proxy)) for proxies in old.tolist() for proxy in proxies]
    generator = rng()
    for proxies, images in zip(found, features, strict=True):
        units = torch.stack([image / math.sqrt(sum(x * x for x in image.tolist())) for image in images])
        centres = kmeans(units, 3, generator)
        assert torch.allclose(proxies, centres * sum(lengths) / len(lengths), rtol=0, atol=1e-12)
