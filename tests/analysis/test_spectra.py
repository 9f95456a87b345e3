"""Class-wise spectra and alpha_k against explicit covariance matrices, and Proposition 1."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from phasezero.analysis.spectra import alpha, class_spectra, constant_features, in_form
from phasezero.errors import UserError
from phasezero.initial.cwd import class_wise_decorrelation

Array = npt.NDArray[np.float64]


def draw(counts: list[int], size: int, seed: int = 0) -> list[Tensor]:
    """Features of classes with different means and uneven spectra."""
    rng = np.random.default_rng(seed)
    mixes = [rng.normal(size=(size, size)) * np.linspace(0.05, 3, size) for _ in counts]
    return [
        torch.from_numpy(rng.normal(size=(count, size)) @ mix + 10 * rng.normal(size=size))
        for count, mix in zip(counts, mixes, strict=True)
    ]


def eigenvalues_by_hand(features: Array) -> Array:
    """Eq. 2 as it is written: a sum of outer products over images, divided by n - 1."""
    mean = sum(features[i] for i in range(len(features))) / len(features)
    covariance = np.zeros((features.shape[1], features.shape[1]))
    for row in features:
        covariance += np.outer(row - mean, row - mean)
    return np.linalg.eigvalsh(covariance / (len(features) - 1))[::-1]


@pytest.mark.parametrize("counts", [[9, 9], [30, 4, 17], [2, 3, 2], [6]])
@pytest.mark.parametrize("size", [3, 12])
def test_eigenvalues_of_each_class(counts: list[int], size: int) -> None:
    by_class = draw(counts, size)
    found = class_spectra(by_class)
    assert found.counts.tolist() == counts
    assert found.eigenvalues.shape == (len(counts), size)
    for row, features in zip(found.eigenvalues, by_class, strict=True):
        expected = eigenvalues_by_hand(features.numpy())
        np.testing.assert_allclose(row, expected, atol=1e-12 * expected[0])


def test_float32_features_are_computed_in_float64() -> None:
    by_class = [features.float() for features in draw([40, 60], 10)]
    found = class_spectra(by_class).eigenvalues
    assert found.dtype == torch.float64
    for row, features in zip(found, by_class, strict=True):
        np.testing.assert_allclose(row, eigenvalues_by_hand(features.double().numpy()), rtol=1e-9)


def test_alpha_by_hand() -> None:
    eigenvalues = torch.tensor([[4.0, 3.0, 2.0, 1.0], [5.0, 5.0, 0.0, 0.0]], dtype=torch.float64)
    np.testing.assert_allclose(alpha(eigenvalues, [1, 2, 4, 9]), [[0.4, 0.7, 1.0, 1.0], [0.5, 1.0, 1.0, 1.0]])


def test_what_has_no_spectrum_is_refused() -> None:
    with pytest.raises(UserError, match="class 1 has 1 image"):
        class_spectra([torch.randn(4, 2), torch.randn(1, 2)])
    with pytest.raises(UserError, match="class 1: all features are equal"):
        alpha(class_spectra([torch.randn(4, 2), torch.ones(4, 2)]).eigenvalues, [1])


def test_forms() -> None:
    (features,) = draw([6], 4)
    assert in_form(features, "raw") is features
    for row, unit in zip(features, in_form(features, "unit"), strict=True):
        np.testing.assert_allclose(unit, row / sum(float(x) ** 2 for x in row) ** 0.5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(2, 7), st.floats(1e-3, 1e3))
def test_alpha_rises_to_one_and_knows_no_scale_or_rotation(seed: int, count: int, size: int, scale: float) -> None:
    by_class = draw([count, count + 3], size, seed)
    ks = range(1, size + 1)
    shares = alpha(class_spectra(by_class).eigenvalues, ks)
    assert bool((shares.diff(dim=1) >= -1e-12).all())
    assert bool((shares >= torch.tensor(ks).double() / size - 1e-9).all())  # the k largest are at least average
    np.testing.assert_allclose(shares[:, -1], 1)
    turn = torch.linalg.qr(torch.randn(size, size, generator=torch.Generator().manual_seed(seed)).double())[0]
    turned = [scale * features[torch.randperm(len(features))] @ turn - 3 for features in by_class]
    torch.testing.assert_close(alpha(class_spectra(turned).eigenvalues, ks), shares, rtol=1e-6, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 15), st.integers(1, 8))
def test_proposition_1(seed: int, count: int, size: int) -> None:
    """Squared distances of a correlation matrix's eigenvalues from their mean sum to ||K||_F^2 - d."""
    (features,) = draw([count], size, seed)
    frobenius = sum(entry**2 for entry in np.atleast_1d(np.corrcoef(features.numpy().T)).flat)
    # Ours: the spectrum of standardised features, whose covariance is that matrix.
    (eigenvalues,) = class_spectra([(features - features.mean(0)) / features.std(0)]).eigenvalues
    distances = ((eigenvalues - eigenvalues.mean()) ** 2).sum()
    assert float(eigenvalues.sum()) == pytest.approx(size)
    assert float(distances) == pytest.approx(frobenius - size, rel=1e-9, abs=1e-9)
    # And so the loss of Eq. 8 is the unevenness of that spectrum, up to constants.
    labels = torch.zeros(count, dtype=torch.long)
    loss = class_wise_decorrelation(features, labels, form="equation", normalize=False, num_classes=1)
    assert float(loss) * size**2 == pytest.approx(float(distances) + size, rel=1e-9)


def test_constant_features_by_hand() -> None:
    """Feature 0 varies, 1 is the same for all, 2 differs between classes alone, 3 hardly varies."""
    one = torch.tensor([[1.0, 5.0, 2.0, 0.0], [3.0, 5.0, 2.0, 0.01], [5.0, 5.0, 2.0, 0.02]])
    other = torch.tensor([[0.0, 5.0, 9.0, 0.0], [4.0, 5.0, 9.0, 0.01]])
    # Variances within: (4 + 8) / 2 = 6, 0, 0 and (1e-4 + 5e-5) / 2; their mean is 1.5, of which 1e-4 counts.
    assert constant_features([one, other]) == 3
    assert constant_features([1e-3 * one, 1e-3 * other]) == 3  # their scale does not matter
    other[1, 3] = 0.03  # (1e-4 + 4.5e-4) / 2 = 2.75e-4
    assert constant_features([one, other]) == 2
    assert constant_features([1e-3 * one, 1e-3 * other]) == 2
