"""Every method through a learner: learn, add classes three times, save, load in a new process, predict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phasezero import Learner
from phasezero.methods import METHODS

LOAD = """
import sys, numpy as np
from phasezero import Learner
images = np.load(sys.argv[1])
for folder in sys.argv[3:]:
    np.save(f"{sys.argv[2]}/{folder.rpartition('/')[2]}.npy", Learner.load(folder, device="cpu").predict_proba(images))
"""
SHORT = {"epochs": 2, "engine.threads": 1}


def test_every_method_continues_from_a_loaded_model_and_predicts_the_same_in_a_new_process(
    bars: Callable[..., Any], tmp_path: Path
) -> None:
    tested = bars(range(6), 3, seed=9)[0]
    expected = {}
    for method in METHODS:
        learner = Learner(method, backbone="none", memory="per_class:2", settings=SHORT, device="cpu")
        learner.fit(*bars(range(3))).add_classes(*bars(range(3, 4)))
        learner.save(tmp_path / method)
        learner = Learner.load(tmp_path / method, device="cpu")
        learner.add_classes(*bars(range(4, 5))).add_classes(*bars(range(5, 6)))
        learner.save(tmp_path / method)
        assert list(learner.classes_) == list(range(6))
        expected[method] = learner.predict_proba(tested)
        assert expected[method].shape == (len(tested), 6)
        assert np.allclose(expected[method].sum(1), 1)
    np.save(tmp_path / "tested.npy", tested)
    folders = [str(tmp_path / method) for method in METHODS]
    subprocess.run([sys.executable, "-c", LOAD, str(tmp_path / "tested.npy"), str(tmp_path), *folders], check=True)
    for method in METHODS:
        assert np.array_equal(np.load(tmp_path / f"{method}.npy"), expected[method]), method


@pytest.mark.parametrize("initial", ["cwd:0.1", "augment", "sla", "self_distillation"])
def test_strategies_work_in_phase_zero(initial: str, bars: Callable[..., Any]) -> None:
    plain = Learner("ncm", backbone="none", settings=SHORT).fit(*bars(range(3)))
    other = Learner("ncm", backbone="none", initial=[initial], settings=SHORT).fit(*bars(range(3)))
    tested = bars(range(3), seed=1)[0]
    assert other.config_.initial[0].name == initial.partition(":")[0]
    assert not np.array_equal(plain.predict_proba(tested), other.predict_proba(tested))
