"""Joint training: on everything, from the beginning, and the same when it was stopped in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.trainer import PhaseResult, Trainer
from phasezero.methods.base import Batch
from phasezero.methods.joint import Joint
from phasezero.nets import CosineHead, Output
from phasezero.presets import preset
from phasezero.results.record import comparable_part
from slow import cross_entropy, same_with_gradient

Make = Callable[..., RunConfig]
JOINT = "joint/glyphs/b50s10"


class StoppedError(Exception):
    pass


class Quiet:
    def started(self, phases: int, total_images: int) -> None: ...

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None: ...

    def phase(self, result: PhaseResult) -> None: ...


class StopInPhase2(Quiet):
    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        if phase.index == 2:
            raise StoppedError


def states_before_training(config: RunConfig, data: ImageData) -> list[dict[str, Tensor]]:
    """The model's tensors as each phase's training finds them, of a whole run."""
    trainer = Trainer(config, data)
    stages, states = trainer.method.stages, []

    def watched(*arguments: object) -> object:
        states.append({name: tensor.clone() for name, tensor in trainer.model.state_dict().items()})
        return stages(*arguments)  # type: ignore[arg-type]

    trainer.method.stages = watched  # type: ignore[method-assign, assignment]
    list(trainer.run())
    return states


def test_the_loss_is_cross_entropy_over_all_classes_seen() -> None:
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    labels = [0, 4, 2, 3]
    batch = Batch(torch.empty(0), torch.tensor(labels), Output(logits, logits, logits, ()), None)
    loss = Joint(Joint.Options()).make_loss(Phase(1, 3, 2))(batch)
    same_with_gradient(loss, cross_entropy(logits, labels), logits)


def test_it_is_set_as_lucirs_phase_0() -> None:
    assert isinstance(Joint(Joint.Options()).make_head(4), CosineHead)
    for data in ("glyphs", "cifar100", "imagenet100-cwd", "imagenet"):
        base = 100 if data == "imagenet" else 50
        step = 100 if data == "imagenet" else 10
        joint, lucir = (preset(f"{method}/{data}/b{base}s{step}") for method in ("joint", "lucir"))
        assert joint.network == lucir.network
        assert joint.training.first == joint.training.later == lucir.training.first


def test_phase_0_is_lucirs(toy_config: Make, toy_data: ImageData) -> None:
    joint, lucir = (
        run(toy_config(f"{method}/glyphs/b50s10", protocol__phase_sizes=[4]), data=toy_data)["phases"][0]
        for method in ("joint", "lucir")
    )
    assert joint["loss"] == lucir["loss"]
    assert joint["accuracy"] == lucir["accuracy"]


def test_every_phase_starts_anew(toy_config: Make, toy_data: ImageData) -> None:
    first, *later = states_before_training(toy_config(JOINT, protocol__phase_sizes=[2, 1, 1]), toy_data)
    for state in later:
        for name, tensor in first.items():
            if name.startswith("backbone"):
                assert torch.equal(state[name], tensor), name
        assert state["head.scale"].item() == 1.0
    # Class weights are drawn again, in all blocks, within their bound.
    assert not torch.equal(later[0]["head.blocks.0"], first["head.blocks.0"])
    assert later[1]["head.blocks.0"].abs().max() <= 1 / 64**0.5


def test_or_it_goes_on(toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config(JOINT, method__from_scratch=False, protocol__phase_sizes=[2, 1])
    first, second = states_before_training(config, toy_data)
    assert not torch.equal(first["backbone.stem.0.weight"], second["backbone.stem.0.weight"])
    assert second["head.scale"].item() != 1.0


def test_every_phase_trains_on_everything_and_a_stopped_run_goes_on_to_the_same_record(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_config(JOINT)
    whole = run(config, data=toy_data)
    assert [phase["train_images"] for phase in whole["phases"]] == [4 * 14, 6 * 14, 8 * 14]
    checkpoint = tmp_path / "checkpoint.safetensors"
    with pytest.raises(StoppedError):
        run(config, data=toy_data, listener=StopInPhase2(), checkpoint=checkpoint)
    assert comparable_part(run(config, data=toy_data, checkpoint=checkpoint)) == comparable_part(whole)
