"""LwF's losses against sums written out sample by sample, with exemplars and without."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.trainer import Trainer
from phasezero.methods.base import Batch
from phasezero.methods.lwf import LwF, new_class_cross_entropy, softened_cross_entropy
from phasezero.nets import LinearHead, Output
from phasezero.presets import preset
from slow import normal, same_with_gradient, softmax

Make = Callable[..., RunConfig]


# ---- slow references: plain sums over single numbers, differentiable --------------------------------------


def slow_softened(row: Tensor, temperature: float) -> list[Tensor]:
    """As FACIL writes it: probabilities to the power of 1/T, made to sum to 1."""
    powers = [p ** (1 / temperature) for p in softmax(row)]
    return [power / sum(powers) for power in powers]


def slow_distillation(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    losses = []
    for row, old_row in zip(logits, old_logits, strict=True):
        found = [q + 1e-5 / len(row) for q in slow_softened(row, temperature)]
        found = [q / sum(found) for q in found]
        wanted = slow_softened(old_row, temperature)
        losses.append(-sum(p * q.log() for p, q in zip(wanted, found, strict=True)))
    return sum(losses) / len(losses)


def slow_cross_entropy(logits: Tensor, labels: list[int]) -> Tensor:
    losses = [-softmax(row)[label].log() for row, label in zip(logits, labels, strict=True)]
    return sum(losses) / len(losses)


# ---- the losses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_distillation(temperature: float) -> None:
    logits, old = normal(6, 4).requires_grad_(), normal(6, 4, seed=1)
    expected = slow_distillation(logits, old, temperature)
    same_with_gradient(softened_cross_entropy(logits, old, temperature), expected, logits)


def test_distillation_survives_probabilities_of_zero() -> None:
    logits = torch.tensor([[-400.0, 400.0]], requires_grad=True)
    loss = softened_cross_entropy(logits, -logits.detach(), 2.0)
    assert loss.item() == pytest.approx(-math.log(1e-5 / 2 / (1 + 1e-5)), rel=1e-5)
    loss.backward()
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("labels", [[3, 4, 4, 5], [0, 4, 2, 5], [1, 1, 2, 3]])
def test_cross_entropy_of_the_new_classes(labels: list[int]) -> None:
    logits = normal(4, 6).requires_grad_()
    new = [i for i, label in enumerate(labels) if label >= 3]
    expected = slow_cross_entropy(logits[new][:, 3:], [labels[i] - 3 for i in new])
    same_with_gradient(new_class_cross_entropy(logits, torch.tensor(labels), 3), expected, logits)


def test_no_new_sample_is_a_zero_that_backpropagates() -> None:
    logits = normal(3, 6).requires_grad_()
    loss = new_class_cross_entropy(logits, torch.tensor([0, 1, 2]), 3)
    assert loss.item() == 0.0
    loss.backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("form", ["all", "new"])
def test_the_whole_loss(form: str) -> None:
    labels = [3, 4, 4, 5, 3] if form == "new" else [0, 4, 2, 5, 3]
    logits, old = normal(5, 6).requires_grad_(), normal(5, 3, seed=1)
    batch = Batch(
        torch.empty(0),
        torch.tensor(labels),
        Output(logits, logits, logits, ()),
        Output(old, old, old, ()),
    )
    options = LwF.Options(distillation=0.7, temperature=3.0, cross_entropy=form)
    loss = LwF(options).make_loss(Phase(1, 3, 3))(batch)
    learned = (
        slow_cross_entropy(logits, labels)
        if form == "all"
        else slow_cross_entropy(logits[:, 3:], [label - 3 for label in labels])
    )
    same_with_gradient(loss, learned + 0.7 * slow_distillation(logits[:, :3], old, 3.0), logits)


def test_phase_0_is_cross_entropy() -> None:
    logits, labels = normal(6, 4).requires_grad_(), [0, 1, 2, 3, 0, 1]
    batch = Batch(torch.empty(0), torch.tensor(labels), Output(logits, logits, logits, ()), None)
    for form in ("all", "new"):
        loss = LwF(LwF.Options(cross_entropy=form)).make_loss(Phase(0, 0, 4))(batch)
        same_with_gradient(loss, slow_cross_entropy(logits, labels), logits)


# ---- whole runs -------------------------------------------------------------------------------------------


def blocks_after_each_phase(config: RunConfig, data: ImageData) -> list[list[Tensor]]:
    trainer = Trainer(config, data)
    return [[block.detach().clone() for block in trainer.model.head.blocks] for _ in trainer.run()]


def test_without_exemplars_old_heads_do_not_move(toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config("lwf-free/glyphs/b50s10", protocol__memory="per_class:0")
    for earlier, later in itertools.pairwise(blocks_after_each_phase(config, toy_data)):
        for old, same in zip(earlier, later, strict=False):
            assert torch.equal(old, same)


def test_with_exemplars_all_heads_learn(toy_config: Make, toy_data: ImageData) -> None:
    for earlier, later in itertools.pairwise(
        blocks_after_each_phase(toy_config("lwf/glyphs/b50s10"), toy_data)
    ):
        for old, moved in zip(earlier, later, strict=False):
            assert not torch.equal(old, moved)


def test_the_presets_hold_the_published_numbers() -> None:
    config = preset("lwf/cifar100/b50s10")
    options = config.method
    assert isinstance(options, LwF.Options)
    assert (options.distillation, options.temperature, options.cross_entropy) == (1.0, 2.0, "all")
    assert config.network.last_relu
    assert config.protocol.memory == "per_class:20"
    for schedule in (config.training.first, config.training.later):
        assert (schedule.epochs, schedule.lr, schedule.milestones) == (160, 0.1, (80, 120))
        assert (schedule.decay, schedule.momentum, schedule.weight_decay) == (0.1, 0.9, 5e-4)
    head = LwF(options).make_head(4)
    assert isinstance(head, LinearHead)
    assert head.biases is None
    free = preset("lwf-free/cifar100/b50s10")
    assert free.protocol.memory == "per_class:0"
    assert isinstance(free.method, LwF.Options)
    assert free.method.cross_entropy == "new"
