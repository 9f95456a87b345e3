"""How the features of one class scatter: eigenvalues of their covariance (Eq. 2) and alpha_k (Eq. 3).

The paper does not say whether features are normalised here, and its code for this analysis is not published. alpha_k
changes when each feature vector is scaled to unit length, so both forms are measured: `raw` (the equations as written)
and `unit` (what a cosine head sees).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.errors import UserError
from phasezero.records.analysis import Form

CONSTANT = 1e-4
"""A feature is constant if its variance is below this share of the mean variance of all features."""


@dataclass(frozen=True)
class ClassSpectra:
    counts: Tensor
    """The number of images of each class, [C]."""
    eigenvalues: Tensor
    """Eigenvalues of each class's covariance, descending, [C, d], float64. At most n_c - 1 are above zero."""


def in_form(features: Tensor, form: Form) -> Tensor:
    """Return features [n, d] unchanged (`raw`), or each scaled to unit length."""
    return F.normalize(features, dim=1) if form == "unit" else features


def class_spectra(by_class: Sequence[Tensor]) -> ClassSpectra:
    """Return the eigenvalues of K^(c) = 1/(n_c - 1) sum (z - mean)(z - mean)' (Eq. 2), for features [n_c, d] by class.

    For a class with fewer images than features, they come from the n x n Gram matrix, which has the same nonzero ones.

    >>> import torch
    >>> from phasezero import class_spectra
    >>> class_spectra([torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])]).eigenvalues.round(decimals=2)
    tensor([[5.3300, 1.3300]], dtype=torch.float64)
    """
    spectra = []
    for position, features in enumerate(by_class):
        if (count := len(features)) < 2:
            raise UserError(f"class {position} has {count} image; a covariance needs two")
        centred, size = features.double() - features.double().mean(0), features.shape[1]
        product = centred @ centred.mT if count < size else centred.mT @ centred
        found = torch.linalg.eigvalsh(product / (count - 1)).flip(0)
        spectra.append(F.pad(found, (0, size - len(found))))
    # Rounding leaves zeros slightly on either side; a covariance has no negative eigenvalue.
    return ClassSpectra(torch.tensor(list(map(len, by_class))), torch.stack(spectra).clamp_min(0))


def alpha(eigenvalues: Tensor, ks: Sequence[int]) -> Tensor:
    """Return alpha_k of Eq. 3, the share of the k largest eigenvalues [C, d] in their sum, as [C, len(ks)].

    A k beyond d gives 1, like d itself.

    >>> import torch
    >>> from phasezero import alpha
    >>> alpha(torch.tensor([[4.0, 3.0, 2.0, 1.0]]), [1, 2, 9])
    tensor([[0.4000, 0.7000, 1.0000]])
    """
    totals = eigenvalues.sum(1, keepdim=True)
    if positions := (totals.flatten() <= 0).nonzero().flatten().tolist():
        raise UserError(f"class {positions[0]}: all features are equal, so alpha_k is not defined")
    columns = torch.tensor(ks, device=eigenvalues.device).clamp_max(eigenvalues.shape[1]) - 1
    return (eigenvalues.cumsum(1) / totals)[:, columns]


def constant_features(by_class: Sequence[Tensor]) -> int:
    """Count the features that do not vary within classes (see CONSTANT), for features [n_c, d] by class.

    CwD counts the correlation of a constant feature as zero, so constant features lower its loss.
    """
    within = torch.stack([features.double().var(0) for features in by_class]).mean(0)
    return int((within < CONSTANT * within.mean()).sum())
