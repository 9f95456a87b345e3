"""On a CUDA device: captured steps do what eager steps do, for every method. Skipped without a device."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phasezero import Learner
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine import resume, stage, step
from phasezero.engine.callbacks import Callback
from phasezero.engine.stage import PendingNumber
from phasezero.engine.within import SavedState
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS
from phasezero.methods.base import both_phases
from phasezero.presets import build_config, with_strategies
from phasezero.runs.session import run_all
from samples import StoppedError, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def small(method: str, precision: str, engine: str) -> RunConfig:
    """Four phase-0 classes and twice two more; 14 images a class make full batches and a tail."""
    config = build_config(method, "glyphs", initial=["cwd"], base=4, step=2)
    schedule = both_phases(epochs=3, milestones=[2], batch_size=16, lr=0.01)
    where = {"engine.device": "cuda", "engine.precision": precision, "engine.engine": engine}
    return config.override({**schedule, **where, "protocol.memory": "per_class:4"})


def losses(config: RunConfig, data: ImageData) -> list[float]:
    phases = train(config, data=data)["phases"]
    for phase in phases:
        if config.engine.device == "cuda":
            assert phase["gpu"]["peak_memory_mib"] > 0
            captured = phase["gpu"]["capture_seconds"]
            trained = bool(phase["loss"])  # a frozen backbone is not trained in later phases
            assert captured == 0 if config.engine.engine == "eager" or not trained else captured > 0
    return [loss for phase in phases for values in phase["loss"].values() for loss in values]


@pytest.fixture
def fixed_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use cuDNN's algorithms that add in a fixed order, and no search for others.

    Training is chaotic: weights that differ by a millionth when a phase starts part LUCIR's losses by up to 8% in the
    last epoch of `small`.
    """
    monkeypatch.setattr(step, "algorithm_search", lambda wanted: contextlib.nullcontext())
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


@pytest.mark.parametrize("method", list(METHODS))
def test_captured_equals_eager(method: str, toy_data: ImageData, fixed_order: None) -> None:
    eager = losses(small(method, "fp32", "eager"), toy_data)
    captured = losses(small(method, "fp32", "captured"), toy_data)
    assert captured == eager


def test_a_gpu_queues_an_epoch_before_it_reports_the_one_before(
    toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    epoch = stage.StagePass.epoch

    def noted(self: stage.StagePass, number: int, rng: torch.Generator, *within: Any) -> PendingNumber:
        order.append(f"queued {number}")
        return epoch(self, number, rng, *within)

    class Epochs(Callback):
        def on_batch_end(self, *facts: object) -> None:
            order.append("batch")

        def on_epoch_end(self, phase: Phase, stage: str, epoch: int, *facts: object) -> None:
            order.append(f"ended {epoch}")

    monkeypatch.setattr(stage.StagePass, "epoch", noted)
    train(small("finetune", "fp32", "captured"), data=toy_data, callback=Epochs())
    assert order[:6] == ["queued 0", "queued 1", "ended 0", "queued 2", "ended 1", "ended 2"]
    assert "batch" not in order


@pytest.mark.parametrize("strategies", [*((name,) for name in STRATEGIES), ("augment", "mixup", "sla", "cwd:0.25")])
def test_captured_strategies_equal_eager_strategies(
    strategies: tuple[str, ...], toy_data: ImageData, fixed_order: None
) -> None:
    eager, captured = (with_strategies(small("lucir", "fp32", one), strategies) for one in ("eager", "captured"))
    assert losses(captured, toy_data)[:3] == losses(eager, toy_data)[:3]


def test_a_reading_waits_for_nothing_that_was_queued_after_it() -> None:
    value = torch.full((), 1.5, device="cuda", dtype=torch.float64)
    float(PendingNumber(value))  # its memory is there now: to allocate it may wait for the device
    reading = PendingNumber(2 * value)
    torch.cuda._sleep(4_000_000_000)  # cycles of the device's clock: seconds
    after = torch.cuda.Event()
    after.record()
    assert float(reading) == 3.0
    assert not after.query()


def test_no_epoch_waits_for_the_one_before(toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is kept busy after each epoch. The next epoch must be queued before that is over."""
    busy: list[torch.cuda.Event] = []
    in_time = []

    class Watched(PendingNumber):
        def __init__(self, value: torch.Tensor) -> None:
            in_time.extend(not event.query() for event in busy[-1:])
            super().__init__(value)
            torch.cuda._sleep(1_000_000_000)  # cycles: about half a second
            busy.append(torch.cuda.Event())
            busy[-1].record()

    monkeypatch.setattr(stage, "PendingNumber", Watched)
    config = small("lucir", "fp16", "captured")
    train(replace(config, protocol=replace(config.protocol, phase_sizes=(4,))), data=toy_data)
    assert in_time == [True, True]


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_other_precisions_follow_float32(precision: str, toy_data: ImageData) -> None:
    exact = losses(small("lucir", "fp32", "eager"), toy_data)
    assert losses(small("lucir", precision, "captured"), toy_data)[:3] == pytest.approx(exact[:3], rel=0.05)


@pytest.mark.parametrize("method", ["lucir", "podnet"])
def test_compiled_follows_captured(method: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "COMPILATION_PAYS", 0)  # the loss too
    captured = losses(small(method, "fp32", "captured"), toy_data)
    assert losses(small(method, "fp32", "compiled"), toy_data)[:5] == pytest.approx(captured[:5], rel=0.02)


@pytest.mark.parametrize("term", list(STRATEGIES))
def test_every_term_compiles(term: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mimic's oracle is trained within the run, and so compiled itself."""
    monkeypatch.setattr(stage, "COMPILATION_PAYS", 0)
    captured, compiled = (with_strategies(small("lucir", "fp32", one), [term]) for one in ("captured", "compiled"))
    expected = losses(captured, toy_data)
    assert losses(compiled, toy_data)[:5] == pytest.approx(expected[:5], rel=0.02)


@pytest.mark.parametrize("engine", ["captured", "compiled"])
def test_packed_runs_are_what_they_are_alone(engine: str, tmp_path: Path, fixed_order: None) -> None:
    """Packing must not change results beyond rounding."""
    changes = {"protocol.phase_sizes": [6, 3, 1], "protocol.data": "glyphs", "training.first.epochs": 30}
    configs = [replace(small("lucir", "fp32", engine).override(changes), seed=seed) for seed in range(5)]
    packed = run_all(configs, out=tmp_path / "packed", parallel=4).records
    alone = run_all(configs, out=tmp_path / "alone", parallel=1).records
    for one, other in zip(packed, alone, strict=True):
        for phase, same in zip(one["phases"], other["phases"], strict=True):
            assert phase["loss"]["train"] == pytest.approx(same["loss"]["train"], rel=1e-5)
            assert phase["accuracy"] == same["accuracy"]


def test_the_first_phase_is_the_cpus(toy_data: ImageData) -> None:
    on_gpu = losses(small("lucir", "fp32", "captured"), toy_data)
    on_cpu = losses(small("lucir", "fp32", "eager").override({"engine.device": "cpu"}), toy_data)
    assert on_gpu[:3] == pytest.approx(on_cpu[:3], rel=0.02)


@pytest.mark.parametrize("method", ["lucir", "aanet", "ridge"])
def test_a_stop_within_a_phase_changes_nothing_but_rounding(
    method: str, toy_data: ImageData, fixed_order: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, keep, saves = small(method, "fp32", "captured"), resume._Resumable.keep, list[int]()

    def stopping(self: resume._Resumable, state: SavedState | None) -> None:
        keep(self, state)
        saves.append(1)
        if len(saves) in (3, 7):
            raise StoppedError

    whole = losses(config, toy_data)
    monkeypatch.setattr(resume._Resumable, "keep", stopping)
    monkeypatch.setattr(resume, "SHARE", float("inf"))
    places = {"checkpoint": tmp_path / "checkpoint.safetensors", "save_every": 0}
    for _ in range(2):
        with pytest.raises(StoppedError):
            train(config, data=toy_data, **places)
    phases = train(config, data=toy_data, **places)["phases"]
    again = [loss for phase in phases for values in phase["loss"].values() for loss in values]
    assert again == pytest.approx(whole, rel=1e-4)


def test_a_learner_moves_between_devices(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 32, 32, 3), dtype=np.uint8)
    learner = Learner(device="cuda").fit(images, np.repeat(["a", "b", "c"], 4))
    learner.save(tmp_path / "model")
    moved = Learner.load(tmp_path / "model", device="cpu")
    assert moved.predict_proba(images) == pytest.approx(learner.predict_proba(images), abs=1e-3)
