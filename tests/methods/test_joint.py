"""Joint training: on all images of all classes seen, from scratch in each phase."""

from __future__ import annotations

import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine.trainer import Trainer
from phasezero.methods.joint import Joint
from phasezero.nets import CosineHead
from phasezero.presets import preset
from samples import Make, train

JOINT = "joint/glyphs/b50s10"


def states_before_training(config: RunConfig, data: ImageData) -> list[dict[str, Tensor]]:
    """Return the model's tensors as they are when the training of each phase begins."""
    trainer = Trainer(config, data)
    stages, states = trainer.method.stages, []

    def watched(*arguments: object) -> object:
        states.append({name: tensor.clone() for name, tensor in trainer.model.state_dict().items()})
        return stages(*arguments)  # type: ignore[arg-type]

    trainer.method.stages = watched  # type: ignore[method-assign, assignment]
    list(trainer.run())
    return states


def test_its_settings_are_those_of_lucirs_phase_0() -> None:
    assert isinstance(Joint(Joint.Options()).make_head(4), CosineHead)
    for data in ("glyphs/b50s10", "cifar100/b50s10", "imagenet100-cwd/b50s10", "imagenet/b100s100"):
        joint, lucir = (preset(f"{method}/{data}") for method in ("joint", "lucir"))
        assert joint.network == lucir.network
        assert joint.training.first == joint.training.later == lucir.training.first


def test_every_phase_starts_from_scratch(toy_config: Make, toy_data: ImageData) -> None:
    first, *later = states_before_training(toy_config(JOINT, protocol__phase_sizes=[2, 1, 1]), toy_data)
    for state in later:
        for name, tensor in first.items():
            if name.startswith("backbone"):
                assert torch.equal(state[name], tensor), name
        assert state["head.scale"].item() == 1.0
    # All class weights are drawn again, within their bound.
    assert not torch.equal(later[0]["head.blocks.0"], first["head.blocks.0"])
    assert later[1]["head.blocks.0"].abs().max() <= 1 / 64**0.5


def test_or_it_continues(toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config(JOINT, method__from_scratch=False, protocol__phase_sizes=[2, 1])
    first, second = states_before_training(config, toy_data)
    assert not torch.equal(first["backbone.stem.0.weight"], second["backbone.stem.0.weight"])
    assert second["head.scale"].item() != 1.0


def test_every_phase_trains_on_all_images_of_all_classes_seen(toy_config: Make, toy_data: ImageData) -> None:
    record = train(toy_config(JOINT), data=toy_data)
    assert [phase["train_images"] for phase in record["phases"]] == [4 * 14, 6 * 14, 8 * 14]
