"""The local similarity classifier, its k-means and imprinting, and BiC's head, against loops over single numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.nets import BiasCorrectedHead, LocalSimilarityHead, imprint_proxies
from phasezero.nets.kmeans import kmeans
from phasezero.nets.lsc import local_similarity


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- similarities -----------------------------------------------------------------------------------------


def slow_similarity(feature: Tensor, proxies: Tensor) -> Tensor:
    """Of one image and one class: squared distances of unit vectors, one by one."""
    length = sum(x * x for x in feature) ** 0.5
    values = []
    for proxy in proxies:
        proxy_length = sum(x * x for x in proxy) ** 0.5
        values.append(-sum((a / length - b / proxy_length) ** 2 for a, b in zip(feature, proxy, strict=True)))
    total = sum(value.exp() for value in values)
    return sum(value.exp() / total * value for value in values)


@pytest.mark.parametrize("proxies", [1, 4])
def test_local_similarity(proxies: int) -> None:
    features, weights = normal(5, 6).requires_grad_(), normal(3, proxies, 6, seed=1).requires_grad_()
    found = local_similarity(features, weights)
    expected = torch.stack([torch.stack([slow_similarity(f, w) for w in weights]) for f in features])
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    upstream = normal(5, 3, seed=2)
    gradients = torch.autograd.grad((found * upstream).sum(), [features, weights])
    wanted = torch.autograd.grad((expected * upstream).sum(), [features, weights])
    for one, other in zip(gradients, wanted, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10)


def test_similarities_lie_between_minus_4_and_0_and_see_directions_only() -> None:
    features, weights = normal(50, 3), normal(7, 10, 3, seed=1)
    found = local_similarity(features, weights)
    assert found.max() <= 0
    assert found.min() >= -4
    assert torch.allclose(found, local_similarity(features * 7, weights / 3))
    same = torch.ones(1, 10, 3, dtype=torch.float64)
    assert local_similarity(same[0, :1], same).item() == pytest.approx(0, abs=1e-12)
    assert local_similarity(-same[0, :1], same).item() == pytest.approx(-4, abs=1e-12)


def test_the_head_scales_similarities() -> None:
    head = LocalSimilarityHead(6, proxies=4)
    head.grow(3, rng(0))
    head.grow(2, rng(1))
    head.double().scale.data.fill_(2.5)
    features = normal(5, 6)
    scores = head(features)
    weights = torch.cat([head.blocks[0], head.blocks[1]])
    expected = torch.stack([torch.stack([slow_similarity(f, w) for w in weights]) for f in features])
    assert torch.allclose(scores.similarities, expected, rtol=0, atol=1e-12)
    assert torch.allclose(scores.logits, 2.5 * expected, rtol=0, atol=1e-12)


def test_the_head_grows() -> None:
    head = LocalSimilarityHead(64)
    head.grow(50, rng(0))
    assert head.scale.item() == 1
    deviation = head.blocks[0].std().item()  # Kaiming, linear gain
    assert deviation == pytest.approx(1 / 8, rel=6 / math.sqrt(2 * 50 * 10 * 64))
    before = head.blocks[0].detach().clone()
    head.grow(1, rng(1))
    head.freeze_old()
    assert head.classes == 51
    assert [tuple(block.shape) for block in head.blocks] == [(50, 10, 64), (1, 10, 64)]
    assert sum(parameter.numel() for parameter in head.parameters()) == 51 * 10 * 64 + 1
    assert torch.equal(head.blocks[0], before)
    assert [block.requires_grad for block in head.blocks] == [False, True]
    again = LocalSimilarityHead(64)
    again.grow(50, rng(0))
    assert torch.equal(again.blocks[0], before)


# ---- k-means ----------------------------------------------------------------------------------------------


def spread(points: Tensor, centres: Tensor) -> float:
    """The sum over points of the squared distance to the nearest centre, in loops."""
    return sum(
        min(sum((a - b) ** 2 for a, b in zip(p, c, strict=True)) for c in centres.tolist())
        for p in points.tolist()
    )


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_finds_the_best_of_all_partitions(seed: int) -> None:
    points = normal(7, 2, seed=seed)
    best = math.inf
    for labels in itertools.product(range(3), repeat=len(points)):
        if set(labels) == {0, 1, 2}:
            chosen = torch.tensor(labels)
            centres = torch.stack([points[chosen == k].mean(0) for k in range(3)])
            best = min(best, float((points - centres[chosen]).square().sum()))
    centres = kmeans(points, 3, rng(seed), starts=50)
    assert spread(points, centres) == pytest.approx(best, rel=1e-12)


def test_kmeans_centres_are_the_means_of_their_points() -> None:
    points = normal(60, 5)
    centres = kmeans(points, 6, rng())
    nearest = [min(range(6), key=lambda k: float((p - centres[k]).square().sum())) for p in points]
    for k in range(6):
        own = points[torch.tensor([label == k for label in nearest])]
        assert torch.allclose(own.mean(0), centres[k], rtol=0, atol=1e-12)


def test_kmeans_finds_clear_clusters_and_is_deterministic() -> None:
    middles = 10 * torch.eye(4, dtype=torch.float64)
    points = (middles[:, None] + 0.1 * normal(4, 25, 4)).reshape(100, 4)
    centres = kmeans(points, 4, rng(3))
    assert torch.equal(centres, kmeans(points, 4, rng(3)))
    order = centres.argmax(1).argsort()
    expected = points.reshape(4, 25, 4).mean(1)
    assert torch.allclose(centres[order], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_kmeans_with_fewer_points_than_clusters(count: int) -> None:
    points = normal(count, 4)
    centres = kmeans(points, 10, rng())
    assert centres.shape == (10, 4)
    assert spread(points, centres) == pytest.approx(0, abs=1e-12)  # every point is a centre
    assert spread(centres, points) == pytest.approx(0, abs=1e-12)  # and every centre a point


def test_kmeans_of_equal_points() -> None:
    centres = kmeans(torch.ones(20, 3), 10, rng())
    assert torch.equal(centres, torch.ones(10, 3))


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


# ---- BiC's head -------------------------------------------------------------------------------------------


def corrected_head(keep_pairs: bool = True) -> BiasCorrectedHead:
    head = BiasCorrectedHead(4, keep_pairs=keep_pairs)
    for seed, classes in enumerate((3, 1, 2)):
        head.grow(classes, rng(seed))
    head.double()
    head.pairs[0].data.copy_(torch.tensor([0.5, -1.0]))
    head.pairs[1].data.copy_(torch.tensor([2.0, 0.25]))
    return head


@pytest.mark.parametrize("keep_pairs", [True, False])
def test_correction_by_hand(keep_pairs: bool) -> None:
    head, features = corrected_head(keep_pairs), normal(6, 4)
    scores = head(features)
    pairs = [(1.0, 0.0)] * 3 + [(0.5, -1.0) if keep_pairs else (1.0, 0.0)] + [(2.0, 0.25)] * 2
    rows = [row.tolist() for block in head.blocks for row in block]
    biases = [value.item() for block in head.biases for value in block]
    for i, f in enumerate(features.tolist()):
        for j, (w, b, (alpha, beta)) in enumerate(zip(rows, biases, pairs, strict=True)):
            plain = sum(x * y for x, y in zip(f, w, strict=True)) + b
            assert scores.similarities[i, j].item() == pytest.approx(plain, abs=1e-12)
            assert scores.logits[i, j].item() == pytest.approx(alpha * plain + beta, abs=1e-12)


def test_the_gradient_of_a_pair() -> None:
    head, features, upstream = corrected_head(), normal(6, 4), normal(6, 6, seed=1)
    pair = head.pairs[1].requires_grad_()
    scores = head(features)
    (gradient,) = torch.autograd.grad((scores.logits * upstream).sum(), pair)
    by_alpha = sum(upstream[i, j].item() * scores.similarities[i, j].item() for i in range(6) for j in (4, 5))
    by_beta = sum(upstream[i, j].item() for i in range(6) for j in (4, 5))
    assert gradient.tolist() == pytest.approx([by_alpha, by_beta], abs=1e-12)


def test_pairs_begin_as_nothing_and_are_not_trained_by_themselves() -> None:
    head = BiasCorrectedHead(4)
    head.grow(3, rng(0))
    assert len(head.pairs) == 0
    head.grow(2, rng(1))
    head.grow(1, rng(2))
    assert [pair.tolist() for pair in head.pairs] == [[1.0, 0.0], [1.0, 0.0]]
    assert not any(pair.requires_grad for pair in head.pairs)
    assert sum(p.numel() for p in head.parameters()) == 6 * 4 + 6 + 2 * 2
    scores = head(torch.randn(5, 4, generator=rng()))
    assert torch.equal(scores.logits, scores.similarities)
    assert head.corrects_bias
