"""How much classes overlap among features.

The paper says that too large a CwD coefficient hurts: classes "occupy too much space, causing large overlaps with
classes in future phases" (appendix C), but gives no measure of overlap. These are ours:

scatter ratio        the mean variance within a class over the variance of the class means around their mean:
                     tr(S_W) / tr(S_B). Scale-free; 0 for classes that are points.
nearest-mean error   the share of images that are nearer to another class's mean than to their own.
crossing             with classes that the model has not been trained on: the share of images of seen classes
                     whose nearest mean belongs to a future class, and the reverse.

Images are compared with the means of the training images, as a classifier would do. The scatter ratio uses the means of
the measured images themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Overlap:
    scatter_ratio: float | None
    """Scatter ratio of the seen classes; None for a single class."""
    nearest_mean_error: float
    """Nearest-mean error in percent, among the seen classes."""
    seen_as_future: float | None
    """Crossing in percent; None if no future class was measured."""
    future_as_seen: float | None


def class_means(by_class: Sequence[Tensor]) -> Tensor:
    return torch.stack([features.double().mean(0) for features in by_class])


def scatter_ratio(by_class: Sequence[Tensor]) -> float | None:
    """Return tr(S_W) / tr(S_B) with equal weight for every class; both traces use unbiased variances."""
    if len(by_class) < 2:
        return None
    within = torch.stack([features.double().var(0).sum() for features in by_class]).mean()
    return float(within / class_means(by_class).var(0).sum())


def nearest_means(by_class: Sequence[Tensor], means: Tensor) -> Tensor:
    """Count the images of class i (row) whose nearest mean is that of class j (column), [C, C]."""
    nearest = (torch.cdist(features.double(), means).argmin(1) for features in by_class)
    return torch.stack([places.bincount(minlength=len(means)) for places in nearest])


def overlap(by_class: Sequence[Tensor], means: Tensor, seen: int) -> Overlap:
    """Measure the overlap of classes, given their training `means` [C, d]; the first `seen` classes were trained on.

    >>> import torch
    >>> from phasezero import overlap
    >>> by_class = [torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])]
    >>> overlap(by_class, torch.tensor([[1.0], [5.0]], dtype=torch.float64), seen=2)
    Overlap(scatter_ratio=0.25, nearest_mean_error=0.0, seen_as_future=None, future_as_seen=None)
    """
    confusion = nearest_means(by_class[:seen], means[:seen])
    ratio, error = scatter_ratio(by_class[:seen]), _percent(confusion.sum() - confusion.trace(), confusion.sum())
    if len(by_class) <= seen:
        return Overlap(ratio, error, None, None)
    known, future = nearest_means(by_class, means).split([seen, len(by_class) - seen])
    seen_as_future = _percent(known[:, seen:].sum(), known.sum())
    return Overlap(ratio, error, seen_as_future, _percent(future[:, :seen].sum(), future.sum()))


def _percent(part: Tensor, whole: Tensor) -> float:
    return 100.0 * int(part) / int(whole)
