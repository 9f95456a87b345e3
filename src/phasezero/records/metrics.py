"""The metrics of class-incremental learning, as pure functions.

Labels are positions in the class order, and the classes of a phase are a range of labels. Accuracies are percentages.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from phasezero.errors import UserError

Counts = npt.NDArray[np.int64]


def confusion_matrix(true: npt.ArrayLike, predicted: npt.ArrayLike, classes: int) -> Counts:
    """Count how often class i (row) was predicted as class j (column), [classes, classes].

    >>> from phasezero import confusion_matrix
    >>> confusion_matrix([0, 0, 1], [0, 1, 1], classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    rows, columns = np.ravel(true), np.ravel(predicted)
    if rows.shape != columns.shape:
        raise ValueError(f"{rows.size} true labels but {columns.size} predictions")
    for name, labels in (("true", rows), ("predicted", columns)):
        # The flat index below would count a label out of range in a neighbouring row.
        if labels.size and (labels.min() < 0 or labels.max() >= classes):
            raise ValueError(f"{name} labels must lie in 0..{classes - 1}")
    flat = rows.astype(np.int64) * classes + columns.astype(np.int64)
    return np.bincount(flat, minlength=classes * classes).astype(np.int64).reshape(classes, classes)


def overall_accuracy(confusion: Counts) -> float:
    """Return the top-1 accuracy over all test images of all classes seen.

    It is weighted by images, unlike an unweighted mean over phases (FACIL's "avg").
    """
    return _percent(int(np.trace(confusion)), int(confusion.sum()), "the seen classes have")


def phase_accuracies(confusion: Counts, phase_sizes_so_far: Sequence[int]) -> list[float]:
    """Return the accuracy on the classes of each phase; every class seen so far is a possible prediction.

    >>> from phasezero import confusion_matrix, phase_accuracies
    >>> phase_accuracies(confusion_matrix([0, 1, 2], [0, 0, 2], classes=3), [2, 1])
    [50.0, 100.0]
    """
    if sum(phase_sizes_so_far) != len(confusion) or min(phase_sizes_so_far, default=0) < 1:
        raise ValueError(f"phases {list(phase_sizes_so_far)} do not add up to {len(confusion)} classes")
    starts = np.cumsum([0, *phase_sizes_so_far[:-1]])
    correct, total = (np.add.reduceat(counts, starts) for counts in (confusion.diagonal(), confusion.sum(axis=1)))
    pairs = enumerate(zip(correct.tolist(), total.tolist(), strict=True))
    return [_percent(right, images, f"phase {phase} has") for phase, (right, images) in pairs]


def average_incremental_accuracy(accuracies: Sequence[float]) -> float:
    """Return the paper's metric: the unweighted mean over all phases, phase 0 included (CwD sec. 4).

    >>> from phasezero import average_incremental_accuracy
    >>> average_incremental_accuracy([80.0, 70.0, 60.0])
    70.0
    """
    if not accuracies:
        raise ValueError("an average needs at least one phase")
    return math.fsum(accuracies) / len(accuracies)


def forgetting_by_phase(matrix: Sequence[Sequence[float]]) -> list[float] | None:
    """Return, for each phase but the last, its best accuracy before the last phase minus its final accuracy.

    Chaudhry et al. 2018 (Riemannian Walk), eq. 3. A negative entry is a phase that improved. For a single phase the
    result is None.
    """
    last = len(matrix) - 1
    if last < 1:
        return None
    # A[i][j] exists for i >= j: a phase cannot be measured before it was learned.
    return [max(matrix[i][j] for i in range(j, last)) - matrix[last][j] for j in range(last)]


def forgetting(matrix: Sequence[Sequence[float]]) -> float | None:
    """Return the mean of `forgetting_by_phase`; None after a single phase.

    >>> from phasezero import forgetting
    >>> forgetting([[80.0], [70.0, 90.0]])
    10.0
    """
    losses = forgetting_by_phase(matrix)
    return None if losses is None else math.fsum(losses) / len(losses)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None, int]:
    """Return mean, sample standard deviation (n - 1; None for one value) and n."""
    if not values:
        raise ValueError("a mean needs at least one value")
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return math.fsum(values) / len(values), deviation, len(values)


def _percent(correct: int, total: int, who: str) -> float:
    if total == 0:
        raise UserError(f"{who} no test images, so the accuracy is undefined")
    return 100.0 * correct / total
