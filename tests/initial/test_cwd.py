"""Class-wise Decorrelation against the definition: one class at a time, with full d x d matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from phasezero.data.stream import Phase
from phasezero.initial import STRATEGIES
from phasezero.initial.cwd import class_wise_decorrelation
from slow import batch_of, is_zero_with_gradient, normal

FORMS = ("code", "equation", "algorithm")
both_normalisations = pytest.mark.parametrize("normalize", [False, True], ids=["raw", "unit"])
all_forms = pytest.mark.parametrize("form", FORMS)


def slow_loss(features: Tensor, labels: Tensor, form: str, normalize: bool, num_classes: int) -> Tensor:
    """Return the loss by its definition: loops over classes and over pairs of features."""
    rows = list(features)
    if normalize:
        rows = [row / row.norm().clamp_min(1e-12) for row in rows]
    dim = features.shape[1]
    total = features.sum() * 0
    samples_used = 0
    for label in sorted(set(labels.tolist())):
        members = [row for row, own in zip(rows, labels.tolist(), strict=True) if own == label]
        if len(members) < 2:
            continue
        samples_used += len(members)
        columns = list(torch.stack(members).unbind(1))
        standardised = [slow_standardise(column, form) for column in columns]
        squares = features.sum() * 0
        for i in range(dim):
            for j in range(dim):
                if form == "code" and i == j:
                    continue
                product = (standardised[i] * standardised[j]).sum()
                if form != "code":
                    product = product / (len(members) - 1)
                squares = squares + product**2
        entries = max(dim * (dim - 1), 1) if form == "code" else dim**2
        total = total + squares / entries
    if form == "code":
        return total / max(samples_used, 1)
    return total / num_classes if form == "equation" else total


def slow_standardise(column: Tensor, form: str) -> Tensor:
    centred = column - column.mean()
    variance = (centred**2).sum() / (len(column) - 1)
    if form == "code":
        return centred / (variance + 1e-8).sqrt()
    if bool((column == column[0]).all()):
        return centred * 0  # no deviation: no correlation
    return centred / variance.sqrt()


def value_and_gradient(loss: Tensor, features: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, features)
    return loss.item(), gradient


def assert_same(features: Tensor, labels: Tensor, form: str, normalize: bool, num_classes: int) -> None:
    features = features.detach().requires_grad_()
    fast = class_wise_decorrelation(features, labels, form=form, normalize=normalize, num_classes=num_classes)
    value, gradient = value_and_gradient(fast, features)
    slow = slow_loss(features, labels, form, normalize, num_classes)
    expected_value, expected_gradient = value_and_gradient(slow, features)
    assert value == pytest.approx(expected_value, rel=1e-10, abs=1e-10)
    size = max(1.0, float(expected_gradient.abs().max()) if expected_gradient.numel() else 1.0)
    assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-10 * size)


FIRST, SECOND = (0, 0, 0, 0, 1, 1, 2), (0, 0, 0, 0, 1, 1, 1)


@pytest.mark.parametrize(
    ("labels", "form", "normalize", "expected"),
    [
        (FIRST, "code", False, 0.5934977823),
        (FIRST, "algorithm", False, 1.4634155898),
        (FIRST, "equation", False, 0.4878051966),
        (FIRST, "code", True, 0.5367537266),
        (FIRST, "algorithm", True, 1.4350465796),
        (FIRST, "equation", True, 0.4783488599),
        (SECOND, "code", False, 0.5956488404),
        (SECOND, "code", True, 0.5552608331),
        (SECOND, "algorithm", False, 1.0150196578),
        (SECOND, "algorithm", True, 0.9974717016),
        (SECOND, "equation", False, 1.0150196578 / 3),
        (SECOND, "equation", True, 0.9974717016 / 3),
    ],
)
def test_vectors(labels: tuple[int, ...], form: str, normalize: bool, expected: float) -> None:
    rows = [[math.sin(1 + (4 * i + j) ** 1.5) for j in range(4)] for i in range(7)]
    features = torch.tensor(rows, dtype=torch.float64)
    loss = class_wise_decorrelation(features, torch.tensor(labels), form=form, normalize=normalize, num_classes=3)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected, abs=1e-9)


labels_of_a_batch = st.one_of(
    st.lists(st.sampled_from([0, 1, 2, 7, 99]), max_size=14),  # gaps: most labels below 100 never occur
    st.integers(1, 14).map(lambda n: [3] * n),  # one class
    st.integers(0, 8).map(lambda n: list(range(n))),  # all alone
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    labels=labels_of_a_batch,
    dim=st.integers(1, 7),
    seed=st.integers(0, 2**16),
    form=st.sampled_from(FORMS),
    normalize=st.booleans(),
    offset=st.sampled_from([0.0, 3.0]),
)
@example(labels=[], dim=3, seed=0, form="code", normalize=True, offset=0.0)
@example(labels=[5], dim=3, seed=0, form="code", normalize=True, offset=0.0)
@example(labels=[0, 0, 0], dim=1, seed=0, form="code", normalize=False, offset=0.0)
@example(labels=[0, 0, 0], dim=2, seed=0, form="algorithm", normalize=True, offset=0.0)
@example(labels=[0, 0, 0, 4, 4, 4], dim=40, seed=0, form="code", normalize=True, offset=0.0)
def test_value_and_gradient_of_any_batch(
    labels: list[int], dim: int, seed: int, form: str, normalize: bool, offset: float
) -> None:
    features = normal(len(labels), dim, seed=seed) + offset
    assert_same(features, torch.tensor(labels, dtype=torch.long), form, normalize, num_classes=5)


@all_forms
@both_normalisations
def test_a_training_sized_batch(form: str, normalize: bool) -> None:
    labels = torch.from_numpy(np.random.default_rng(0).integers(0, 10, 64))
    assert_same(normal(64, 12), labels, form, normalize, num_classes=10)


@all_forms
@both_normalisations
def test_gradient_by_finite_differences(form: str, normalize: bool) -> None:
    labels = torch.tensor([0, 0, 0, 2, 2, 2, 2, 5])

    def loss(features: Tensor) -> Tensor:
        return class_wise_decorrelation(features, labels, form=form, normalize=normalize, num_classes=4)

    assert torch.autograd.gradcheck(loss, normal(8, 3).requires_grad_())


@pytest.mark.parametrize("dim", [2, 5, 20])
def test_proposition_1(dim: int) -> None:
    """The squared distance of the eigenvalues of a correlation matrix from 1 is its squared norm less d."""
    features = normal(15, dim, seed=dim)
    mean_square = class_wise_decorrelation(features, torch.zeros(15), form="algorithm", normalize=False)
    eigenvalues = np.linalg.eigvalsh(np.corrcoef(features.numpy(), rowvar=False))
    assert ((eigenvalues - 1) ** 2).sum() == pytest.approx(dim**2 * mean_square.item() - dim, rel=1e-10)


@all_forms
@both_normalisations
@pytest.mark.parametrize("samples", [0, 1, 6])
def test_nothing_to_decorrelate_is_a_zero_that_backpropagates(form: str, normalize: bool, samples: int) -> None:
    features = normal(samples, 4).requires_grad_()
    labels = torch.arange(samples)
    loss = class_wise_decorrelation(features, labels, form=form, normalize=normalize, num_classes=9)
    is_zero_with_gradient(loss, features)


@both_normalisations
def test_a_class_of_two_adds_a_constant(normalize: bool) -> None:
    """Two points always correlate fully: they add 1 to the numerator and 2 to the samples, and almost no gradient."""
    features = normal(2, 6).requires_grad_()
    loss = class_wise_decorrelation(features, torch.tensor([4, 4]), normalize=normalize)
    value, gradient = value_and_gradient(loss, features)
    assert value == pytest.approx(1 / 2, abs=1e-6)
    assert gradient.abs().max() < 1e-4

    alone = normal(5, 6, seed=1)
    numerator = 5 * class_wise_decorrelation(alone, torch.zeros(5), normalize=normalize).item()
    both, labels = torch.cat([alone, features.detach()]), torch.tensor([0] * 5 + [4] * 2)
    together = class_wise_decorrelation(both, labels, normalize=normalize)
    assert together.item() == pytest.approx((numerator + 1) / 7, abs=1e-6)


@all_forms
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples", [3, 10, 64, 128])
def test_a_constant_feature_counts_as_uncorrelated(form: str, dtype: torch.dtype, samples: int) -> None:
    """A feature that does not vary within a class, whatever its value, acts like zeros."""
    labels, zero = torch.zeros(samples, dtype=torch.long), torch.zeros(samples, 1, dtype=dtype)
    for seed, constant in enumerate(np.random.default_rng(0).normal(size=6)):
        varying = normal(samples, 3, seed=seed).to(dtype)
        with_constant = torch.cat([varying, zero + constant], 1).requires_grad_()
        loss = class_wise_decorrelation(with_constant, labels, form=form, normalize=False, num_classes=1)
        value, gradient = value_and_gradient(loss, with_constant)
        with_zero = torch.cat([varying, zero], 1).requires_grad_()
        slow = slow_loss(with_zero.double(), labels, form, False, num_classes=1)
        expected, expected_gradient = value_and_gradient(slow, with_zero)
        assert value == pytest.approx(expected, rel=1e-4)
        assert torch.isfinite(gradient).all()
        assert torch.allclose(gradient[:, :3], expected_gradient[:, :3], rtol=1e-3, atol=1e-4)


@all_forms
@both_normalisations
@pytest.mark.parametrize("constant", [0.0, 0.7])
def test_a_class_without_any_variation_is_finite(form: str, normalize: bool, constant: float) -> None:
    features = torch.full((6, 4), constant, dtype=torch.float64)
    features[3:] = normal(3, 4)
    features.requires_grad_()
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    loss = class_wise_decorrelation(features, labels, form=form, normalize=normalize, num_classes=2)
    value, gradient = value_and_gradient(loss, features)
    assert math.isfinite(value)
    assert torch.isfinite(gradient).all()
    assert gradient[3:].abs().max() > 1e-3


@all_forms
@both_normalisations
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(form: str, normalize: bool, half: torch.dtype) -> None:
    # Small variances around a common offset: in half precision nothing of them would be left.
    rounded = (0.5 + 0.05 * normal(32, 8)).to(half)
    labels = torch.arange(32) % 4

    def loss_and_gradient(features: Tensor) -> tuple[float, Tensor, torch.dtype]:
        features = features.detach().clone().requires_grad_()
        loss = class_wise_decorrelation(features, labels, form=form, normalize=normalize, num_classes=4)
        return (*value_and_gradient(loss, features), loss.dtype)

    expected, expected_gradient, _ = loss_and_gradient(rounded.float())
    value, gradient, dtype = loss_and_gradient(rounded)
    assert dtype == torch.float32
    assert value == pytest.approx(expected, rel=1e-6)
    assert torch.equal(gradient, expected_gradient.to(half))
    with torch.autocast("cpu", torch.bfloat16):
        for features in (rounded, rounded.float()):
            value, _, dtype = loss_and_gradient(features)
            assert dtype == torch.float32
            assert value == pytest.approx(expected, rel=1e-6)
    value, _, dtype = loss_and_gradient(rounded.double())
    assert dtype == torch.float64
    assert value == pytest.approx(expected, rel=1e-3)


def test_an_unknown_form_and_a_missing_number_of_classes_are_rejected() -> None:
    with pytest.raises(ValueError, match="'paper'"):
        class_wise_decorrelation(normal(3, 3), torch.zeros(3), form="paper")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_classes"):
        class_wise_decorrelation(normal(3, 3), torch.zeros(3), form="equation")


@all_forms
@both_normalisations
def test_no_shape_depends_on_data(form: str, normalize: bool) -> None:
    """Fake tensors have no values: code that reads a value fails, as it would in a CUDA graph."""
    with FakeTensorMode():
        features = torch.randn(16, 8, requires_grad=True)
        labels = torch.randint(0, 4, (16,))
        loss = class_wise_decorrelation(features, labels, form=form, normalize=normalize, num_classes=4)
        loss.backward()
        assert loss.shape == ()
        assert features.grad.shape == (16, 8)


@all_forms
def test_the_term_divides_by_the_classes_of_phase_0(form: str) -> None:
    features, labels = normal(20, 5), torch.arange(20) % 4
    term_class = STRATEGIES["cwd"]
    term = term_class(term_class.Options(weight=3.0, form=form, normalize=True), Phase(0, 0, 8))
    expected = slow_loss(features, labels, form, True, num_classes=8)
    found = term(batch_of(features, labels.tolist()))
    assert found.item() == pytest.approx(expected.item(), rel=1e-10)  # the weight is not applied here
