"""The information proxy: logarithms summed by hand, the floor, and what it counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from phasezero.analysis.information import information_proxy
from phasezero.analysis.spectra import class_spectra


def test_by_hand() -> None:
    eigenvalues = torch.tensor([[2.0, 1e-3, 0.0, 0.0], [3.0, 1e-6, 0.5, 1e-9]], dtype=torch.float64)
    found = information_proxy(eigenvalues, torch.tensor([3, 50]), floor=1e-6)
    assert found.by_class.tolist() == pytest.approx(
        [
            math.log(2) + math.log(1e-3) + 2 * math.log(1e-6),
            math.log(3) + math.log(0.5) + 2 * math.log(1e-6),  # of which one was there already
        ]
    )
    assert found.floor == 1e-6
    assert found.floored.tolist() == [2, 1]
    assert found.unavoidable.tolist() == [2, 0]  # three images leave two directions of four
    for floor in (0.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="above zero"):
            information_proxy(eigenvalues, torch.tensor([3, 50]), floor=floor)


def test_is_the_logarithm_of_the_determinant_where_there_is_one() -> None:
    features = torch.randn(50, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    spectra = class_spectra([features])
    found = information_proxy(spectra.eigenvalues, spectra.counts)
    sign, log_determinant = np.linalg.slogdet(np.cov(features.numpy().T))
    assert sign == 1
    assert float(found.by_class[0]) == pytest.approx(log_determinant)
    assert int(found.floored) == 0


def test_with_fewer_images_than_features_exactly_the_impossible_ones_are_floored() -> None:
    features = [torch.randn(n, 20, generator=torch.Generator().manual_seed(n)) for n in (5, 12, 21, 40)]
    spectra = class_spectra(features)
    found = information_proxy(spectra.eigenvalues, spectra.counts)
    assert found.unavoidable.tolist() == [16, 9, 0, 0]
    assert found.floored.tolist() == [16, 9, 0, 0]
