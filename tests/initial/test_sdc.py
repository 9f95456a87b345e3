"""SDC against its definition: one pair of features of different groups at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from phasezero.data.stream import Phase
from phasezero.initial import TERMS
from phasezero.initial.decov import decov
from phasezero.initial.sdc import structured_decorrelation
from phasezero.methods.base import Batch
from phasezero.nets import Output
from phasezero.presets import preset

both_normalisations = pytest.mark.parametrize("normalize", [False, True], ids=["raw", "unit"])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


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


@both_normalisations
@pytest.mark.parametrize(
    ("groups", "members"),
    [
        (1, [[0, 1, 2, 3, 4, 5]]),
        (2, [[0, 1, 2], [3, 4, 5]]),
        (3, [[0, 1], [2, 3], [4, 5]]),
        (4, [[0, 1], [2], [3, 4], [5]]),
        (6, [[0], [1], [2], [3], [4], [5]]),
        (16, [[0], [1], [2], [3], [4], [5]]),
    ],
)
def test_value_and_gradient(groups: int, members: list[list[int]], normalize: bool) -> None:
    features = (normal(9, 6) + 0.5).requires_grad_()
    loss = structured_decorrelation(features, groups=groups, normalize=normalize)
    expected = slow_sdc(features, members, normalize)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-14)
    (gradient,), (wanted,) = (torch.autograd.grad(value, features) for value in (loss, expected))
    assert torch.allclose(gradient, wanted, rtol=0, atol=1e-10)


@both_normalisations
@pytest.mark.parametrize(
    ("groups", "members"),
    [(2, [[0, 2, 4], [1, 3, 5]]), (4, [[0, 4], [1, 5], [2], [3]]), (16, [[0], [1], [2], [3], [4], [5]])],
)
def test_interleaved_groups(groups: int, members: list[list[int]], normalize: bool) -> None:
    features = normal(9, 6) + 0.5
    loss = structured_decorrelation(features, groups=groups, grouping="interleaved", normalize=normalize)
    assert loss.item() == pytest.approx(slow_sdc(features, members, normalize).item(), rel=1e-10)


def test_an_unknown_grouping_is_refused() -> None:
    with pytest.raises(ValueError, match="neighbours, interleaved"):
        structured_decorrelation(normal(4, 4), grouping="random")  # type: ignore[arg-type]


def test_a_group_for_each_feature_is_decov_and_one_group_is_nothing() -> None:
    features = normal(30, 12)
    assert structured_decorrelation(features, groups=12).item() == pytest.approx(decov(features).item())
    assert structured_decorrelation(features, groups=1).item() == 0.0
    between = [structured_decorrelation(features, groups=groups).item() for groups in (2, 3, 4, 6)]
    assert between == sorted(between)


def test_groups_of_the_usual_widths_are_equal() -> None:
    """A feature that is copied within its group costs nothing; one copied beyond it does."""
    for dim in (64, 512):
        size = dim // 16
        features = torch.zeros(8, dim, dtype=torch.float64)
        features[:, :size] = normal(8, 1)
        assert structured_decorrelation(features, normalize=False).item() == 0.0
        features[:, size] = features[:, 0]
        assert structured_decorrelation(features, normalize=False).item() > 0.0


def test_no_group_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        structured_decorrelation(normal(3, 3), groups=0)


@both_normalisations
def test_half_precision_is_computed_in_float32(normalize: bool) -> None:
    rounded = (0.5 + 0.05 * normal(32, 8)).bfloat16()
    expected = structured_decorrelation(rounded.float(), groups=4, normalize=normalize)
    with torch.autocast("cpu", torch.bfloat16):
        for features in (rounded, rounded.float()):
            loss = structured_decorrelation(features, groups=4, normalize=normalize)
            assert loss.dtype == torch.float32
            assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


def test_no_shape_depends_on_data() -> None:
    with FakeTensorMode():
        features = torch.randn(16, 8, requires_grad=True)
        structured_decorrelation(features, groups=4).backward()
        assert features.grad.shape == (16, 8)


@both_normalisations
def test_the_term(normalize: bool) -> None:
    features = normal(20, 6)
    options = TERMS["sdc"].Options(weight=3.0, groups=2, normalize=normalize)
    term = TERMS["sdc"](options, Phase(0, 0, 8), None)  # it asks the workshop for nothing
    batch = Batch(torch.empty(0), torch.arange(20) % 4, Output(features, features, features, ()), None)
    expected = slow_sdc(features, [[0, 1, 2], [3, 4, 5]], normalize)
    assert term(batch).item() == pytest.approx(expected.item(), rel=1e-10)


def test_the_weights_of_the_presets() -> None:
    weights = [preset(f"lucir+sdc/{data}/b50s10").initial[0].weight for data in ("glyphs", "cifar100")]
    assert weights == [10.0, 100.0]
