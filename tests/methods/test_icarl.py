"""Both losses that go by iCaRL's name, against sums written out sample by sample and class by class."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.methods.base import Batch
from phasezero.methods.icarl import Icarl, distillation, sigmoid_cross_entropy
from phasezero.nets import LinearHead, Output
from phasezero.presets import preset
from phasezero.schedule import Schedule
from slow import normal, same_with_gradient, softmax

Make = Callable[..., RunConfig]


# ---- slow references: plain sums over single numbers, differentiable --------------------------------------


def slow_lucir_distillation(logits: Tensor, old_logits: Tensor, temperature: float, beta: float) -> Tensor:
    """As LUCIR's code writes it: the mean over all entries, times T^2, beta and the number of old classes."""
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


def slow_cross_entropy(logits: Tensor, labels: list[int]) -> Tensor:
    losses = [-softmax(row)[label].log() for row, label in zip(logits, labels, strict=True)]
    return sum(losses) / len(losses)


def batch_of(logits: Tensor, labels: list[int], old: Tensor | None) -> Batch:
    teacher = None if old is None else Output(old, old, old, ())
    return Batch(torch.empty(0), torch.tensor(labels), Output(logits, logits, logits, ()), teacher)


# ---- the losses -------------------------------------------------------------------------------------------


def test_distillation_is_lucirs() -> None:
    """LUCIR's beta of 0.25 at a temperature of 2 is a weight of exactly 1."""
    logits, old = normal(6, 4).requires_grad_(), normal(6, 4, seed=1)
    same_with_gradient(
        distillation(logits, old, 2.0), slow_lucir_distillation(logits, old, 2.0, 0.25), logits
    )


def test_distillation_of_the_same_is_zero() -> None:
    logits = normal(6, 4)
    assert distillation(logits, logits + 3, 2.0).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("old_classes", [None, 1, 3])
def test_sigmoid_loss(old_classes: int | None) -> None:
    logits, labels = normal(7, 5).requires_grad_(), [0, 4, 2, 3, 0, 1, 4]
    old = None if old_classes is None else normal(7, old_classes, seed=1)
    expected = slow_sigmoid_loss(logits, labels, old)
    same_with_gradient(sigmoid_cross_entropy(logits, torch.tensor(labels), old), expected, logits)


def test_labels_of_old_classes_say_nothing_to_the_sigmoid_loss() -> None:
    logits, old = normal(3, 5), normal(3, 3, seed=1)
    one, other = (
        sigmoid_cross_entropy(logits, torch.tensor(labels), old) for labels in ([0, 1, 2], [2, 0, 0])
    )
    assert one.item() == other.item()


def test_the_whole_loss_with_cross_entropy() -> None:
    logits, old, labels = normal(5, 6).requires_grad_(), normal(5, 4, seed=1), [0, 4, 2, 5, 3]
    method = Icarl(Icarl.Options(distillation=0.7, temperature=3.0))
    loss = method.make_loss(Phase(1, 4, 2))(batch_of(logits, labels, old))
    kept = slow_lucir_distillation(logits[:, :4], old, 3.0, 1 / 9)
    same_with_gradient(loss, slow_cross_entropy(logits, labels) + 0.7 * kept, logits)


def test_the_whole_loss_with_sigmoids() -> None:
    logits, old, labels = normal(5, 6).requires_grad_(), normal(5, 4, seed=1), [0, 4, 2, 5, 3]
    loss = Icarl(Icarl.Options(form="sigmoid")).make_loss(Phase(1, 4, 2))(batch_of(logits, labels, old))
    same_with_gradient(loss, slow_sigmoid_loss(logits, labels, old), logits)


def test_phase_0_has_no_teacher() -> None:
    logits, labels = normal(5, 4).requires_grad_(), [0, 1, 2, 3, 0]
    batch = batch_of(logits, labels, None)
    loss = Icarl(Icarl.Options()).make_loss(Phase(0, 0, 4))(batch)
    same_with_gradient(loss, slow_cross_entropy(logits, labels), logits)
    loss = Icarl(Icarl.Options(form="sigmoid")).make_loss(Phase(0, 0, 4))(batch)
    same_with_gradient(loss, slow_sigmoid_loss(logits, labels, None), logits)


# ---- settings and runs ------------------------------------------------------------------------------------


def test_the_presets_hold_the_published_numbers() -> None:
    common = preset("icarl/cifar100/b50s10")
    assert isinstance(common.method, Icarl.Options)
    assert (common.method.form, common.method.distillation, common.method.temperature) == (
        "cross-entropy",
        1.0,
        2.0,
    )
    assert common.training.first == common.training.later == Schedule()
    cifar = Schedule(epochs=70, lr=2.0, milestones=(49, 63), decay=0.2, weight_decay=5e-5, shift=-1)
    assert (cifar.lr_at(49), cifar.lr_at(50)) == (2.0, 0.4)  # that code steps its schedule after an epoch
    imagenet = Schedule(
        epochs=60, lr=1.0, milestones=(20, 30, 40, 50), decay=0.2, weight_decay=1e-5, batch_size=64, shift=-1
    )
    for name, schedule in {
        "icarl-sigmoid/cifar100/b50s10": cifar,
        "icarl-sigmoid/imagenet100-podnet/b50s10": imagenet,
        "icarl-sigmoid/imagenet/b100s100": imagenet,
    }.items():
        config = preset(name)
        assert config.name == name
        assert config.training.first == config.training.later == schedule
        assert isinstance(config.method, Icarl.Options)
        assert config.method.form == "sigmoid"
        assert config.network.last_relu
        assert RunConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize("form", ["cross-entropy", "sigmoid"])
def test_the_head_has_a_bias(form: str) -> None:
    head = Icarl(Icarl.Options(form=form)).make_head(4)
    assert isinstance(head, LinearHead)
    assert head.biases is not None


@pytest.mark.parametrize("name", ["icarl", "icarl-sigmoid"])
def test_it_learns_and_reports_the_nearest_mean(name: str, toy_config: Make, toy_data: ImageData) -> None:
    longer = {f"training__{which}__epochs": 8 for which in ("first", "later")}
    record = run(toy_config(f"{name}/glyphs/b50s10", **longer), data=toy_data)
    summary = record["summary"]["nearest_mean"]
    assert summary is not None
    assert summary["average_incremental_accuracy"] > 50  # chance is 25, then 17, then 12.5
