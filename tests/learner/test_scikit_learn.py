"""scikit-learn's own checks of estimators. They send rows of numbers, which an adapter turns into images and back."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from phasezero import Learner

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted, validate_data

Photos = Callable[..., list[tuple[Path, str]]]

SIDE, LARGEST, STEPS = 7, 256, 2**23  # numbers per row and column of an image, and their limit and resolution
ALIKE = "rows that differ by a percent count as collapsed features, which a learner refuses"
ROUNDING = "float32 rounds differently in batches of other sizes, on some processors by more than the check's 1e-7"
EXPECTED = {
    "check_fit2d_1feature": ALIKE,
    "check_fit_check_is_fitted": ALIKE,
    "check_methods_subset_invariance": ROUNDING,
}


class Numbers(nn.Module):
    """Read the numbers that `Rows` has written into pixels."""

    image_size, mean, std = SIDE + 1, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)

    def forward(self, images: Tensor) -> Tensor:
        high, middle, low = (255 * images).round().unbind(1)
        return ((high * 65536 + middle * 256 + low) / STEPS - 1).flatten(1) * LARGEST


class Rows(Learner):
    """Learn rows of numbers, written as 24-bit pixels."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = True, False
        return tags

    def written(self, X: Any, y: Any = "no_validation", reset: bool = False) -> Any:  # noqa: N803
        if isinstance(X, list) and isinstance(X[0], np.ndarray) and X[0].ndim == 3:
            return X  # from a method of Learner that calls another
        checked = validate_data(self, X, y, reset=reset, dtype=np.float64)
        rows = checked[0] if isinstance(checked, tuple) else checked
        grid = np.zeros((len(rows), SIDE + 2, SIDE + 2))
        down, right = np.divmod(np.arange(rows.shape[1]), SIDE)
        grid[:, 1 + down, 1 + right] = rows
        whole = ((np.clip(grid / LARGEST, -1, 1 - 1 / STEPS) + 1) * STEPS).round().astype(np.int64)
        return np.stack([whole >> shift & 255 for shift in (16, 8, 0)], -1).astype(np.uint8)

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        return super().fit(self.written(X, y, reset=True), y)

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> Any:  # noqa: N803
        if not hasattr(self, "classes_"):
            return self.fit(X, y)
        return super().partial_fit(self.written(X, y), y, classes)

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        check_is_fitted(self)
        return super().predict_proba(self.written(X))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: N803
        return super().score(list(self.written(X)), y)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", ["ncm", "ridge"])
def test_the_checks_of_scikit_learn(method: str) -> None:
    learner = Rows(method, backbone=Numbers(), device="cpu", settings={"engine.threads": 1})
    done = check_estimator(learner, expected_failed_checks=EXPECTED, on_fail=None, on_skip=None)
    failed = {one["check_name"]: repr(one["exception"]) for one in done if one["status"] == "failed"}
    assert failed == {}
    names = {one["check_name"] for one in done if one["status"] == "passed"}
    assert {"check_classifiers_train", "check_fit_idempotent", "check_estimators_pickle"} <= names
    assert "check_estimators_overwrite_params" in names  # also that the user's module is left as it was


def test_without_an_adapter_the_input_is_images(photos: Photos) -> None:
    assert {one["status"] for one in check_estimator(Learner(), on_skip=None)} == {"passed"}
    learner = Learner("ncm", seed=3)
    copy = clone(learner)
    assert copy.get_params() == learner.get_params()
    assert repr(copy) == "Learner(method='ncm', seed=3)"
    assert copy.set_params(method="ridge").method == "ridge"
    assert is_classifier(learner)
    pairs = photos("ab", 4)
    X = np.array([path for path, _ in pairs], dtype=object)  # noqa: N806
    y = np.array([name for _, name in pairs])
    assert make_pipeline(learner).fit(X, y).score(X, y) == 1.0
    assert cross_val_score(Learner("ncm"), X, y, cv=2).tolist() == [1.0, 1.0]
    more = photos("bc", 2, "more", seed=5)
    learner.partial_fit([path for path, _ in more], [name for _, name in more])
    assert list(learner.classes_) == ["a", "b", "c"]
    assert pickle.loads(pickle.dumps(learner)).predict(X).tolist() == learner.predict(X).tolist()
