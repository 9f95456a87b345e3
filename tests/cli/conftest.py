"""Photos that can be told apart, and a model that has learned some of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from phasezero.learner import Learner
from samples import take_photos


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ of red and green, and the model m of them."""
    folder = tmp_path_factory.mktemp("learned")
    for colour in ("red", "green"):
        take_photos(folder / "photos" / colour, colour)
    Learner().fit(folder / "photos").save(folder / "m")
    return folder


@pytest.fixture
def model(learned: Path, tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> Path:
    """The model m and its photos, copied into the test's folder, which is the current folder."""
    shutil.copytree(learned, tmp_path, dirs_exist_ok=True)
    return Path("m")
