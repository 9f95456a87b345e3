"""The live display: what each run does now, and when it will be done, in a terminal of 80 columns and without one."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.setup import Setup, check
from phasezero.presets import preset
from phasezero.runs.progress import Display, clock_time, run_labels
from phasezero.validation import shorten
from samples import train

Make = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def setup() -> Setup:
    """Ten epochs of 8,400 images in phase 0, of 50 classes, then five phases of 10."""
    return check(CONFIG, load_data("glyphs"))


CONFIG = preset("finetune/glyphs/b50s10", seed=2)
PHASES = [Phase(index, 40 + 10 * index if index else 0, 10 if index else 50) for index in range(6)]


class Stage:
    """A display at a time that the test sets."""

    def __init__(self, setup: Setup, width: int = 80, terminal: bool = True, **options: Any) -> None:
        self.now, self.file = 0.0, io.StringIO()
        configs = options.pop("configs", [CONFIG])
        self.console = Console(width=width, file=self.file, force_terminal=terminal, color_system=None)
        self.display = Display(self.console, configs, [setup] * len(configs), clock=lambda: self.now, **options)
        self.run = self.display.run(0)
        self.run.on_run_start(6, 0)

    def epochs(self, count: int, seconds: float, phase: int = 0, first: int = 0) -> None:
        """Train epochs of so many seconds, each reported at its quarters."""
        images = self.run.work.planned[phase]["later" if phase else "first"]
        epochs = 6 if phase else 10
        for epoch in range(first, first + count):
            for quarter in (1, 2, 3, 4):
                self.now += seconds / 4
                report = self.run.on_batch_end if quarter < 4 else self.run.on_epoch_end
                report(PHASES[phase], "train", epoch, epochs, 4.293, int(images / epochs * quarter / 4))

    def drawn(self) -> list[str]:
        """Return the lines of the table."""
        with self.console.capture() as captured:
            self.console.print(self.display.render())
        return captured.get().rstrip("\n").split("\n")


@pytest.mark.parametrize("width", [80, 120])
def test_a_row_has_name_phase_epoch_bar_loss_and_times(setup: Setup, width: int) -> None:
    stage = Stage(setup, width)
    stage.epochs(3, seconds=70)
    header, row = stage.drawn()
    assert header.split() == ["run", "phase", "now", "done", "loss", "elapsed", "left"]
    assert max(map(len, (header, row))) <= width
    name, phase, what, epoch, *bar, share, loss, elapsed, left = row.split()
    assert [name, phase, what, epoch, loss, elapsed] == ["finetune", "0/5", "train", "3/10", "4.293", "3:30"]
    assert re.fullmatch(r"\d+%", share)
    assert re.fullmatch(r"\d+:\d\d", left)
    assert "━" in "".join(bar)


@pytest.mark.parametrize("width", [50, 60, 80, 120, 200])
@pytest.mark.parametrize("name", ["lucir", "a" * 300])
def test_every_width_holds_whole_lines(setup: Setup, width: int, name: str) -> None:
    stage = Stage(setup, width, configs=[replace(CONFIG, name=name), replace(CONFIG, name="other")])
    stage.epochs(3, seconds=4000)
    lines = stage.drawn()
    assert len(lines) == 3  # the heading, the run and all runs
    assert max(map(len, lines)) <= width
    assert lines[1].rstrip().endswith(clock_time(stage.run.work.seconds_left()))


def test_the_time_left_counts_all_kinds_of_work(setup: Setup) -> None:
    stage = Stage(setup)
    stage.epochs(10, seconds=8.4)  # 1 ms for each of 8,400 images
    test, later = 50 * 64, [1.7 * 6 * (10 * 168 + 20 * old) for old in range(50, 100, 10)]
    assert setup.images[0] == 84_000
    assert setup.images[1:] == [round(images / 1.7) for images in later]
    assert len(load_data("glyphs").test.labels) == 100 * test / 50
    # Until it was measured, an image of a later phase takes 1.7 times, and an evaluated image a third as long.
    evaluated = sum(setup.evaluated) / 3
    assert stage.run.work.seconds_left() == pytest.approx((sum(later) + evaluated) / 1000)
    stage.now += 6.0  # 2 ms for each test image
    stage.run.on_activity(PHASES[0], "test", 3000)
    left = 2 * (sum(setup.evaluated) - 3000) + sum(later)
    assert stage.run.work.seconds_left() == pytest.approx(left / 1000)


def test_the_time_left_falls_between_reports(setup: Setup) -> None:
    stage = Stage(setup)
    stage.epochs(2, seconds=600)
    before = stage.run.work.seconds_left()
    assert before is not None
    assert before > 3600
    stage.now += 60
    assert stage.run.work.seconds_left() == pytest.approx(before - 60)


def test_the_time_left_follows_a_change_of_speed(setup: Setup) -> None:
    stage = Stage(setup)
    stage.epochs(5, seconds=10)
    stage.epochs(4, seconds=100, first=5)  # another run has started
    work = stage.run.work
    pace = work.own.of("first")
    assert pace is not None
    assert work.left()["first"] * pace == pytest.approx(100, rel=0.05)  # the last epoch


def test_no_time_is_told_before_anything_was_measured(setup: Setup) -> None:
    stage = Stage(setup)
    stage.run.on_epoch_end(PHASES[0], "oracle train", 0, 10, 4.0, 0)  # whose images the run did not announce
    (_, row) = stage.drawn()
    assert "oracle train 1/10" in row
    assert row.split()[-1] == "-"


def test_a_resumed_run_continues_its_share(setup: Setup) -> None:
    stage = Stage(setup)
    stage.epochs(1, seconds=10, phase=4)
    weights = stage.run.work.weights
    done = sum(setup.images[phase] * weights["later" if phase else "first"] for phase in range(4))
    done += sum(setup.evaluated[:4]) * weights["evaluation"] + setup.images[4] / 6 * weights["later"]
    assert stage.run.work.share == pytest.approx(done / stage.run.work.total)


@pytest.mark.parametrize(
    ("names", "seeds", "labels"),
    [
        (["lucir+cwd/glyphs/b50s10,epochs=3"], [0], ["lucir+cwd"]),
        (["lucir/glyphs/b50s10", "ncm/glyphs/b50s5,epochs=2"], [0, 0], ["lucir", "ncm"]),
        (["lucir/glyphs/b50s10", "lucir/glyphs/b50s10"], [0, 1], ["lucir seed 0", "lucir seed 1"]),
        (
            ["lucir/glyphs/b50s10", "ncm/glyphs/b50s10", "lucir/glyphs/b50s5"],
            [0, 0, 0],
            ["lucir/b50s10", "ncm", "lucir/b50s5"],
        ),
        (
            ["lucir/glyphs/b5s1,a=[1,2],c=3", "lucir/cifar100/b5s1,a=[1,3],c=3"],
            [0, 0],
            ["lucir/glyphs/a=[1,2]", "lucir/cifar100/a=[1,3]"],
        ),
        # A label must not be that of another run.
        (["lucir/glyphs/b5s1", "lucir/glyphs/b5s1,a=1"], [0, 0], ["lucir", "lucir/a=1"]),
        (["a/b,c,c", "a/c,b"], [0, 0], ["a/b,c,c", "a/c,b"]),
    ],
)
def test_runs_are_labelled_by_what_distinguishes_them(names: list[str], seeds: list[int], labels: list[str]) -> None:
    assert (
        run_labels([replace(CONFIG, name=name, seed=seed) for name, seed in zip(names, seeds, strict=True)]) == labels
    )


def test_a_long_name_is_cut_in_its_middle() -> None:
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghij", 7) == "abc…hij"
    assert shorten("abcdefghij", 6) == "abc…ij"


@pytest.mark.parametrize(("seconds", "text"), [(5.4, "0:05"), (59.7, "1:00"), (3599.6, "1:00:00"), (None, "-")])
def test_times_are_short(seconds: float | None, text: str) -> None:
    assert clock_time(seconds) == text


@pytest.mark.parametrize(
    ("method", "nearest_mean", "told"), [("lucir", 57.14, 7.14), ("icarl", 57.14, 57.14), ("icarl", None, 7.14)]
)
@pytest.mark.parametrize("width", [80, 120])
def test_a_phase_is_a_line_with_the_classifier_of_the_table(
    setup: Setup, method: str, nearest_mean: Any, told: float, width: int
) -> None:
    configs = [preset(f"{method}/glyphs/b50s10", seed=2), replace(CONFIG, name="a-long-name" * 9)]
    stage = Stage(setup, width, configs=configs)
    record: Any = {"phase": 0, "seen_classes": 50, "accuracy": {"head": 7.14, "nearest_mean": nearest_mean}}
    stage.run.on_phase_reused(record)
    (line,) = stage.file.getvalue().splitlines()
    assert len(line) <= width
    expected = ["phase", "0/5", "50", "classes", "accuracy", f"{told:.2f}", "%", "from", "the", "store"]
    assert line.split() == [method, *expected]


def test_without_a_terminal_a_line_comes_at_least_every_30_seconds(setup: Setup) -> None:
    stage = Stage(setup, terminal=False, configs=[CONFIG, replace(CONFIG, name="joint/glyphs/b50s10", seed=2)])
    for _ in range(100):
        stage.epochs(1, seconds=1.0)
        stage.display.speak()
    lines = stage.file.getvalue().splitlines()
    mine = [line for line in lines if line.startswith("finetune: phase 0/5, train 1/10, ")]
    assert len(mine) == 3  # in 100 seconds
    assert re.fullmatch(r"finetune: phase 0/5, train 1/10, \d+%, loss 4.293, 0:30 elapsed, [\d:]+ left", mine[0])
    assert len([line for line in lines if line.startswith("all: 0/2 runs, ")]) == 3


def test_a_terminal_shows_a_run_from_its_start_until_its_end(
    setup: Setup, toy_data: ImageData, toy_config: Make, tmp_path: Path
) -> None:
    config = toy_config()
    stage = Stage(check(config, toy_data), configs=[config])
    assert "starting" in stage.drawn()[1]
    train(config, data=toy_data, callback=stage.display.run(0), store=tmp_path)
    assert stage.drawn() == [stage.drawn()[0]]


@pytest.mark.parametrize("method", ["lucir", "bic", "ncm", "podnet"])
def test_a_finished_run_is_all_done(toy_data: ImageData, toy_config: Make, method: str) -> None:
    config = toy_config(f"{method}/glyphs/b50s10")  # BiC sets images aside
    stage = Stage(check(config, toy_data), configs=[config])
    train(config, data=toy_data, callback=stage.run)
    assert (stage.run.work.share, stage.run.work.seconds_left()) == (1.0, 0.0)


def test_runs_that_share_a_phase_0_plan_it_once(toy_data: ImageData, toy_config: Make, tmp_path: Path) -> None:
    configs = [toy_config(protocol__step=2), toy_config(protocol__step=4)]
    setups = [check(config, toy_data) for config in configs]
    display = Display(Console(quiet=True), configs, setups, reusing=[1])
    shared = [display.works[place].planned[0]["first"] for place in (0, 1)]
    assert shared == [2 * 4 * 14, 0]  # two epochs of 14 images of 4 classes
    for place, config in enumerate(configs):
        train(config, data=toy_data, callback=display.run(place), store=tmp_path)
        assert [work.ended for work in display.works.values()] == [True, place == 1]
    assert display.active == {}
