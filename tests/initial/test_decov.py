"""DeCov against its definition: one pair of features at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from phasezero.data.stream import Phase
from phasezero.initial import TERMS
from phasezero.initial.decov import decov
from phasezero.methods.base import Batch
from phasezero.nets import Output
from phasezero.presets import preset

both_normalisations = pytest.mark.parametrize("normalize", [False, True], ids=["raw", "unit"])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def slow_decov(features: Tensor, normalize: bool) -> Tensor:
    rows = [row / row.norm() if normalize else row for row in features]
    columns = list(torch.stack(rows).unbind(1))
    centred = [[value - sum(column) / len(column) for value in column] for column in columns]
    total = features.sum() * 0
    for i, one in enumerate(centred):
        for j, other in enumerate(centred):
            if i != j:
                total = total + (sum(a * b for a, b in zip(one, other, strict=True)) / len(rows)) ** 2
    return total / 2


@both_normalisations
@pytest.mark.parametrize(("samples", "dim"), [(1, 3), (2, 5), (9, 4), (6, 1), (5, 12)])
def test_value_and_gradient(samples: int, dim: int, normalize: bool) -> None:
    features = (normal(samples, dim) + 0.5).requires_grad_()
    loss, expected = decov(features, normalize=normalize), slow_decov(features, normalize)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-14)
    (gradient,), (wanted,) = (torch.autograd.grad(value, features) for value in (loss, expected))
    assert torch.allclose(gradient, wanted, rtol=0, atol=1e-10)


def test_it_is_numpys_covariance() -> None:
    features = normal(20, 6)
    covariance = np.cov(features.numpy(), rowvar=False, bias=True)
    expected = ((covariance**2).sum() - (np.diag(covariance) ** 2).sum()) / 2
    assert decov(features, normalize=False).item() == pytest.approx(expected, rel=1e-10)


def test_classes_and_offsets_do_not_matter_but_scale_does() -> None:
    features = normal(20, 6)
    plain = decov(features, normalize=False).item()
    assert decov(features + 7, normalize=False).item() == pytest.approx(plain, rel=1e-10)
    assert decov(3 * features, normalize=False).item() == pytest.approx(81 * plain, rel=1e-10)
    assert decov(3 * features).item() == pytest.approx(decov(features).item(), rel=1e-10)


@both_normalisations
@pytest.mark.parametrize("samples", [0, 1])
def test_nothing_to_decorrelate_is_a_zero_that_backpropagates(samples: int, normalize: bool) -> None:
    features = normal(samples, 4).requires_grad_()
    loss = decov(features, normalize=normalize)
    assert loss.item() == 0.0
    loss.backward()
    assert torch.equal(features.grad, torch.zeros_like(features))


@both_normalisations
def test_half_precision_is_computed_in_float32(normalize: bool) -> None:
    rounded = (0.5 + 0.05 * normal(32, 8)).bfloat16()
    expected = decov(rounded.float(), normalize=normalize)
    with torch.autocast("cpu", torch.bfloat16):
        for features in (rounded, rounded.float()):
            loss = decov(features, normalize=normalize)
            assert loss.dtype == torch.float32
            assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert decov(rounded.double(), normalize=normalize).dtype == torch.float64


def test_no_shape_depends_on_data() -> None:
    with FakeTensorMode():
        features = torch.randn(16, 8, requires_grad=True)
        decov(features).backward()
        assert features.grad.shape == (16, 8)


@both_normalisations
def test_the_term(normalize: bool) -> None:
    features = normal(20, 5)
    options = TERMS["decov"].Options(weight=3.0, normalize=normalize)
    term = TERMS["decov"](options, Phase(0, 0, 8), None)  # it asks the workshop for nothing
    batch = Batch(torch.empty(0), torch.arange(20) % 4, Output(features, features, features, ()), None)
    assert term(batch).item() == pytest.approx(slow_decov(features, normalize).item(), rel=1e-10)


def test_the_weights_of_the_presets() -> None:
    weights = [preset(f"lucir+decov/{data}/b50s10").initial[0].weight for data in ("glyphs", "cifar100")]
    assert weights == [10.0, 100.0]
