"""Overlap: traces of scatter matrices written out, nearest means by a loop over images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.analysis.overlap import class_means, nearest_means, overlap, scatter_ratio


def draw(spread: float, classes: int = 5, seed: int = 0) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    return [torch.from_numpy(rng.normal(size=4) + spread * rng.normal(size=(7 + place, 4))) for place in range(classes)]


def test_scatter_ratio_by_hand() -> None:
    by_class = draw(0.7)
    within = np.mean([np.trace(np.cov(features.numpy().T)) for features in by_class])
    means = np.array([features.numpy().mean(0) for features in by_class])
    assert scatter_ratio(by_class) == pytest.approx(within / np.trace(np.cov(means.T)))
    assert scatter_ratio(by_class[:1]) is None


def test_nearest_means_by_a_loop() -> None:
    by_class = draw(1.5)
    means = class_means(by_class)
    expected = np.zeros((5, 5), int)
    for true, features in enumerate(by_class):
        for row in features.numpy():
            expected[true, int(np.argmin([np.linalg.norm(row - mean) for mean in means.numpy()]))] += 1
    assert nearest_means(by_class, means).tolist() == expected.tolist()

    seen = overlap(by_class, means, 5)
    assert seen.nearest_mean_error == pytest.approx(100 - 100 * expected.trace() / expected.sum())
    assert seen.seen_as_future is None
    assert seen.future_as_seen is None

    part = overlap(by_class, means, 3)  # the last two are future classes
    assert part.seen_as_future == pytest.approx(100 * expected[:3, 3:].sum() / expected[:3].sum())
    assert part.future_as_seen == pytest.approx(100 * expected[3:, :3].sum() / expected[3:].sum())
    assert part.scatter_ratio == scatter_ratio(by_class[:3])
    # The error among seen classes ignores future means.
    assert part.nearest_mean_error == overlap(by_class[:3], means[:3], 3).nearest_mean_error


def test_the_means_are_those_given_and_the_scatter_is_of_the_images_themselves() -> None:
    """Images at 0 and 10 belong to classes whose training means changed places; a third is yet to come."""
    by_class = [torch.tensor([[0.0], [1.0]]), torch.tensor([[10.0], [11.0]]), torch.tensor([[30.0], [31.0]])]
    means = torch.tensor([[10.0], [0.0], [-5.0]], dtype=torch.float64)
    found = overlap(by_class, means, 2)
    assert found.nearest_mean_error == 100
    assert found.seen_as_future == 0
    assert found.future_as_seen == 100
    assert found.scatter_ratio == pytest.approx(0.5 / 50)  # of means 0.5 and 10.5
