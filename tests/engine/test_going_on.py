"""Runs that are stopped, or killed, and go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from phasezero import UserError, run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine import persist
from phasezero.engine.checkpoint import save_checkpoint
from phasezero.results.record import comparable_part
from samples import Diary

Make = Callable[..., RunConfig]


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("stop_after", [0, 1])
def test_a_stopped_run_goes_on_to_the_same_record(
    stop_after: int, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    class Stop(Diary):
        def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
            if phase.index == stop_after + 1:
                raise StoppedError

    config = toy_config(method__imprint=True, method__balanced_epochs=1)
    whole = run(config, data=toy_data)
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(StoppedError):
        run(config, data=toy_data, listener=Stop(), checkpoint=checkpoint)
    diary = Diary()
    resumed = run(config, data=toy_data, listener=diary, checkpoint=checkpoint)
    assert {phase for phase, _, _ in diary.epochs} == set(range(stop_after + 1, 3))
    assert comparable_part(resumed) == comparable_part(whole)
    again = run(config, data=toy_data, checkpoint=checkpoint)  # finished: nothing is trained
    assert comparable_part(again) == comparable_part(whole)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_a_run_killed_between_two_checkpoints_keeps_every_phase(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(*facts: Any) -> None:
        if any(tmp_path.iterdir()):
            raise StoppedError
        save_checkpoint(*facts)

    checkpoint = tmp_path / "checkpoint.safetensors"
    with monkeypatch.context() as patched:
        patched.setattr(persist, "save_checkpoint", once)
        with pytest.raises(StoppedError):
            run(toy_config(), data=toy_data, checkpoint=checkpoint, keep_phases=True)
    resumed = run(toy_config(), data=toy_data, checkpoint=checkpoint, keep_phases=True)
    assert all(persist.phase_checkpoint(checkpoint, phase).exists() for phase in range(3))
    assert comparable_part(resumed) == comparable_part(run(toy_config(), data=toy_data))


def test_a_foreign_or_damaged_checkpoint_is_refused(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "c"
    run(toy_config(), data=toy_data, checkpoint=checkpoint)
    assert list(tmp_path.iterdir()) == [checkpoint]
    with monkeypatch.context() as younger:
        younger.setattr("phasezero.engine.checkpoint.FORMAT", "phasezero-checkpoint-3")
        with pytest.raises(UserError, match="is not a checkpoint of this phasezero"):
            run(toy_config(), data=toy_data, checkpoint=checkpoint)
    with pytest.raises(UserError, match=r"training.first.lr is 0.1 there, 0.2 here"):
        run(toy_config(training__first__lr=0.2), data=toy_data, checkpoint=checkpoint)
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(UserError, match="cannot be read"):
        run(toy_config(), data=toy_data, checkpoint=checkpoint)


def told_otherwise(checkpoint: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The same tensors, with other facts about them."""
    with safe_open(checkpoint, framework="pt") as file:
        metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    facts = json.loads(metadata["facts"])
    change(facts)
    save_file(tensors, checkpoint, {**metadata, "facts": json.dumps(facts)})


def test_a_checkpoint_that_is_older_than_a_setting_goes_on(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    whole = run(toy_config(), data=toy_data, checkpoint=checkpoint)
    told_otherwise(checkpoint, lambda facts: facts["config"]["engine"].pop("photos"))
    diary = Diary()
    again = run(toy_config(), data=toy_data, checkpoint=checkpoint, listener=diary)
    assert diary.epochs == []
    assert comparable_part(again) == comparable_part(whole)


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["phases"][-1].update(seen_classes=0),
        lambda facts: facts.update(phases=[]),
        lambda facts: facts.update(seconds="long"),
        lambda facts: facts.pop("config"),
    ],
)
def test_a_checkpoint_without_all_its_facts_is_refused(
    change: Callable[[dict[str, Any]], None], toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "c"
    run(toy_config(), data=toy_data, checkpoint=checkpoint)
    told_otherwise(checkpoint, change)
    with pytest.raises(UserError, match="is damaged: its facts are not complete"):
        run(toy_config(), data=toy_data, checkpoint=checkpoint)
