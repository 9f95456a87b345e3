"""Time limits, by a clock that moves when told to: nothing here waits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit
from phasezero.data.stream import class_order
from phasezero.engine.checkpoint import load_checkpoint
from phasezero.engine.deadline import Deadline, OutOfTimeError, parse_duration
from phasezero.engine.outcome import PhaseResult
from phasezero.engine.persist import _next_phase
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.experiment import run
from phasezero.presets import preset
from phasezero.results.record import comparable_part
from phasezero.session import CHECKPOINT, run_all


class Clock:
    """A phase takes a thousand seconds; it listens to a run to know when one is over."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def started(self, phases: int, total_images: int) -> None:
        pass

    def epoch(self, *facts: object) -> None:
        pass

    def phase(self, result: PhaseResult) -> None:
        self.now += 1000.0


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("2h", 7200), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "1d", "30m1h", "-5m", "1.5h"])
def test_other_words_are_no_durations(text: str) -> None:
    with pytest.raises(UserError, match="30m"):
        parse_duration(text)


def test_a_run_stops_after_a_phase_and_goes_on_to_the_same_record(
    toy_data: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    clock, config = Clock(), toy_config()
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(OutOfTimeError, match="2 phases are finished"):
        run(config, data=toy_data, listener=clock, checkpoint=checkpoint, deadline=Deadline(1999.0, clock))
    assert len(load_checkpoint(checkpoint, config).phases) == 2
    resumed = run(config, data=toy_data, checkpoint=checkpoint, deadline=Deadline(9999.0, clock))
    whole = run(config, data=toy_data)
    assert json.dumps(comparable_part(resumed)) == json.dumps(comparable_part(whole))


def test_a_stopped_run_is_not_begun_anew_unasked(tmp_path: Path) -> None:
    settings = {"protocol.phase_sizes": [2, 1], "protocol.memory": "per_class:2", "training.first.epochs": 1}
    configs = [preset("finetune/glyphs/b50s10").override({**settings, "training.later.epochs": 1})]
    ticks = iter([0.0, 99.0])
    stopped = run_all(configs, out=tmp_path, parallel=1, deadline=Deadline(1.0, lambda: next(ticks)))
    assert stopped.unfinished == configs
    (checkpoint,) = tmp_path.rglob(CHECKPOINT)
    before = checkpoint.read_bytes()
    with pytest.raises(UserError, match=r"unfinished run already.*--resume"):
        run_all(configs, out=tmp_path, parallel=1)
    assert checkpoint.read_bytes() == before
    assert len(run_all(configs, out=tmp_path, parallel=1, resume=True).records) == 1


def test_other_images_are_not_gone_on_with(
    toy_data: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Exemplars are numbers of images: one image more, and they would be others."""
    clock, config, checkpoint = Clock(), toy_config(), tmp_path / CHECKPOINT
    with pytest.raises(OutOfTimeError):
        run(config, data=toy_data, listener=clock, checkpoint=checkpoint, deadline=Deadline(999.0, clock))
    images, labels = np.array(toy_data.train.images), toy_data.train.labels
    order = class_order(config.protocol.class_order, len(toy_data.class_ids))
    learned, to_come = (np.flatnonzero(labels == order[place])[0] for place in (0, -1))
    for gone in (learned, to_come):  # an image less of any class gives others other numbers
        fewer = ImageSplit(np.delete(images, gone, axis=0), np.delete(labels, gone))
        with pytest.raises(UserError, match="of other images"):
            run(config, data=replace(toy_data, train=fewer), checkpoint=checkpoint)
    mended = {place: images.copy() for place in (learned, to_come)}
    for place, changed in mended.items():
        changed[place] = 255 - changed[place]
    with pytest.raises(UserError, match="of other images"):
        run(config, data=replace(toy_data, train=ImageSplit(mended[learned], labels)), checkpoint=checkpoint)
    shutil.copy(checkpoint, tmp_path / "copy")
    other = replace(toy_data, train=ImageSplit(mended[to_come], labels))  # a broken photo was replaced
    assert len(run(config, data=other, checkpoint=tmp_path / "copy")["phases"]) == 3
    assert len(run(config, data=toy_data, checkpoint=checkpoint)["phases"]) == 3


def test_the_next_phase_is_judged_by_its_images(
    toy_data: ImageData, toy_config: Callable[..., RunConfig]
) -> None:
    config = toy_config(protocol__phase_sizes=[4, 1, 2], protocol__memory="per_class:3")
    config = config.override({"training.first.epochs": 6, "training.later.epochs": 2})
    expected = [
        2 * 100 * (2 * (14 + 4 * 3)) / (6 * 4 * 14),  # a teacher from here on: twice as long an image
        100 * (2 * (2 * 14 + 5 * 3)) / (2 * (14 + 4 * 3)),
    ]
    trainer = Trainer(config, toy_data)
    for place, result in enumerate(trainer.run()):
        if place < 2:
            timed = replace(result, seconds={"total": 100.0}).to_record(trainer.stream.sizes[: place + 1])
            assert _next_phase(trainer, timed) == pytest.approx(expected[place])


def test_a_stored_phase_0_is_no_reason_to_start_a_phase_too_late(
    toy_data: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """A run may have waited for another to make it, and time is up since."""
    config, checkpoint, store = toy_config(), tmp_path / CHECKPOINT, tmp_path / "store"
    whole = run(config, data=toy_data, store=store)
    with pytest.raises(OutOfTimeError, match="1 phases are finished"):
        run(config, data=toy_data, checkpoint=checkpoint, store=store, deadline=Deadline(1.0, lambda: 2.0))
    assert len(load_checkpoint(checkpoint, config).phases) == 1
    resumed = run(config, data=toy_data, checkpoint=checkpoint, deadline=Deadline(9999.0, lambda: 2.0))
    assert json.dumps(comparable_part(resumed)) == json.dumps(comparable_part(whole))


def test_the_last_phase_is_never_lost_to_the_deadline(
    toy_data: ImageData, toy_config: Callable[..., RunConfig]
) -> None:
    clock = Clock()
    record = run(toy_config(), data=toy_data, listener=clock, deadline=Deadline(2999.0, clock))
    assert len(record["phases"]) == 3


def test_only_runs_that_fit_are_started(tmp_path: Path) -> None:
    settings = {"protocol.phase_sizes": [2], "protocol.memory": "per_class:2", "training.first.epochs": 1}
    configs = [preset("finetune/glyphs/b50s10", seed=seed).override(settings) for seed in range(3)]
    deadline = Deadline(100.0, lambda: 0.0)
    assert (deadline.allows(100.0), deadline.allows(100.1)) == (True, False)
    written = run_all(configs, out=tmp_path, parallel=1, deadline=deadline, seconds=[99, 101, 50])
    assert [record["seed"] for record in written.records] == [0, 2]
    assert [config.seed for config in written.unfinished] == [1]
    assert not list(tmp_path.rglob(f"seed1/{CHECKPOINT}"))


def test_runs_in_other_processes_stop_too(tmp_path: Path) -> None:
    settings = {"protocol.phase_sizes": [2, 1], "protocol.memory": "per_class:2", "training.first.epochs": 1}
    configs = [preset("finetune/glyphs/b50s10", seed=seed).override(settings) for seed in range(2)]
    passed = Deadline(0.0)  # 1970: jobs said to take no time do not start either
    written = run_all(configs, out=tmp_path, parallel=2, deadline=passed, seconds=[0, 0])
    assert written.records == []
    assert len(written.unfinished) == 2
