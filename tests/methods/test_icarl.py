"""Both losses that are called iCaRL's, against sums written out sample by sample and class by class."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.methods.icarl import Icarl, distillation, sigmoid_cross_entropy
from phasezero.nets import LinearHead
from phasezero.presets import preset
from phasezero.schedule import Schedule
from samples import Make, train
from slow import batch_of, cross_entropy, normal, same_with_gradient, softmax

FIRST, LATER = Phase(0, 0, 6), Phase(1, 4, 2)


def slow_lucir_distillation(logits: Tensor, old_logits: Tensor, temperature: float, beta: float) -> Tensor:
    """Return what LUCIR's code computes: the mean over all entries, times T^2, beta and the number of old classes."""
    samples, classes = old_logits.shape
    total = logits.sum() * 0
    for row, old_row in zip(logits, old_logits, strict=True):
        found, wanted = softmax(row / temperature), softmax(old_row / temperature)
        for p, q in zip(wanted, found, strict=True):
            total = total + p * (p.log() - q.log())
    return total / (samples * classes) * temperature**2 * beta * classes


def slow_sigmoid_loss(logits: Tensor, labels: list[int], old_logits: Tensor | None) -> Tensor:
    total = logits.sum() * 0
    for i, row in enumerate(logits):
        for c, value in enumerate(row):
            yes = 1 / (1 + (-value).exp())
            wanted = 1.0 if labels[i] == c else 0.0
            if old_logits is not None and c < old_logits.shape[1]:
                wanted = 1 / (1 + math.exp(-old_logits[i, c].item()))
            total = total - wanted * yes.log() - (1 - wanted) * (1 - yes).log()
    return total / logits.numel()


def test_distillation_is_lucirs() -> None:
    """LUCIR's beta of 0.25 at a temperature of 2 is a weight of exactly 1."""
    logits, old = normal(6, 4).requires_grad_(), normal(6, 4, seed=1)
    same_with_gradient(distillation(logits, old, 2.0), slow_lucir_distillation(logits, old, 2.0, 0.25), logits)


@pytest.mark.parametrize("old_classes", [None, 1, 3])
def test_sigmoid_loss(old_classes: int | None) -> None:
    logits, labels = normal(7, 5).requires_grad_(), [0, 4, 2, 3, 0, 1, 4]
    old = None if old_classes is None else normal(7, old_classes, seed=1)
    expected = slow_sigmoid_loss(logits, labels, old)
    same_with_gradient(sigmoid_cross_entropy(logits, torch.tensor(labels), old), expected, logits)


@pytest.mark.parametrize(("form", "phase"), [("cross-entropy", LATER), ("sigmoid", LATER), ("sigmoid", FIRST)])
def test_the_whole_loss(form: str, phase: Phase) -> None:
    logits, labels = normal(5, 6).requires_grad_(), [0, 4, 2, 5, 3]
    old = normal(5, phase.old, seed=1) if phase.old else None
    method = Icarl(Icarl.Options(form=form, distillation=0.7, temperature=3.0))
    loss = method.make_loss(phase)(batch_of(logits, labels, old))
    if form == "sigmoid":
        expected = slow_sigmoid_loss(logits, labels, old)
    else:
        expected = cross_entropy(logits, labels) + 0.7 * slow_lucir_distillation(logits[:, :4], old, 3.0, 1 / 9)
    same_with_gradient(loss, expected, logits)


def test_the_presets_hold_the_published_numbers() -> None:
    common = preset("icarl/cifar100/b50s10")
    head = Icarl(common.method).make_head(4)
    assert isinstance(head, LinearHead)
    assert head.biases is not None
    assert common.method == Icarl.Options(form="cross-entropy", distillation=1.0, temperature=2.0)
    assert common.training.first == common.training.later == Schedule()
    cifar = Schedule(epochs=70, lr=2.0, milestones=(49, 63), decay=0.2, weight_decay=5e-5, shift=-1)
    assert (cifar.lr_at(49), cifar.lr_at(50)) == (2.0, 0.4)  # that code steps its schedule after an epoch
    drops = {"milestones": (20, 30, 40, 50), "decay": 0.2}
    imagenet = Schedule(epochs=60, lr=1.0, **drops, weight_decay=1e-5, batch_size=64, shift=-1)
    recipes = {"cifar100/b50s10": cifar, "imagenet100-podnet/b50s10": imagenet, "imagenet/b100s100": imagenet}
    for data, schedule in recipes.items():
        config = preset(f"icarl-sigmoid/{data}")
        assert config.training.first == config.training.later == schedule
        assert config.method == Icarl.Options(variant="sigmoid", form="sigmoid")
        assert config.network.last_relu


@pytest.mark.parametrize("name", ["icarl", "icarl-sigmoid"])
def test_it_learns_and_reports_the_nearest_mean(name: str, toy_config: Make, toy_data: ImageData) -> None:
    longer = {f"training__{which}__epochs": 8 for which in ("first", "later")}
    record = train(toy_config(f"{name}/glyphs/b50s10", **longer), data=toy_data)
    summary = record["summary"]["nearest_mean"]
    assert summary is not None
    assert summary["average_incremental_accuracy"] > 50  # chance is 25, then 17, then 12.5
