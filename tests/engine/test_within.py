"""Runs that are stopped within a phase and continue to the undisturbed record and model, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from phasezero import Callback, UserError, run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine import interrupt, resume
from phasezero.engine.checkpoint import previous_file, state_file
from phasezero.engine.sealed import read_sealed
from phasezero.engine.stage import PendingNumber, StagePass
from phasezero.engine.stage_run import StageRun
from phasezero.engine.within import SavedState
from phasezero.errors import DivergenceError
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS
from phasezero.records.run import comparable_part
from samples import Make, StoppedError


class Continued(Callback):
    """Note where a run continues, and what it says."""

    def __init__(self) -> None:
        self.places: list[tuple[int, str, int]] = []
        self.notes: list[str] = []

    def on_resume(self, phase: Phase, stage: str, epoch: int) -> None:
        self.places.append((phase.index, stage, epoch))

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def stop_after(monkeypatch: pytest.MonkeyPatch, saves: int) -> None:
    """Stop training after the state within a phase was saved this many times, as SIGKILL would."""
    keep, seen = resume._Resumable.keep, list[int]()

    def counted(self: resume._Resumable, state: SavedState | None) -> None:
        keep(self, state)
        seen.append(1)
        if len(seen) == saves:
            raise StoppedError

    monkeypatch.setattr(resume._Resumable, "keep", counted)


def finish(config: RunConfig, data: ImageData, **options: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    result = run(config, data=data, **options)
    return comparable_part(result.record), result.model.state_dict()


def check_stops(config: RunConfig, data: ImageData, folder: Path, stops: Iterable[int]) -> list[tuple[int, str, int]]:
    """Stop a run after each of these numbers of saves in turn, finish it, and compare it with the undisturbed run."""
    whole, model = finish(config, data)
    checkpoint, callback = folder / "checkpoint.safetensors", Continued()
    for saves in stops:
        with pytest.MonkeyPatch.context() as patched:
            stop_after(patched, saves)
            try:
                run(config, data=data, checkpoint=checkpoint, save_every=0, callback=callback)
                break
            except StoppedError:
                pass
    record, resumed = finish(config, data, checkpoint=checkpoint, callback=callback)
    assert record == whole
    assert resumed.keys() == model.keys()
    assert all(torch.equal(resumed[name], model[name]) for name in model)
    assert list(folder.iterdir()) == [checkpoint]
    return callback.places


@pytest.fixture(autouse=True)
def _no_least_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "SHARE", float("inf"))


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_continues_within_a_phase(
    name: str, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_config(f"{name}/glyphs/b50s10")
    if name == "podnet":
        config = config.override({"method.finetune_epochs": 2})
    if name == "lucir":
        config = config.override({"method.imprint": True, "method.balanced_epochs": 2})
    places = check_stops(config, toy_data, tmp_path, [3, 5, 4])
    assert len(places) == 3


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_every_strategy_continues_within_phase_0(
    name: str, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    check_stops(toy_config(f"lucir+{name}/glyphs/b50s10"), toy_data, tmp_path, [2, 3])


def test_all_stops_of_a_method_with_three_stages(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    """Stop after every single step of AANets, whose second level follows each epoch."""
    config = toy_config("aanet/glyphs/b50s10", method__weights_lr=1e-3, protocol__phase_sizes=[2, 2])
    places = check_stops(config, toy_data, tmp_path, itertools.repeat(1))
    steps = [len(toy_data.train.labels) // 4 // 16] * 2  # of both phases, in whole batches of 16
    assert len(places) > 2 * sum(steps)
    assert {place[:2] for place in places} >= {(0, "train"), (1, "train")}


def test_a_run_stopped_at_every_save_of_ridge_keeps_features(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from phasezero.engine.trainer import Trainer

    seen, original = list[int](), Trainer.train_features

    def counted(self: Trainer, indices: torch.Tensor) -> torch.Tensor:
        seen.append(len(indices))
        return original(self, indices)

    config = toy_config("ridge/glyphs/b50s10", training__first__epochs=1)
    check_stops(config, toy_data, tmp_path, [1])
    monkeypatch.setattr(Trainer, "train_features", counted)
    finish(config, toy_data)
    whole, again = len(seen), tmp_path / "again"
    seen.clear()
    again.mkdir()
    checkpoint = again / "checkpoint.safetensors"
    stops = 0
    while True:  # after each class whose features were saved
        with pytest.MonkeyPatch.context() as patched:
            stop_after(patched, 1)
            try:
                run(config, data=toy_data, checkpoint=checkpoint, save_every=0)
                break
            except StoppedError:
                stops += 1
    assert stops > len(toy_data.class_ids)
    assert len(seen) < whole + stops  # each class's features were computed once, besides one image of each class


@pytest.mark.parametrize("which", ["newest", "both"])
def test_a_damaged_state_is_reported_and_the_state_before_it_is_used(
    which: str, toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, checkpoint = toy_config(), tmp_path / "checkpoint.safetensors"
    whole, _ = finish(config, toy_data)
    stop_after(monkeypatch, 4)
    with pytest.raises(StoppedError):
        run(config, data=toy_data, checkpoint=checkpoint, save_every=0)
    for path in (state_file(checkpoint), previous_file(state_file(checkpoint)))[: 1 if which == "newest" else 2]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    callback = Continued()
    if which == "both":
        with pytest.raises(UserError, match=r"checkpoint-within\.safetensors is damaged: its content does not match"):
            run(config, data=toy_data, checkpoint=checkpoint, callback=callback)
        return
    record, _ = finish(config, toy_data, checkpoint=checkpoint, callback=callback)
    assert record == whole
    assert "checkpoint-within.safetensors is damaged" in callback.notes[0]
    assert len(callback.places) == 1


def test_a_full_disk_costs_no_finished_work(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    config, callback = toy_config(), Continued()
    whole, _ = finish(config, toy_data)
    monkeypatch.setattr(resume, "write_sealed", full)
    monkeypatch.setattr("phasezero.engine.store.write_whole", full)
    checkpoint = tmp_path / "checkpoint.safetensors"
    record, _ = finish(config, toy_data, checkpoint=checkpoint, store=tmp_path / "s", save_every=0, callback=callback)
    assert record == whole
    assert any("cannot be saved" in note and "No space left" in note for note in callback.notes)
    assert any("the store" in note and "the run continues" in note for note in callback.notes)


def test_a_requested_stop_saves_the_state_first(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, checkpoint = toy_config(), tmp_path / "checkpoint.safetensors"
    whole, _ = finish(config, toy_data)
    asked = iter([False] * 5 + [True] * 3)
    with monkeypatch.context() as patched:
        patched.setattr(interrupt, "requested", lambda: next(asked))
        with pytest.raises(KeyboardInterrupt):
            run(config, data=toy_data, checkpoint=checkpoint)
    assert state_file(checkpoint).exists()
    callback = Continued()
    assert finish(config, toy_data, checkpoint=checkpoint, callback=callback)[0] == whole
    assert callback.places


def test_a_run_continues_under_other_conditions_only_if_allowed(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, checkpoint = toy_config(), tmp_path / "checkpoint.safetensors"
    with monkeypatch.context() as patched:
        stop_after(patched, 3)
        with pytest.raises(StoppedError):
            run(config, data=toy_data, checkpoint=checkpoint, save_every=0)
    real = resume.environment
    monkeypatch.setattr(resume, "environment", lambda *place: {**real(*place), "torch": "9.9", "threads": 7})
    with pytest.raises(UserError, match=r"under other conditions \(torch .* there, 9.9 here, threads 1 there, 7 here"):
        run(config, data=toy_data, checkpoint=checkpoint)
    record = run(config, data=toy_data, checkpoint=checkpoint, allow_changes=True).record
    (part,) = record["earlier_parts"]
    assert (part["phases"], part["environment"]["threads"]) == (0, 1)
    assert part["environment"]["torch"] == torch.__version__


def test_the_oracle_that_a_run_trains_continues_too(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    places = check_stops(toy_config("lucir+mimic/glyphs/b50s10"), toy_data, tmp_path, [2, 2])
    assert places[0][1] == "oracle train"


def test_phase_0_in_the_store_is_continued_by_another_method(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped LUCIR leaves phase 0 half trained in the store; ridge, which shares it, finishes it."""
    lucir, ridge = toy_config("lucir/glyphs/b50s10"), toy_config("ridge/glyphs/b50s10")
    whole, _ = finish(ridge, toy_data)
    store, callback = tmp_path / "store", Continued()
    with monkeypatch.context() as patched:
        stop_after(patched, 5)
        with pytest.raises(StoppedError):
            run(lucir, data=toy_data, checkpoint=tmp_path / "a.safetensors", store=store, save_every=0)
    record, _ = finish(ridge, toy_data, store=store, callback=callback)
    assert record == whole
    assert callback.places == [(0, "train", 1)]
    assert not [*store.glob("*within*")]
    assert run(lucir, data=toy_data, store=store).record["timing"]["reused_phase_zero"]


@pytest.fixture
def _late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the losses of an epoch after the next epoch was queued, as on a GPU."""
    original = StageRun.__init__

    def init(self: StageRun, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        self.on_cpu = False

    monkeypatch.setattr(StageRun, "__init__", init)


@pytest.mark.usefixtures("_late")
@pytest.mark.parametrize("name", ["lucir", "aanet"])
def test_losses_that_are_read_late_are_part_of_the_state(
    name: str, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_config(f"{name}/glyphs/b50s10", training__first__epochs=4)
    assert len(check_stops(config, toy_data, tmp_path, [2, 5, 3, 6])) == 4


@pytest.mark.usefixtures("_late")
def test_losses_that_are_read_late_are_reported_in_order(toy_config: Make, toy_data: ImageData) -> None:
    order, epoch = list[str](), StagePass.epoch

    class Epochs(Callback):
        def on_epoch_end(self, phase: Phase, stage: str, epoch: int, *facts: Any) -> None:
            order.append(f"ended {epoch}")

        def on_batch_end(self, *facts: Any) -> None:
            pytest.fail("a GPU would wait for the loss")

    def noted(self: StagePass, number: int, *others: Any) -> PendingNumber:
        order.append(f"queued {number}")
        return epoch(self, number, *others)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(StagePass, "epoch", noted)
        run(toy_config(training__first__epochs=3), data=toy_data, callback=Epochs())
    assert order[:6] == ["queued 0", "queued 1", "ended 0", "queued 2", "ended 1", "ended 2"]


def test_a_state_whose_loss_is_not_finite_is_not_saved(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(DivergenceError):
        run(toy_config(training__first__lr=1e12), data=toy_data, checkpoint=checkpoint, save_every=0)
    _, tensors = read_sealed(state_file(checkpoint), resume.FORMAT, "state")
    sums = [tensor for name, tensor in tensors.items() if name.startswith("pass.") and not tensor.dim()]
    assert sums  # of losses
    assert all(tensor.isfinite().all() for tensor in sums)
