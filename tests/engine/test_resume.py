"""Runs that are stopped, killed or out of time, and continue to the same record. No test here waits for a clock."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phasezero import Callback, UserError
from phasezero.data.images import ImageData, ImageSplit
from phasezero.data.stream import class_order
from phasezero.engine import resume
from phasezero.engine.callbacks import PhaseResult
from phasezero.engine.checkpoint import FORMAT, finished_phases, load_checkpoint, phase_checkpoint
from phasezero.engine.deadline import Deadline, OutOfTimeError, parse_duration
from phasezero.engine.sealed import read_sealed, write_sealed
from phasezero.engine.trainer import Trainer
from phasezero.records.run import comparable_part
from samples import Diary, Make, StopAfter, StoppedError, train


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.safetensors"


@pytest.mark.parametrize("stopped_in", [1, 2])
def test_a_stopped_run_continues_to_the_same_record(
    stopped_in: int, toy_config: Make, toy_data: ImageData, checkpoint: Path
) -> None:
    config = toy_config(method__imprint=True, method__balanced_epochs=1)
    whole = train(config, data=toy_data)
    with pytest.raises(StoppedError):
        train(config, data=toy_data, callback=StopAfter(stopped_in), checkpoint=checkpoint)
    diary = Diary()
    resumed = train(config, data=toy_data, callback=diary, checkpoint=checkpoint)
    assert {phase for phase, _, _ in diary.epochs} == set(range(stopped_in, 3))
    assert comparable_part(resumed) == comparable_part(whole)
    again = train(config, data=toy_data, checkpoint=checkpoint, callback=StopAfter(0))  # finished: nothing is trained
    assert comparable_part(again) == comparable_part(whole)
    assert list(checkpoint.parent.iterdir()) == [checkpoint]


@pytest.mark.parametrize(("seconds", "saved"), [(0.0, [0, 1, 2]), (1e9, [2])])
def test_a_large_state_is_saved_at_intervals_and_at_the_end(
    seconds: float,
    saved: list[int],
    toy_config: Make,
    toy_data: ImageData,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, save = list[int](), resume.save_checkpoint

    def watched(path: Path, trainer: Trainer, trained: Any, **previous: Any) -> None:
        seen.append(trained.phases[-1]["phase"])
        save(path, trainer, trained, **previous)

    monkeypatch.setattr(resume, "save_checkpoint", watched)
    monkeypatch.setattr(resume, "LARGE_STATE", 0)
    monkeypatch.setattr(resume, "SAVE_EVERY", seconds)
    config = toy_config()
    whole = train(config, data=toy_data, checkpoint=checkpoint)
    assert seen == saved
    checkpoint.unlink()
    with pytest.raises(StoppedError):
        train(config, data=toy_data, callback=StopAfter(2), checkpoint=checkpoint)
    diary = Diary()
    resumed = train(config, data=toy_data, callback=diary, checkpoint=checkpoint)
    assert {phase for phase, _, _ in diary.epochs} == ({0, 1, 2} if seconds else {2})
    assert comparable_part(resumed) == comparable_part(whole)


def test_a_run_killed_between_two_checkpoints_keeps_every_phase(
    toy_config: Make, toy_data: ImageData, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = resume.save_checkpoint

    def once(*facts: Any, **previous: Any) -> None:
        if any(checkpoint.parent.iterdir()):
            raise StoppedError
        save(*facts, **previous)

    with monkeypatch.context() as patched:
        patched.setattr(resume, "save_checkpoint", once)
        with pytest.raises(StoppedError):
            train(toy_config(), data=toy_data, checkpoint=checkpoint, keep_phases=True)
    resumed = train(toy_config(), data=toy_data, checkpoint=checkpoint, keep_phases=True)
    assert all(phase_checkpoint(checkpoint, phase).exists() for phase in range(3))
    assert comparable_part(resumed) == comparable_part(train(toy_config(), data=toy_data))


def test_a_foreign_or_damaged_checkpoint_is_refused(
    toy_config: Make, toy_data: ImageData, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config()
    train(replace(config, name="mine"), data=toy_data, checkpoint=checkpoint)
    assert finished_phases(checkpoint, replace(config, name="mine")) == 3
    assert finished_phases(checkpoint, config) == 0
    for name, setting, message in (
        ("other", {}, r"name is 'mine' there, 'other' here"),
        ("other", {"training.first.lr": 0.2}, r"training.first.lr is 0.1 there, 0.2 here"),
    ):
        with pytest.raises(UserError, match=message):
            train(replace(config.override(setting), name=name), data=toy_data, checkpoint=checkpoint)
    with monkeypatch.context() as younger:
        younger.setattr("phasezero.engine.checkpoint.FORMAT", "phasezero-checkpoint-9")
        with pytest.raises(UserError, match="is not a checkpoint of this version of phasezero"):
            train(config, data=toy_data, checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(UserError, match="is damaged: its content does not match its sha256"):
        train(config, data=toy_data, checkpoint=checkpoint)


def rewrite_facts(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Keep the tensors of a checkpoint and change its facts, with a digest that fits."""
    facts, tensors = read_sealed(checkpoint, FORMAT, "checkpoint")
    change(facts)
    write_sealed(checkpoint, FORMAT, facts, tensors)


def test_a_checkpoint_that_is_older_than_a_setting_is_continued(
    toy_config: Make, toy_data: ImageData, checkpoint: Path
) -> None:
    whole = train(toy_config(), data=toy_data, checkpoint=checkpoint)
    rewrite_facts(checkpoint, lambda facts: facts["config"]["engine"].pop("photos"))
    again = train(toy_config(), data=toy_data, checkpoint=checkpoint, callback=StopAfter(0))
    assert comparable_part(again) == comparable_part(whole)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts.update(phases=[]),
        lambda facts: facts.pop("config"),
        lambda facts: facts.pop("images"),
        lambda facts: facts.pop("environment"),
    ],
)
def test_a_checkpoint_without_all_its_facts_is_refused(
    change: Callable[[dict[str, Any]], object], toy_config: Make, toy_data: ImageData, checkpoint: Path
) -> None:
    train(toy_config(), data=toy_data, checkpoint=checkpoint)
    rewrite_facts(checkpoint, change)
    with pytest.raises(UserError, match="is incomplete"):
        train(toy_config(), data=toy_data, checkpoint=checkpoint)


class Clock(Callback):
    """A clock by which a phase takes a thousand seconds; it is a callback to know when a phase is over."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def on_phase_end(self, result: PhaseResult) -> None:
        self.now += 1000.0


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("90s", 90), ("2h", 7200), ("0s", 0)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "1d", "30m1h", "-5m", "1.5h"])
def test_other_words_are_no_durations(text: str) -> None:
    with pytest.raises(UserError, match="30m"):
        parse_duration(text)


def test_a_run_out_of_time_stops_after_a_phase_and_continues_to_the_same_record(
    toy_data: ImageData, toy_config: Make, checkpoint: Path
) -> None:
    clock, config = Clock(), toy_config()
    with pytest.raises(OutOfTimeError, match="2 phases are finished"):
        train(config, data=toy_data, callback=clock, checkpoint=checkpoint, deadline=Deadline(1999.0, clock))
    assert len(load_checkpoint(checkpoint).phases) == 2
    resumed = train(config, data=toy_data, checkpoint=checkpoint, deadline=Deadline(9999.0, clock))
    assert comparable_part(resumed) == comparable_part(train(config, data=toy_data))


def test_the_last_phase_is_never_lost_to_the_deadline(toy_data: ImageData, toy_config: Make) -> None:
    clock = Clock()
    record = train(toy_config(), data=toy_data, callback=clock, deadline=Deadline(2999.0, clock))
    assert len(record["phases"]) == 3


def test_a_stored_phase_0_is_no_reason_to_start_a_phase_too_late(
    toy_data: ImageData, toy_config: Make, checkpoint: Path, tmp_path: Path
) -> None:
    """A run may have waited for another run to make it, and time is up since."""
    config, store = toy_config(), tmp_path / "store"
    whole = train(config, data=toy_data, store=store)
    with pytest.raises(OutOfTimeError, match="1 phases are finished"):
        train(config, data=toy_data, checkpoint=checkpoint, store=store, deadline=Deadline(1.0, lambda: 2.0))
    assert len(load_checkpoint(checkpoint).phases) == 1
    resumed = train(config, data=toy_data, checkpoint=checkpoint, deadline=Deadline(9999.0, lambda: 2.0))
    assert comparable_part(resumed) == comparable_part(whole)


def test_the_next_phase_is_estimated_by_its_images(toy_data: ImageData, toy_config: Make) -> None:
    config = toy_config(protocol__phase_sizes=[4, 1, 2], protocol__memory="per_class:3")
    config = config.override({"training.first.epochs": 6, "training.later.epochs": 2})
    expected = [
        2 * 100 * (2 * (14 + 4 * 3)) / (6 * 4 * 14),  # a teacher from here on: twice as long an image
        100 * (2 * (2 * 14 + 5 * 3)) / (2 * (14 + 4 * 3)),
    ]
    trainer = Trainer(config, toy_data)
    for seconds, result in zip(expected, trainer.run(), strict=False):
        result.record["seconds"]["total"] = 100.0
        assert resume._next_phase(trainer, result.record) == pytest.approx(seconds)


def test_a_run_on_other_images_is_not_continued(toy_data: ImageData, toy_config: Make, checkpoint: Path) -> None:
    """Exemplars are indices of images: with one image more or less they would be other images."""
    config = toy_config()
    with pytest.raises(StoppedError):
        train(config, data=toy_data, callback=StopAfter(1), checkpoint=checkpoint)
    images, labels = np.array(toy_data.train.images), toy_data.train.labels
    order = class_order(config.protocol.class_order, len(toy_data.class_ids))
    learned, to_come = (np.flatnonzero(labels == order[place])[0] for place in (0, -1))
    inverted = {}
    for place in (learned, to_come):
        inverted[place] = images.copy()
        inverted[place][place] = 255 - images[place]
    others = [ImageSplit(np.delete(images, gone, 0), np.delete(labels, gone)) for gone in (learned, to_come)]
    for other in (*others, ImageSplit(inverted[learned], labels)):
        with pytest.raises(UserError, match="was made from other images"):
            train(config, data=replace(toy_data, train=other), checkpoint=checkpoint)
    shutil.copy(checkpoint, checkpoint.with_name("copy"))
    mended = replace(toy_data, train=ImageSplit(inverted[to_come], labels))  # a broken photo was replaced
    assert len(train(config, data=mended, checkpoint=checkpoint.with_name("copy"))["phases"]) == 3
    assert len(train(config, data=toy_data, checkpoint=checkpoint)["phases"]) == 3
