"""A small model of coloured photos, and a copy of it for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from phasezero.learner import Learner
from samples import COLOURS, make_photo


@pytest.fixture(scope="package")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, with the embedded backbone and two kept photos of each."""
    photos = [(make_photo(COLOURS[name], seed), name) for name in ("red", "blue") for seed in range(4)]
    return Learner(memory="per_class:2", device="cpu").fit(photos).save(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture
def folder(taught: Path, tmp_path: Path) -> Path:
    return shutil.copytree(taught, tmp_path / "model")
