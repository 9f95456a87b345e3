"""AANets on LUCIR, whole runs: what moves, what is shared, what a stop leaves; any memory, any precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.passes import StagePass
from phasezero.engine.trainer import Trainer
from phasezero.methods.aanet import Aanet
from phasezero.methods.lucir import Lucir
from phasezero.nets import IncrementalModel
from phasezero.results.record import comparable_part

Make = Callable[..., RunConfig]


def snapshot(model: IncrementalModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def toy_aanet(toy_config: Make, **settings: Any) -> RunConfig:
    """With a rate of the weights at which they are seen to move."""
    return toy_config("aanet/glyphs/b50s10", **{"method__weights_lr": 1e-3, **settings})


def test_kernels_stay_while_the_rest_learns(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_aanet(toy_config), toy_data)
    states = [snapshot(trainer.model) for _ in trainer.run()]
    first, second, third = states
    kernels = [name for name in second if name.endswith("kernel")]
    at_first = [tensor for tensor in first.values() if tensor.dim() == 4]  # in the same order
    for name, tensor in zip(kernels, at_first, strict=True):
        assert torch.equal(second[name], tensor), name
        assert torch.equal(third[name], tensor), name
    for name in set(second) - {*kernels, "head.blocks.0", "head.blocks.1"}:
        assert not torch.equal(third[name], second[name]), name
    assert torch.equal(third["head.blocks.1"], second["head.blocks.1"])
    assert (second["backbone.weights"] != 0.5).all()
    # The teacher is the whole model of the phase before, with its own weights.
    assert trainer.teacher is not None
    assert torch.equal(trainer.teacher.backbone.weights, third["backbone.weights"])
    assert trainer.teacher.backbone.weights is not trainer.model.backbone.weights
    assert trainer.teacher.backbone.weights.grad is None


def test_epochs_of_both_levels_take_turns(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(toy_aanet(toy_config), toy_data)
    diary: list[tuple[str, int, bool, list[int]]] = []
    epoch = StagePass.epoch

    def watched(self: StagePass, number: int, *arguments: Any) -> float:
        loss = epoch(self, number, *arguments)
        labels = trainer.train.labels[self.indices]
        counts = torch.bincount(labels, minlength=6).tolist()
        diary.append((self.stage.name, number, self.model.training, counts))
        return loss

    monkeypatch.setattr(StagePass, "epoch", watched)
    results = trainer.run()
    next(results)
    diary.clear()
    kept = [indices.clone() for indices in trainer.memory.by_class]
    result = next(results)
    assert [entry[:3] for entry in diary] == [
        ("train", 0, True),
        ("aggregate", 0, False),
        ("train", 1, True),
        ("aggregate", 1, False),
    ]
    assert diary[0][3] == [3, 3, 3, 3, 14, 14]
    assert diary[1][3][:4] == [3, 3, 3, 3]
    assert sum(diary[1][3][4:]) == 2 * 3
    assert diary[3][3] == diary[1][3]  # drawn once, before the phase
    assert [len(indices) for indices in kept] == [3] * 4
    assert list(result.loss) == ["train", "aggregate"]


def test_phase_0_is_lucirs(toy_config: Make, toy_data: ImageData) -> None:
    aanet = comparable_part(run(toy_aanet(toy_config), data=toy_data))
    lucir = comparable_part(run(toy_config("lucir/glyphs/b50s10"), data=toy_data))
    assert aanet["phases"][0] == lucir["phases"][0]
    assert aanet["phases"][1] != lucir["phases"][1]
    assert Aanet(Aanet.Options()).phase_zero() == Lucir(Lucir.Options()).phase_zero()


class StoppedError(Exception):
    pass


class StopIn:
    """A listener that breaks off in the first epoch of a phase."""

    def __init__(self, phase: int) -> None:
        self.at = phase

    def started(self, phases: int, total_images: int) -> None: ...

    def epoch(self, phase: Phase, *rest: object) -> None:
        if phase.index == self.at:
            raise StoppedError

    def phase(self, result: object) -> None: ...


@pytest.mark.parametrize("stop_in", [1, 2])
@pytest.mark.parametrize("accumulate", [True, False])
def test_a_stopped_run_goes_on_to_the_same_record(
    stop_in: int, accumulate: bool, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_aanet(toy_config, method__accumulate=accumulate)
    whole = run(config, data=toy_data)
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(StoppedError):
        run(config, data=toy_data, listener=StopIn(stop_in), checkpoint=checkpoint)
    assert comparable_part(run(config, data=toy_data, checkpoint=checkpoint)) == comparable_part(whole)


def test_the_gradient_sum_goes_on_after_a_stop(toy_config: Make, toy_data: ImageData) -> None:
    """So that the test above cannot pass by chance: a sum lost between phases is another model."""
    config = toy_aanet(toy_config)
    straight = Trainer(config, toy_data)
    states = [(snapshot(straight.model), list(straight.memory.by_class)) for _ in straight.run()]
    ends = []
    for keep in (True, False):
        trainer = Trainer(config, toy_data)
        state = dict(states[1][0])
        assert (state["backbone.gradient_sum"] != 0).all()
        if not keep:
            state["backbone.gradient_sum"] = torch.zeros_like(state["backbone.gradient_sum"])
        trainer.restore(2, state, states[1][1])
        list(trainer.run())
        ends.append(trainer.model.state_dict()["backbone.weights"])
    assert torch.equal(ends[0], states[2][0]["backbone.weights"])
    assert not torch.equal(ends[1], states[2][0]["backbone.weights"])


@pytest.mark.parametrize("memory", ["per_class:0", "total:20"])
def test_other_memories(memory: str, toy_config: Make, toy_data: ImageData) -> None:
    record = run(toy_aanet(toy_config, protocol__memory=memory), data=toy_data)
    assert len(record["phases"]) == 3


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_runs(precision: str, toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_aanet(toy_config, engine__precision=precision, engine__device="cpu"), toy_data)
    list(trainer.run())
    assert trainer.train_features(trainer.train_by_class[0]).dtype == torch.float32
    assert trainer.model.backbone.weights.dtype == torch.float32
