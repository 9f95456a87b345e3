"""A data set and a configuration small enough for any test to train on, and the command inside this process."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests are so small that a second thread does not help

import numpy as np
import pytest

from phasezero import plugins
from phasezero.cli import main as cli
from phasezero.config import RunConfig
from phasezero.data.catalog import DATA_SETS
from phasezero.data.images import ImageData, ImageSplit, Preparation, View
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS
from phasezero.nets import NETWORKS
from phasezero.presets import preset
from phasezero.records.run import Record, write_record
from phasezero.runs.run import run

CLASSES = 8
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def draw(images_per_class: int, seed: int) -> ImageSplit:
    """Make classes of bright bars, each at its own place, under noise."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), images_per_class)
    images = rng.integers(0, 90, (len(labels), 16, 16, 1))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 2] += 150
    shuffled = rng.permutation(len(labels))
    return ImageSplit(images.astype(np.uint8)[shuffled], labels[shuffled])


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Run headless Chromium, once for all tests of pages: a process can start playwright only once."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        # Without its sandbox, which does not start for root (in containers); it opens only our own pages.
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def toy_data() -> ImageData:
    names = tuple(f"bar {place}" for place in range(CLASSES))
    preparation = Preparation((0.25,), (0.25,), size=16, view=View("pad", padding=1, flip=True))
    return ImageData("toy", names, names, draw(14, 0), draw(6, 1), preparation)


@pytest.fixture
def toy_config() -> Callable[..., RunConfig]:
    """LUCIR+CwD on 4 classes and twice 2 more, two epochs each; dotted settings change it."""

    def make(name: str = "lucir+cwd/glyphs/b50s10", **settings: Any) -> RunConfig:
        short = {"epochs": 2, "milestones": [1], "batch_size": 16}
        values = {
            "protocol.base": 4,
            "protocol.step": 2,
            "protocol.memory": "per_class:3",
            **{f"training.{which}.{key}": value for which in ("first", "later") for key, value in short.items()},
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        return preset(name).override(values)

    return make


@pytest.fixture
def own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what a test registers, and the plug-ins that it loads, when it ends."""
    for registry in (METHODS, STRATEGIES, NETWORKS, DATA_SETS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "summaries", dict(registry.summaries))
    monkeypatch.setattr(plugins, "_files", {})


@pytest.fixture
def tiny_config() -> RunConfig:
    """LUCIR on two classes and two more, one epoch each: for examples."""
    sizes = {"protocol.phase_sizes": [2, 2], "protocol.memory": "per_class:2"}
    return preset("lucir/glyphs/b50s10,epochs=1").override(sizes)


@pytest.fixture(scope="session")
def record(toy_data: ImageData) -> Record:
    """The record of such a run."""
    config = preset("lucir/glyphs/b50s10,epochs=1").override({"protocol.phase_sizes": [2, 2]})
    return run(config.override({"protocol.memory": "per_class:2"}), data=toy_data).record


@pytest.fixture
def record_file(record: Record, tmp_path: Path) -> Path:
    write_record(tmp_path / "record.json", record)
    return tmp_path / "record.json"


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs `phasezero ARGS` inside this process, in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.delenv("PHASEZERO_DATA", raising=False)

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["phasezero", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def works(command: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[str, str]]:
    """Runs a command that must succeed: (stdout, stderr)."""

    def call(*arguments: str | Path) -> tuple[str, str]:
        code, out, err = command(*arguments)
        assert code == 0, err
        return out, err

    return call
