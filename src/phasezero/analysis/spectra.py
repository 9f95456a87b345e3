"""How the features of one class scatter: eigenvalues of their covariance (Eq. 2) and alpha_k (Eq. 3).

The paper writes these for "the model output representation" and mentions no normalisation here, though it does
where it draws the unit sphere; its code for this analysis is not published. alpha_k does not change when all
features are scaled together, but it does when each is scaled to unit length, so both forms are measured and
named wherever a number appears: `raw` (the equations as written) and `unit` (what a cosine head sees).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.errors import UserError

Form = Literal["raw", "unit"]
FORMS: tuple[Form, ...] = ("raw", "unit")

CONSTANT = 1e-4
"""A feature whose variance is below this share of the features' mean variance tells no image from another."""

_MOST_NUMBERS = 1 << 26  # float64 numbers in a batch of classes: half a GiB


@dataclass(frozen=True)
class ClassSpectra:
    counts: Tensor
    """Images of each class, [C]."""
    eigenvalues: Tensor
    """Of each class's covariance, descending, [C, d], float64. At most n_c - 1 of them are above zero."""


def in_form(features: Tensor, form: Form) -> Tensor:
    """Features [n, d] as they are, or each of unit length."""
    return F.normalize(features, dim=1) if form == "unit" else features


def class_spectra(by_class: Sequence[Tensor]) -> ClassSpectra:
    """Eigenvalues of K^(c) = 1/(n_c - 1) sum (z - mean)(z - mean)', Eq. 2, for features [n_c, d] of each class.

    Where no class has more images than features, those of the n x n Gram matrix are computed instead: the same
    above zero. Classes are padded with zero rows, which change neither matrix, and go through in batches.
    """
    for position, features in enumerate(by_class):
        if len(features) < 2:
            raise UserError(f"class {position} has {len(features)} image; a covariance needs two")
    counts = torch.tensor([len(features) for features in by_class])
    rows, size = int(counts.max()), by_class[0].shape[1]
    at_once = max(1, _MOST_NUMBERS // (max(rows, size) * size))
    parts = []
    for start in range(0, len(by_class), at_once):
        some = by_class[start : start + at_once]
        centred = [features.double() - features.double().mean(0) for features in some]
        padded = torch.nn.utils.rnn.pad_sequence(centred, batch_first=True)
        product = padded @ padded.mT if rows < size else padded.mT @ padded
        freedom = counts[start : start + at_once].to(product) - 1
        parts.append(torch.linalg.eigvalsh(product / freedom[:, None, None]).flip(1))
    # Rounding leaves zeros slightly on either side; a covariance has no negative eigenvalue.
    found = torch.cat([F.pad(part, (0, size - part.shape[1])) for part in parts]).clamp_min(0)
    return ClassSpectra(counts, found)


def alpha(eigenvalues: Tensor, ks: Sequence[int]) -> Tensor:
    """alpha_k of Eq. 3, the share of the k largest eigenvalues [C, d] in their sum, as [C, len(ks)].

    A k beyond d is answered like d itself: 1.
    """
    totals = eigenvalues.sum(1, keepdim=True)
    if bool((totals <= 0).any()):
        position = int((totals <= 0).flatten().nonzero()[0])
        raise UserError(f"class {position}: all features are equal, so alpha_k is not defined")
    columns = torch.tensor(ks, device=eigenvalues.device).clamp_max(eigenvalues.shape[1]) - 1
    return (eigenvalues.cumsum(1) / totals)[:, columns]


def constant_features(by_class: Sequence[Tensor]) -> int:
    """How many of the features [n_c, d] do not vary within classes (see CONSTANT).

    The correlation of a constant is counted as zero by CwD, so it gains by features that hold nothing.
    """
    within = torch.stack([features.double().var(0) for features in by_class]).mean(0)
    return int((within < CONSTANT * within.mean()).sum())
