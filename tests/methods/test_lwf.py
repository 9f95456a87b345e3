"""LwF's losses against sums written out sample by sample, with exemplars and without."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import slow
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.trainer import Trainer
from phasezero.methods.lwf import LwF, new_class_cross_entropy, softened_cross_entropy
from phasezero.nets import LinearHead
from phasezero.presets import preset
from phasezero.schedule import Schedule
from samples import Make
from slow import batch_of, cross_entropy, is_zero_with_gradient, normal, same_with_gradient


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_distillation(temperature: float) -> None:
    logits, old = normal(6, 4).requires_grad_(), normal(6, 4, seed=1)
    expected = slow.softened_cross_entropy(logits, old, temperature)
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
    expected = cross_entropy(logits[new][:, 3:], [labels[i] - 3 for i in new])
    same_with_gradient(new_class_cross_entropy(logits, torch.tensor(labels), 3), expected, logits)


def test_no_new_sample_is_a_zero_with_a_gradient() -> None:
    logits = normal(3, 6).requires_grad_()
    is_zero_with_gradient(new_class_cross_entropy(logits, torch.tensor([0, 1, 2]), 3), logits)


@pytest.mark.parametrize("form", ["all", "new"])
def test_the_whole_loss(form: str) -> None:
    labels = [3, 4, 4, 5, 3] if form == "new" else [0, 4, 2, 5, 3]
    logits, old = normal(5, 6).requires_grad_(), normal(5, 3, seed=1)
    options = LwF.Options(distillation=0.7, temperature=3.0, cross_entropy=form)
    loss = LwF(options).make_loss(Phase(1, 3, 3))(batch_of(logits, labels, old))
    learned = cross_entropy(logits, labels)
    if form == "new":
        learned = cross_entropy(logits[:, 3:], [label - 3 for label in labels])
    same_with_gradient(loss, learned + 0.7 * slow.softened_cross_entropy(logits[:, :3], old, 3.0), logits)


@pytest.mark.parametrize(("name", "memory", "learn"), [("lwf-free", 0, False), ("lwf", 3, True)])
def test_old_heads_learn_only_with_exemplars(
    name: str, memory: int, learn: bool, toy_config: Make, toy_data: ImageData
) -> None:
    trainer = Trainer(toy_config(f"{name}/glyphs/b50s10", protocol__memory=f"per_class:{memory}"), toy_data)
    heads = [[block.detach().clone() for block in trainer.model.head.blocks] for _ in trainer.run()]
    for earlier, later in itertools.pairwise(heads):
        for before, after in zip(earlier, later, strict=False):
            assert torch.equal(before, after) != learn


def test_the_presets_hold_the_published_numbers() -> None:
    config = preset("lwf/cifar100/b50s10")
    assert config.method == LwF.Options(distillation=1.0, temperature=2.0, cross_entropy="all")
    assert (config.network.last_relu, config.protocol.memory) == (True, "per_class:20")
    schedule = Schedule(160, 0.1, "step", (80, 120), decay=0.1, momentum=0.9, weight_decay=5e-4)
    assert config.training.first == config.training.later == schedule
    head = LwF(config.method).make_head(4)
    assert isinstance(head, LinearHead)
    assert head.biases is None
    free = preset("lwf-free/cifar100/b50s10")
    assert free.protocol.memory == "per_class:0"
    assert free.method == LwF.Options(variant="free", cross_entropy="new")
