"""Runs of AANets on LUCIR: what moves, what a stop must keep, any memory and precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine.stage import StagePass
from phasezero.engine.trainer import Trainer
from phasezero.methods.lucir import imprint
from phasezero.nets import IncrementalModel
from phasezero.nets.aggregated import AggregatedResNet
from samples import Make, train, watch_epochs


def snapshot(model: IncrementalModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def toy_aanet(toy_config: Make, **settings: Any) -> RunConfig:
    """Return a configuration with a learning rate at which the weights visibly move."""
    return toy_config("aanet/glyphs/b50s10", **{"method__weights_lr": 1e-3, **settings})


def test_kernels_stay_while_the_rest_learns(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_aanet(toy_config), toy_data)
    first, second, third = (snapshot(trainer.model) for _ in trainer.run())
    kernels = [name for name in second if name.endswith("kernel")]
    at_first = [tensor for tensor in first.values() if tensor.dim() == 4]  # in the same order
    for name, tensor in zip(kernels, at_first, strict=True):
        assert torch.equal(second[name], tensor), name
        assert torch.equal(third[name], tensor), name
    for name in set(second) - {*kernels, "head.blocks.0", "head.blocks.1"}:
        assert not torch.equal(third[name], second[name]), name
    assert torch.equal(third["head.blocks.1"], second["head.blocks.1"])
    assert (second["backbone.weights"] != 0.5).all()
    # The next teacher is a copy of the whole model, with its own weights.
    assert trainer.teacher is not None
    taught = trainer.teacher.backbone.weights
    assert torch.equal(taught, third["backbone.weights"])
    assert taught is not trainer.model.backbone.weights
    assert taught.grad is None


def test_epochs_of_both_levels_alternate(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Trainer(toy_aanet(toy_config), toy_data)
    diary: list[tuple[str, int, bool, list[int]]] = []

    def note(one: StagePass, epoch: int) -> None:
        counts = torch.bincount(trainer.train.labels[one.indices], minlength=6).tolist()
        diary.append((one.stage.name, epoch, one.model.training, counts))

    watch_epochs(monkeypatch, note)
    results = trainer.run()
    next(results)
    diary.clear()
    result = next(results)
    expected = [(stage, number, stage == "train") for number in range(2) for stage in ("train", "aggregate")]
    assert [entry[:3] for entry in diary] == expected
    assert diary[0][3] == [3, 3, 3, 3, 14, 14]
    assert diary[1][3][:4] == [3, 3, 3, 3]
    assert sum(diary[1][3][4:]) == 2 * 3
    assert diary[3][3] == diary[1][3]  # drawn once, before the phase
    assert list(result.record["loss"]) == ["train", "aggregate"]


def test_the_gradient_sum_continues_after_a_stop(toy_config: Make, toy_data: ImageData) -> None:
    """A restored run has the same weights at the end. With the sum lost between phases it does not."""
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


def test_a_run_without_exemplars(toy_config: Make, toy_data: ImageData) -> None:
    settings = {"protocol__memory": "per_class:0", "protocol__phase_sizes": [4, 2]}
    record = train(toy_aanet(toy_config, **settings), data=toy_data)
    assert list(record["phases"][1]["loss"]) == ["train", "aggregate"]


def test_new_class_weights_are_imprinted_with_aggregated_features(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_aanet(toy_config, training__later__epochs=0), toy_data)
    results = trainer.run()
    next(results)
    old = trainer.model.head.weight().detach().clone()
    next(results)
    assert isinstance(trainer.model.backbone, AggregatedResNet)
    features = [trainer.train_features(trainer.train_by_class[position]) for position in (4, 5)]
    assert torch.allclose(trainer.model.head.blocks[1], imprint(old, features))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_runs(precision: str, toy_config: Make, toy_data: ImageData) -> None:
    settings = {"engine__precision": precision, "engine__device": "cpu", "protocol__phase_sizes": [4, 2]}
    trainer = Trainer(toy_aanet(toy_config, **settings), toy_data)
    list(trainer.run())
    assert trainer.train_features(trainer.train_by_class[0]).dtype == torch.float32
    assert trainer.model.backbone.weights.dtype == torch.float32
