"""What listeners hear: all of them the same, and of an oracle only that it is being trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.listener import Listeners
from phasezero.engine.outcome import PhaseResult
from phasezero.experiment import run
from phasezero.methods import METHODS
from phasezero.progress import RunProgress, TotalProgress, make_progress
from phasezero.results.record import PhaseRecord


class Notes:
    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def reused(self, phase: PhaseRecord) -> None:
        self.heard.append(("reused", phase["seen_classes"], phase["accuracy"]["head"]))

    def started(self, phases: int, total_images: int) -> None:
        self.heard.append(("started", phases, total_images))

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.heard.append(("epoch", phase.index, stage, epoch, images))

    def phase(self, result: PhaseResult) -> None:
        self.heard.append(("phase", result.phase.index, result.phase.seen))


def test_two_listeners_hear_the_same(toy_data: ImageData, toy_config: Callable[..., RunConfig]) -> None:
    one, other = Notes(), Notes()
    run(toy_config(), data=toy_data, listener=Listeners([one, other]))
    assert one.heard == other.heard
    assert [note[1:] for note in one.heard if note[0] == "phase"] == [(0, 4), (1, 6), (2, 8)]


def test_a_phase_0_out_of_the_store_is_told_of(
    toy_data: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    first = run(toy_config(), data=toy_data, store=tmp_path)
    notes, console = Notes(), Console(record=True, width=120)
    bar = RunProgress(make_progress(console), toy_config(), 0, 1)
    run(toy_config(), data=toy_data, listener=Listeners([notes, bar]), store=tmp_path)
    accuracy = first["phases"][0]["accuracy"]["head"]
    assert notes.heard[0] == ("reused", 4, accuracy)
    assert notes.heard[1][0] == "started"
    assert [note[1:] for note in notes.heard if note[0] == "phase"] == [(1, 6), (2, 8)]
    assert f"phase 0, 4 classes, accuracy {accuracy:.2f} % (from the store)" in console.export_text()


def test_the_images_heard_of_are_those_announced(
    toy_data: ImageData, toy_config: Callable[..., RunConfig]
) -> None:
    notes = Notes()
    run(toy_config("lucir+mimic/glyphs/b50s10"), data=toy_data, listener=notes)
    (started,) = [note for note in notes.heard if note[0] == "started"]
    # 14 images of 4 classes, then of 2 with 3 exemplars of each old class; two epochs each.
    assert started[1:] == (3, 2 * (4 * 14) + 2 * (2 * 14 + 4 * 3) + 2 * (2 * 14 + 6 * 3))
    epochs = [note for note in notes.heard if note[0] == "epoch"]
    assert sum(int(str(note[-1])) for note in epochs) == started[2]
    assert [note[2] for note in epochs[:3]] == ["oracle train", "oracle train", "train"]


@pytest.mark.parametrize("method", list(METHODS))
def test_stages_after_the_first_count_no_images(
    method: str, toy_data: ImageData, toy_config: Callable[..., RunConfig]
) -> None:
    notes = Notes()
    run(toy_config(f"{method}/glyphs/b50s10"), data=toy_data, listener=notes)
    (announced,) = [note[2] for note in notes.heard if note[0] == "started"]
    counted = sum(int(str(note[-1])) for note in notes.heard if note[0] == "epoch")
    # BiC holds some images out of those announced.
    assert counted < int(str(announced)) if method == "bic" else counted == announced
    assert sum(note[0] == "phase" for note in notes.heard) == 3


def test_the_bar_over_all_runs_is_corrected_by_what_runs_find(
    toy_data: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    progress = make_progress(Console(quiet=True))
    total = TotalProgress(progress, [250, 250])
    task = progress.tasks[0]
    assert (task.total, task.fields["now"]) == (500, "0/2 runs")
    for place, step in enumerate((2, 4)):
        config = toy_config(protocol__step=step)
        own = RunProgress(progress, config, place, 2)
        run(config, data=toy_data, listener=Listeners([own, total.watch(place)]), store=tmp_path)
    # The first trains everything; the second takes phase 0 from the store: 4 new classes and 4 x 3 exemplars left.
    first = 2 * (4 * 14) + 2 * (2 * 14 + 4 * 3) + 2 * (2 * 14 + 6 * 3)
    second = 2 * (4 * 14 + 4 * 3)
    assert (task.total, task.completed, task.fields["now"]) == (first + second, first + second, "2/2 runs")


def test_bars_end_full_though_a_method_sets_images_aside(
    toy_data: ImageData, toy_config: Callable[..., RunConfig]
) -> None:
    progress = make_progress(Console(quiet=True))
    total = TotalProgress(progress, [250])
    config = toy_config("bic/glyphs/b50s10")
    own = RunProgress(progress, config, 0, 1)
    run(config, data=toy_data, listener=Listeners([own, total.watch(0)]))
    assert [task.finished for task in progress.tasks] == [True, True]
