"""A training step: its optimiser is plain SGD, and none of it looks at a tensor's values."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.nn import functional as F

from phasezero.data.images import ImageSplit, Preparation, View
from phasezero.data.loader import ResidentImages
from phasezero.engine.step import LossScale, StepProgram
from phasezero.methods.stage import Batch, Loss, Stage
from phasezero.nets import NETWORKS, CosineHead, Features, IncrementalModel
from phasezero.schedule import Schedule
from samples import ToySource
from slow import rng

CPU = torch.device("cpu")


class ToyBackbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, images: Tensor) -> Features:
        return Features(torch.tanh(self.layer(images)), ())


def toy_model(network: str = "") -> IncrementalModel:
    torch.manual_seed(0)
    backbone = NETWORKS[network](channels=1) if network else ToyBackbone()
    model = IncrementalModel(backbone, CosineHead(64 if network else 8))
    model.head.grow(5, rng())
    return model


def cross_entropy(batch: Batch) -> Tensor:
    return F.cross_entropy(batch.output.logits, batch.labels)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """The last batch is smaller."""
    generator = np.random.default_rng(0)
    sizes = [12] * (count - 1) + [5]
    return [
        (torch.from_numpy(generator.normal(size=(n, 6))).float(), torch.from_numpy(generator.integers(0, 5, n)))
        for n in sizes
    ]


def program_of(
    model: IncrementalModel, loss: Loss = cross_entropy, teacher: IncrementalModel | None = None, **settings: Any
) -> StepProgram:
    """Return the step of a stage that trains all parameters but those whose gradients are accumulated."""
    schedule = Schedule(lr=0.5, **{key: settings.pop(key) for key in ("momentum", "weight_decay") if key in settings})
    summed = [id(parameter) for parameter in settings.get("accumulate", ())]
    parameters = [parameter for parameter in model.parameters() if id(parameter) not in summed]
    return StepProgram(model, teacher, Stage("train", schedule, loss, parameters, **settings), ToySource(), CPU)


@pytest.mark.parametrize("clamp", [None, 0.01])
@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 5e-4), (0.9, 0.0), (0.5, 0.1), (0.0, 0.1)])
def test_the_optimiser_is_sgd(momentum: float, weight_decay: float, clamp: float | None) -> None:
    """A rate in a tensor, momentum that begins at zero, one fused kernel: the same as the plain loop.

    Where gradients are clamped, each entry is cut by itself, as torch's clip_grad_value_ does it.
    """
    model, reference = toy_model(), toy_model()
    program = program_of(model, momentum=momentum, weight_decay=weight_decay, clamp_gradients=clamp)
    plain = torch.optim.SGD(
        reference.parameters(), lr=0.5, momentum=momentum, weight_decay=weight_decay, foreach=False, fused=False
    )
    loss_sum, cut = 0.0, 0
    for step, (images, labels) in enumerate(batches(8)):
        rate = 0.5 if step < 4 else 0.05
        program.learning_rate.fill_(rate)
        program.run((images, labels))

        plain.param_groups[0]["lr"] = rate
        plain.zero_grad()
        loss = F.cross_entropy(reference(images).logits, labels)
        loss.backward()
        if clamp is not None:
            cut += sum(int((parameter.grad.abs() > clamp).sum()) for parameter in reference.parameters())
            nn.utils.clip_grad_value_(reference.parameters(), clamp)
        plain.step()
        loss_sum += loss.item() * len(labels)
        for (name, mine), other in zip(model.named_parameters(), reference.parameters(), strict=True):
            assert torch.allclose(mine, other, rtol=1e-5, atol=1e-6), f"{name} at step {step}"
    assert program.loss_sum.item() == pytest.approx(loss_sum, rel=1e-6)
    assert (cut > 0) == (clamp is not None)
    assert not torch.equal(model.head.weight(), toy_model().head.weight())


def test_the_rate_is_read_anew_at_each_step() -> None:
    model = toy_model()
    program = program_of(model)
    (batch, *_) = batches(2)
    program.run(batch)
    before = copy.deepcopy(model.state_dict())
    program.learning_rate.fill_(0.0)
    program.run(batch)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_teacher_gets_no_gradient_and_does_not_move() -> None:
    model, teacher = toy_model(), toy_model()

    def loss(batch: Batch) -> Tensor:
        assert batch.teacher is not None
        assert not batch.teacher.logits.requires_grad
        return (batch.output.logits - 2 * batch.teacher.logits).square().mean()

    program = program_of(model, loss, teacher)
    for batch in batches(3):
        program.run(batch)
    parameters = teacher.parameters(), toy_model().parameters(), model.parameters()
    for parameter, first, trained in zip(*parameters, strict=True):
        assert parameter.grad is None
        assert torch.equal(parameter, first)
        assert not torch.equal(trained, first)


def test_the_state_holds_every_tensor_that_a_step_changes() -> None:
    """A warm-up before a capture must restore it: then the same step does the same again."""
    model = toy_model("resnet-glyphs")
    program = program_of(model)
    batch = (torch.randn(6, 1, 8, 8), torch.arange(6) % 5)
    program.run(batch)
    before = [tensor.detach().clone() for tensor in program.state()]
    program.run(batch)
    after = [tensor.detach().clone() for tensor in program.state()]
    model_after = copy.deepcopy(model.state_dict())
    for one, other in zip(before, after, strict=True):  # all but the head's empty mark
        assert not one.numel() or not torch.equal(one, other)
    with torch.no_grad():
        for tensor, saved in zip(program.state(), before, strict=True):
            tensor.copy_(saved)
    program.run(batch)
    for again, first in zip(program.state(), after, strict=True):
        assert torch.equal(again, first)
    for name, tensor in model.state_dict().items():  # the statistics of BatchNorm among them
        assert torch.equal(tensor, model_after[name]), name


@pytest.mark.parametrize("scaled", [False, True])
def test_accumulated_gradients_are_never_set_back(scaled: bool) -> None:
    """The sum of the scale's gradients grows from step to step; the other parameters' gradients begin anew.

    In float16 the loss is scaled; the sum holds plain gradients, and nothing of a step that overflowed.
    """
    model, total = toy_model(), 0.0
    model.half_precision = torch.float16 if scaled else None
    program = program_of(model, accumulate=[model.head.scale])
    model.half_precision = None  # the scaling alone is looked at
    for step, (images, labels) in enumerate(batches(4)):
        loss = F.cross_entropy(model(images).logits, labels)
        own, of_the_bias = torch.autograd.grad(loss, [model.head.scale, model.backbone.layer.bias])
        overflows = scaled and step == 2
        total += 0.0 if overflows else own.item()
        if scaled:
            assert program.scaling is not None
            program.scaling.scale.fill_(math.inf if overflows else 2.0**step)
        program.run((images, labels))
        assert model.head.scale.grad.item() == pytest.approx(total, rel=1e-5)
        if not overflows:
            assert torch.allclose(model.backbone.layer.bias.grad, of_the_bias, rtol=1e-5, atol=1e-7)
    assert model.head.scale.item() == 1.0  # it is not among the stage's parameters


def test_two_steps_add_to_one_sum() -> None:
    """As the two levels of AANets do."""
    model = toy_model()
    one, other = (program_of(model, accumulate=[model.head.scale]) for _ in range(2))
    total = 0.0
    for program, (images, labels) in zip((one, other, one), batches(3), strict=True):
        loss = F.cross_entropy(model(images).logits, labels)
        total += torch.autograd.grad(loss, model.head.scale)[0].item()
        program.run((images, labels))
        assert model.head.scale.grad.item() == pytest.approx(total, rel=1e-5)


def distil(batch: Batch) -> Tensor:
    assert batch.teacher is not None
    return cross_entropy(batch) + (batch.output.logits - batch.teacher.logits).square().mean()


def reads_a_value(batch: Batch) -> Tensor:
    loss = distil(batch)
    return loss * 2 if loss.item() > 1 else loss


def selects_by_value(batch: Batch) -> Tensor:
    return distil(batch) + batch.output.logits[batch.labels < 2].sum()


@pytest.mark.parametrize(
    ("loss", "error"),
    [(distil, None), (reads_a_value, DataDependentOutputException), (selects_by_value, DynamicOutputShapeException)],
)
def test_no_step_looks_at_values(loss: Loss, error: type[Exception] | None) -> None:
    """Tensors without values, from images to the optimiser, with everything that a stage can ask for.

    Losses that look at values show that the test can fail. tests/methods runs it over the losses of all methods.
    """
    with FakeTensorMode(), nullcontext() if error is None else pytest.raises(error):
        model, teacher = toy_model("resnet-glyphs"), toy_model("resnet-glyphs").eval()
        model.half_precision = torch.float16
        settings = {"accumulate": [model.head.scale], "clamp_gradients": 0.1}
        program = program_of(model, loss, teacher, **settings)
        assert program.scaling is not None
        images, preparation = np.zeros((20, 12, 12, 1), np.uint8), Preparation((0.5,), (0.25,), 12, View("pad", 2))
        split = ImageSplit(images, np.zeros(20, np.int64))
        program.source = ResidentImages(split, torch.arange(20) % 5, preparation, CPU)
        plans = list(program.source.train_batches(torch.arange(20), 8, rng()))
        assert [plan[0].shape[1] for plan in plans] == [8, 8, 4]
        for plan in plans:
            program.run(plan)
        assert all(isinstance(tensor, FakeTensor) for tensor in (*plans[0], *program.state()))
        assert all(parameter.grad is not None for parameter in model.parameters() if parameter.numel())


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    scaling = LossScale(CPU)
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1), momentum=0.9, fused=True)
    optimizer.state[weight]["momentum_buffer"] = torch.zeros(3)
    optimizer.found_inf = scaling.overflow  # type: ignore[attr-defined]
    plain = torch.tensor([1.0, 2.0, 3.0]) * 2.0**12
    for gradient, expected in ((torch.tensor([1.0, math.inf, 2.0]), [1.0, 1.0, 1.0]), (plain, [0.9, 0.8, 0.7])):
        weight.grad = gradient
        scaling.unscale([weight.grad])
        optimizer.step()
        scaling.update()
        assert weight.tolist() == pytest.approx(expected)
        assert scaling.scale.item() == 2.0**12
