"""The live display: run, phase and time left in any terminal of 80 columns, also where an epoch takes minutes."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.presets import preset
from phasezero.runs.progress import RunProgress, TotalProgress, make_progress
from samples import train

Make = Callable[..., RunConfig]


def shown(width: int, name: str = "lucir+cwd/cifar100/b50s10", epoch_seconds: float = 70.0) -> str:
    """Return what is drawn after 3 of 8 equal epochs, each of which took so many seconds."""
    now = [0.0]
    console = Console(width=width, file=io.StringIO(), record=True, get_time=lambda: now[0])
    progress = make_progress(console)
    own = RunProgress(TotalProgress(progress, {}), replace(preset("lucir/glyphs/b50s10"), name=name, seed=2), 0, 3)
    own.on_run_start(6, 8000)
    for epoch in range(3):
        now[0] += epoch_seconds
        own.on_epoch_end(Phase(3, 70, 10), "finetune", epoch, 8, 4.293, 1000)
    console.print(progress.make_tasks_table(progress.tasks))
    return console.export_text().rstrip("\n")


@pytest.mark.parametrize("width", [80, 120])
def test_run_phase_and_time_left_are_whole(width: int) -> None:
    line = shown(width)
    assert "\n" not in line
    assert len(line) <= width
    for part in ("[1/3] lucir+cwd/cifar100/b50s10 seed 2", "phase 3/5 finetune 3/8", "left 0:05:50"):
        assert part in line
    assert ("loss 4.293" in line, "0:03:30" in line, "━" in line) == (width == 120,) * 3


def test_a_long_name_gives_way_in_its_middle() -> None:
    line = shown(80, name="a" * 300)
    assert len(line) <= 80
    assert line.lstrip("⠋ ").startswith("[1/3] aaa")
    assert "seed 2 " in line
    assert line.endswith("phase 3/5 finetune 3/8   left 0:05:50")


def test_epochs_of_ten_minutes_foretell_an_end() -> None:
    assert shown(80, epoch_seconds=600).endswith("left 0:50:00")


@pytest.mark.parametrize(
    ("method", "nearest_mean", "told"), [("lucir", 57.14, 7.14), ("icarl", 57.14, 57.14), ("icarl", None, 7.14)]
)
def test_a_phase_shows_the_classifier_of_the_table(method: str, nearest_mean: Any, told: float) -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    own = RunProgress(TotalProgress(make_progress(console), {}), preset(f"{method}/glyphs/b50s10"), 0, 1)
    accuracy = {"head": 7.14, "nearest_mean": nearest_mean}
    own.on_phase_reused({"phase": 0, "seen_classes": 50, "accuracy": accuracy})  # type: ignore[typeddict-item]
    assert f"phase 0, 50 classes, accuracy {told} % (from the store)" in console.export_text()


def test_the_bar_over_all_runs_is_corrected_by_what_runs_find(
    toy_data: ImageData, toy_config: Make, tmp_path: Path
) -> None:
    progress = make_progress(Console(quiet=True))
    total = TotalProgress(progress, {0: 250, 2: 250})  # run 1 was finished before
    task = progress.tasks[0]
    assert (task.total, task.fields["now"]) == (500, "0/2 runs")
    for place, step in ((0, 2), (2, 4)):
        config = toy_config(protocol__step=step)
        train(config, data=toy_data, callback=RunProgress(total, config, place, 3), store=tmp_path)
    # The first trains everything; the second takes phase 0 from the store: 4 new classes and 4 x 3 exemplars left.
    first = 2 * (4 * 14) + 2 * (2 * 14 + 4 * 3) + 2 * (2 * 14 + 6 * 3)
    second = 2 * (4 * 14 + 4 * 3)
    assert (task.total, task.completed, task.fields["now"]) == (first + second, first + second, "2/2 runs")


def test_bars_end_full_though_a_method_sets_images_aside(toy_data: ImageData, toy_config: Make) -> None:
    progress, config = make_progress(Console(quiet=True)), toy_config("bic/glyphs/b50s10")
    own = RunProgress(TotalProgress(progress, {0: 250}), config, 0, 1)
    train(config, data=toy_data, callback=own)
    assert [task.finished for task in progress.tasks] == [True, True]
