"""Metrics on matrices small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from phasezero.errors import UserError
from phasezero.records import metrics
from samples import confusion_with


def test_confusion_matrix_counts_pairs() -> None:
    confusion = metrics.confusion_matrix([0, 0, 1, 2, 2, 2], [0, 1, 1, 2, 2, 0], 3)
    assert confusion.dtype == np.int64
    assert confusion.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]
    assert metrics.overall_accuracy(confusion) == pytest.approx(100 * 4 / 6)


def test_confusion_matrix_accepts_small_types_without_overflow() -> None:
    labels = np.full(3, 99, dtype=np.uint8)  # 99 * 100 + 99 does not fit in a byte
    assert metrics.confusion_matrix(labels, labels, 100)[99, 99] == 3


@pytest.mark.parametrize(("true", "predicted"), [([0, 3], [0, 0]), ([0, 0], [0, 3]), ([-1], [0]), ([0], [0, 1])])
def test_confusion_matrix_refuses_labels_that_do_not_fit(true: list[int], predicted: list[int]) -> None:
    with pytest.raises(ValueError, match="label"):
        metrics.confusion_matrix(true, predicted, 3)


def test_b50_s10_is_weighted_by_images_not_by_phases() -> None:
    # 50 classes at 80 of 100, 10 classes at 20 of 100: (4000 + 200) / 6000 = 70; the mean of phases is 50.
    confusion = confusion_with([80] * 50 + [20] * 10, 100)
    by_phase = metrics.phase_accuracies(confusion, [50, 10])
    assert by_phase == [80.0, 20.0]
    assert metrics.overall_accuracy(confusion) == 70.0
    assert np.mean(by_phase) == 50.0


def test_b50_s10_six_phases() -> None:
    # The paper's own protocol, on which a well-known toolbox crashed: six phases, hundred classes.
    sizes = [50, 10, 10, 10, 10, 10]
    confusions = [confusion_with([60 - i] * sum(sizes[: i + 1]), 100) for i in range(6)]
    matrix = [metrics.phase_accuracies(one, sizes[: i + 1]) for i, one in enumerate(confusions)]
    assert [len(row) for row in matrix] == [1, 2, 3, 4, 5, 6]
    assert matrix[5] == [55.0] * 6
    # Phase j starts at 60 - j, ends at 55: forgets 5, 4, 3, 2, 1.
    assert metrics.forgetting_by_phase(matrix) == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert metrics.forgetting(matrix) == 3.0
    overall = [metrics.overall_accuracy(confusion) for confusion in confusions]
    assert overall[-1] == 55.0
    assert metrics.average_incremental_accuracy(overall) == 57.5  # (60 + 59 + ... + 55) / 6, phase 0 included


def test_uneven_phases() -> None:
    # Classes 0-2, 3, 4-5; ten images each. Right: 9 6 3 | 5 | 10 0.
    confusion = confusion_with([9, 6, 3, 5, 10, 0], 10)
    assert metrics.phase_accuracies(confusion, [3, 1, 2]) == [60.0, 50.0, 50.0]
    assert metrics.overall_accuracy(confusion) == 55.0


def test_one_class_a_phase() -> None:
    confusion = metrics.confusion_matrix([0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 0, 1], 3)
    assert metrics.phase_accuracies(confusion, [1, 1, 1]) == [100.0, 50.0, 0.0]
    confusions = [np.array([[4]]), np.array([[3, 1], [0, 4]]), confusion]
    matrix = [metrics.phase_accuracies(one, [1] * len(one)) for one in confusions]
    assert matrix == [[100.0], [75.0, 100.0], [100.0, 50.0, 0.0]]
    assert metrics.forgetting_by_phase(matrix) == [0.0, 50.0]


def test_forgetting_takes_the_best_before_the_last_and_may_be_negative() -> None:
    matrix = [[90.0], [70.0, 80.0], [95.0, 60.0, 50.0]]
    # Phase 0: best before the last 90, now 95; phase 1: 80, now 60.
    assert metrics.forgetting_by_phase(matrix) == [-5.0, 20.0]
    assert metrics.forgetting(matrix) == 7.5


def test_a_single_phase_has_no_forgetting() -> None:
    assert metrics.forgetting([[88.0]]) is None
    assert metrics.forgetting_by_phase([[88.0]]) is None
    assert metrics.average_incremental_accuracy([88.0]) == 88.0


def test_phases_must_add_up_and_have_images() -> None:
    with pytest.raises(ValueError, match="do not add up to 3 classes"):
        metrics.phase_accuracies(np.eye(3, dtype=np.int64), [2, 2])
    with pytest.raises(UserError, match="phase 1 has no test images"):
        metrics.phase_accuracies(np.diag(np.array([1, 1, 0])), [2, 1])


def test_mean_and_sample_deviation() -> None:
    assert metrics.mean_and_deviation([3.0]) == (3.0, None, 1)
    mean, deviation, n = metrics.mean_and_deviation([1.0, 2.0, 3.0])
    assert (mean, n) == (2.0, 3)
    assert deviation == pytest.approx(1.0)  # over n - 1; over n it would be 0.816


@given(st.data())
def test_overall_is_the_mean_of_phases_weighted_by_their_images(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    n = sum(sizes)
    row = st.lists(st.integers(0, 50), min_size=n, max_size=n)
    confusion = np.array(data.draw(st.lists(row, min_size=n, max_size=n)), dtype=np.int64)
    confusion += np.eye(n, dtype=np.int64)  # every phase has an image
    ends = np.cumsum(sizes)
    images = [confusion[end - size : end].sum() for end, size in zip(ends, sizes, strict=True)]
    by_phase = metrics.phase_accuracies(confusion, sizes)
    assert metrics.overall_accuracy(confusion) == pytest.approx(np.average(by_phase, weights=images))
