"""DeCov and SDC against their definitions: one pair of features at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.initial import STRATEGIES
from phasezero.initial.decov import decov
from phasezero.initial.sdc import structured_decorrelation
from phasezero.presets import preset
from slow import batch_of, is_zero_with_gradient, normal, same_with_gradient

both_normalisations = pytest.mark.parametrize("normalize", [False, True], ids=["raw", "unit"])
both_losses = pytest.mark.parametrize("loss", [decov, structured_decorrelation])


def slow_sdc(features: Tensor, members: list[list[int]], normalize: bool) -> Tensor:
    rows = [row / row.norm() if normalize else row for row in features]
    columns = list(torch.stack(rows).unbind(1))
    centred = [[value - sum(column) / len(column) for value in column] for column in columns]
    total = features.sum() * 0
    for one in members:
        for other in members:
            if one is other:
                continue
            for i in one:
                for j in other:
                    products = (a * b for a, b in zip(centred[i], centred[j], strict=True))
                    total = total + (sum(products) / len(rows)) ** 2
    return total / 2


def slow_decov(features: Tensor, normalize: bool) -> Tensor:
    """Every feature is a group of its own."""
    return slow_sdc(features, [[i] for i in range(features.shape[1])], normalize)


@both_normalisations
@pytest.mark.parametrize(("samples", "dim"), [(1, 3), (2, 5), (9, 4), (6, 1), (5, 12)])
def test_decov(samples: int, dim: int, normalize: bool) -> None:
    features = (normal(samples, dim) + 0.5).requires_grad_()
    loss = decov(features, normalize=normalize)
    assert loss.shape == ()
    same_with_gradient(loss, slow_decov(features, normalize), features)


def test_decov_is_numpys_covariance() -> None:
    features = normal(20, 6)
    covariance = np.cov(features.numpy(), rowvar=False, bias=True)
    expected = ((covariance**2).sum() - (np.diag(covariance) ** 2).sum()) / 2
    assert decov(features, normalize=False).item() == pytest.approx(expected, rel=1e-10)


@both_normalisations
@pytest.mark.parametrize(
    ("grouping", "groups", "members"),
    [
        ("neighbours", 1, [[0, 1, 2, 3, 4, 5]]),
        ("neighbours", 2, [[0, 1, 2], [3, 4, 5]]),
        ("neighbours", 3, [[0, 1], [2, 3], [4, 5]]),
        ("neighbours", 4, [[0, 1], [2], [3, 4], [5]]),
        ("neighbours", 6, [[0], [1], [2], [3], [4], [5]]),
        ("neighbours", 16, [[0], [1], [2], [3], [4], [5]]),
        ("interleaved", 2, [[0, 2, 4], [1, 3, 5]]),
        ("interleaved", 4, [[0, 4], [1, 5], [2], [3]]),
        ("interleaved", 16, [[0], [1], [2], [3], [4], [5]]),
    ],
)
def test_sdc(grouping: str, groups: int, members: list[list[int]], normalize: bool) -> None:
    features = (normal(9, 6) + 0.5).requires_grad_()
    loss = structured_decorrelation(features, groups=groups, grouping=grouping, normalize=normalize)
    assert loss.shape == ()
    same_with_gradient(loss, slow_sdc(features, members, normalize), features)


def test_groups_of_the_usual_widths_are_equal() -> None:
    """A feature that is copied within its group costs nothing. A feature that is copied to another group does."""
    for dim in (64, 512):
        size = dim // 16
        features = torch.zeros(8, dim, dtype=torch.float64)
        features[:, :size] = normal(8, 1)
        assert structured_decorrelation(features, normalize=False).item() == 0.0
        features[:, size] = features[:, 0]
        assert structured_decorrelation(features, normalize=False).item() > 0.0


def test_impossible_groups_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        structured_decorrelation(normal(3, 3), groups=0)
    with pytest.raises(ValueError, match="neighbours, interleaved"):
        structured_decorrelation(normal(4, 4), grouping="random")  # type: ignore[arg-type]


@both_losses
@both_normalisations
@pytest.mark.parametrize("samples", [0, 1])
def test_without_two_samples_it_is_a_zero_with_a_gradient(
    loss: Callable[..., Tensor], samples: int, normalize: bool
) -> None:
    features = normal(samples, 4).requires_grad_()
    is_zero_with_gradient(loss(features, normalize=normalize), features)


@both_losses
@both_normalisations
def test_half_precision_is_computed_in_float32(loss: Callable[..., Tensor], normalize: bool) -> None:
    rounded = (0.5 + 0.05 * normal(32, 8)).bfloat16()
    expected = loss(rounded.float(), normalize=normalize)
    with torch.autocast("cpu", torch.bfloat16):
        for features in (rounded, rounded.float()):
            found = loss(features, normalize=normalize)
            assert found.dtype == torch.float32
            assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    assert loss(rounded.double(), normalize=normalize).dtype == torch.float64


@both_normalisations
def test_the_terms(normalize: bool) -> None:
    features = normal(20, 6)
    for name, options, expected in (
        ("decov", {}, slow_decov(features, normalize)),
        ("sdc", {"groups": 2}, slow_sdc(features, [[0, 1, 2], [3, 4, 5]], normalize)),
        ("sdc", {"groups": 2, "grouping": "interleaved"}, slow_sdc(features, [[0, 2, 4], [1, 3, 5]], normalize)),
    ):
        term = STRATEGIES[name](STRATEGIES[name].Options(weight=3.0, normalize=normalize, **options), Phase(0, 0, 8))
        assert term(batch_of(features, [0, 1, 2, 3] * 5)).item() == pytest.approx(
            expected.item(), rel=1e-10
        )  # without the weight


@pytest.mark.parametrize("term", ["decov", "sdc"])
def test_the_weights_of_the_presets(term: str) -> None:
    weights = [preset(f"lucir+{term}/{data}/b50s10").initial[0].weight for data in ("glyphs", "cifar100")]
    assert weights == [10.0, 100.0]
