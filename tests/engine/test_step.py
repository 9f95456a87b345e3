"""A training step: its optimiser is plain SGD, and none of it looks at a tensor's values."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

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

from phasezero.data.images import ImageSplit, Preparation
from phasezero.data.loader import ResidentImages
from phasezero.data.stream import Phase
from phasezero.engine.step import LossScale, StepProgram
from phasezero.initial.cwd import ClassWiseDecorrelation
from phasezero.methods.base import Batch, Loss, Stage
from phasezero.methods.lucir import Lucir
from phasezero.nets import NETWORKS, Features, IncrementalModel
from phasezero.schedule import Schedule

CPU = torch.device("cpu")


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- the optimiser ----------------------------------------------------------------------------------------


class ToyBackbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 8)

    def forward(self, images: Tensor) -> Features:
        return Features(torch.tanh(self.layer(images)), ())


class ToySource:
    """Images that are given as they are: a ticket is a batch."""

    def prepare(self, ticket: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return ticket[0], ticket[1]


def toy_model() -> IncrementalModel:
    torch.manual_seed(0)
    model = IncrementalModel(ToyBackbone(), Lucir(Lucir.Options()).make_head(8))
    model.head.grow(5, rng())
    return model


def cross_entropy(batch: Batch) -> Tensor:
    return F.cross_entropy(batch.output.logits, batch.labels)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    """The last one is smaller."""
    generator = np.random.default_rng(0)
    sizes = [12] * (count - 1) + [5]
    return [
        (
            torch.from_numpy(generator.normal(size=(n, 6))).float(),
            torch.from_numpy(generator.integers(0, 5, n)),
        )
        for n in sizes
    ]


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.9, 5e-4), (0.9, 0.0), (0.5, 0.1), (0.0, 0.1)])
def test_the_optimiser_is_sgd(momentum: float, weight_decay: float) -> None:
    """A rate in a tensor, momentum that begins at zero, one fused kernel: the same as the plain loop."""
    model, reference = toy_model(), toy_model()
    schedule = Schedule(lr=0.5, momentum=momentum, weight_decay=weight_decay)
    stage = Stage("train", schedule, cross_entropy, list(model.parameters()))
    program = StepProgram(model, None, cross_entropy, stage, ToySource(), CPU)
    plain = torch.optim.SGD(
        reference.parameters(),
        lr=0.5,
        momentum=momentum,
        weight_decay=weight_decay,
        foreach=False,
        fused=False,
    )
    loss_sum = 0.0
    for step, (images, labels) in enumerate(batches(8)):
        rate = 0.5 if step < 4 else 0.05
        program.learning_rate.fill_(rate)
        program.run((images, labels))

        plain.param_groups[0]["lr"] = rate
        plain.zero_grad()
        loss = F.cross_entropy(reference(images).logits, labels)
        loss.backward()
        plain.step()
        loss_sum += loss.item() * len(labels)
        for (name, mine), other in zip(model.named_parameters(), reference.parameters(), strict=True):
            assert torch.allclose(mine, other, rtol=1e-5, atol=1e-6), f"{name} at step {step}"
    assert program.loss_sum.item() == pytest.approx(loss_sum, rel=1e-6)
    assert not torch.allclose(model.head.weight(), toy_model().head.weight(), atol=1e-2)


def test_the_rate_is_read_anew_at_each_step() -> None:
    model = toy_model()
    stage = Stage("train", Schedule(lr=0.5), cross_entropy, list(model.parameters()))
    program = StepProgram(model, None, cross_entropy, stage, ToySource(), CPU)
    (batch, *_) = batches(2)
    program.run(batch)
    before = copy.deepcopy(model.state_dict())
    program.learning_rate.fill_(0.0)
    program.run(batch)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_teacher_gets_no_gradient_and_does_not_move() -> None:
    model, teacher = toy_model(), toy_model()

    def distil(batch: Batch) -> Tensor:
        assert batch.teacher is not None
        assert not batch.teacher.logits.requires_grad
        return (batch.output.logits - 2 * batch.teacher.logits).square().mean()

    stage = Stage("train", Schedule(lr=0.5), distil, list(model.parameters()))
    program = StepProgram(model, teacher, distil, stage, ToySource(), CPU)
    for batch in batches(3):
        program.run(batch)
    for parameter, first, trained in zip(
        teacher.parameters(), toy_model().parameters(), model.parameters(), strict=True
    ):
        assert parameter.grad is None
        assert torch.equal(parameter, first)
        assert not torch.equal(trained, first)


def test_the_state_holds_every_tensor_that_a_step_changes() -> None:
    """What a warm-up before a capture must put back: with it restored, the same step does the same again."""
    torch.manual_seed(0)
    model = IncrementalModel(NETWORKS["resnet-glyphs"](channels=1), Lucir(Lucir.Options()).make_head(64))
    model.head.grow(5, rng())
    stage = Stage("train", Schedule(lr=0.1), cross_entropy, list(model.parameters()))
    program = StepProgram(model, None, cross_entropy, stage, ToySource(), CPU)
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


def test_clamped_gradients() -> None:
    """Each entry is cut by itself, as torch's clip_grad_value_ does it."""
    model, reference = toy_model(), toy_model()
    limit = 0.01
    schedule = Schedule(lr=0.5)
    stage = Stage("train", schedule, cross_entropy, list(model.parameters()), clamp_gradients=limit)
    program = StepProgram(model, None, cross_entropy, stage, ToySource(), CPU)
    plain = torch.optim.SGD(reference.parameters(), lr=0.5, momentum=0.9, weight_decay=5e-4, foreach=False)
    cut = 0
    for images, labels in batches(4):
        program.run((images, labels))
        plain.zero_grad()
        F.cross_entropy(reference(images).logits, labels).backward()
        cut += sum(int((parameter.grad.abs() > limit).sum()) for parameter in reference.parameters())
        nn.utils.clip_grad_value_(reference.parameters(), limit)
        plain.step()
    assert cut > 0
    for mine, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.allclose(mine, other, rtol=1e-5, atol=1e-6)


def test_accumulated_gradients_are_never_set_back() -> None:
    """The sum of the scale's gradients goes on from step to step; the other parameters' begin anew."""
    model = toy_model()
    rest = [parameter for parameter in model.parameters() if parameter is not model.head.scale]
    stage = Stage("train", Schedule(lr=0.5), cross_entropy, rest, accumulate=[model.head.scale])
    program = StepProgram(model, None, cross_entropy, stage, ToySource(), CPU)
    total = 0.0
    for images, labels in batches(4):
        loss = F.cross_entropy(model(images).logits, labels)
        own, of_the_bias = torch.autograd.grad(loss, [model.head.scale, model.backbone.layer.bias])
        total += own.item()
        program.run((images, labels))
        assert model.head.scale.grad.item() == pytest.approx(total, rel=1e-5)
        assert torch.allclose(model.backbone.layer.bias.grad, of_the_bias, rtol=1e-5, atol=1e-7)
    assert model.head.scale.item() == 1.0  # it is not among the stage's parameters


def test_accumulated_gradients_are_not_scaled() -> None:
    """In float16 the loss is scaled; the sum holds plain gradients, and nothing of a step that overflowed."""
    model = toy_model()
    model.half_precision = torch.float16
    rest = [parameter for parameter in model.parameters() if parameter is not model.head.scale]
    stage = Stage("train", Schedule(lr=0.5), cross_entropy, rest, accumulate=[model.head.scale])
    program = StepProgram(model, None, cross_entropy, stage, ToySource(), CPU)
    model.half_precision = None  # the scaling alone is looked at
    assert program.scaling is not None
    total = 0.0
    for step, (images, labels) in enumerate(batches(4)):
        if step == 2:
            program.scaling.scale.fill_(float("inf"))
        else:
            program.scaling.scale.fill_(2.0**step)
            loss = F.cross_entropy(model(images).logits, labels)
            total += torch.autograd.grad(loss, model.head.scale)[0].item()
        program.run((images, labels))
        assert model.head.scale.grad is not None
        assert model.head.scale.grad.item() == pytest.approx(total, rel=1e-5)


# ---- steps on tensors without values ----------------------------------------------------------------------

BASE, LATER = Phase(0, 0, 4), Phase(1, 4, 2)


class NoImages:
    def class_features(self, position: int) -> Tensor:
        return torch.randn(3, 64)


def fake_source() -> ResidentImages:
    """Twenty images; must be called under FakeTensorMode, so that they have a shape and nothing else."""
    images = np.zeros((20, 12, 12, 1), np.uint8)
    labels = torch.arange(20) % 6
    preparation = Preparation((0.5,), (0.25,), crop="pad", size=12, padding=2)
    return ResidentImages(ImageSplit(images, np.zeros(20, np.int64)), labels, preparation, CPU)


def grown_model(method: Lucir, phases: tuple[Phase, ...]) -> IncrementalModel:
    model = IncrementalModel(NETWORKS["resnet-glyphs"](channels=1), method.make_head(64))
    for phase in phases:
        method.grow(model, phase, rng())
        method.begin(model, phase, NoImages())
    return model


def run_fake(
    method: Lucir, phase: Phase, stage_name: str, change_loss: Callable[[Loss], Loss]
) -> StepProgram:
    """One epoch (with a smaller last batch) of a stage; no tensor in it has values."""
    model = grown_model(method, (BASE, LATER)[: phase.index + 1])
    teacher = None
    if phase.index:  # not a copy of the model: fake tensors cannot be copied deeply
        teacher = grown_model(method, (BASE,)).eval().requires_grad_(False)
    stages = {stage.name: stage for stage in method.stages(model, phase, Schedule())}
    stage = stages[stage_name]
    chosen = {id(parameter) for parameter in stage.parameters}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in chosen)
    model.train(stage.batch_statistics)
    source = fake_source()
    program = StepProgram(model, teacher, change_loss(stage.loss), stage, source, CPU)
    tickets = list(source.train_batches(torch.arange(20), 8, rng()))
    assert [ticket[0].shape[1] for ticket in tickets] == [8, 8, 4]
    for ticket in tickets:
        assert isinstance(ticket[0], FakeTensor)
        program.run(ticket)
    for tensor in program.state():
        assert isinstance(tensor, FakeTensor)
    for parameter in stage.parameters:
        assert parameter.grad is not None
    return program


def unchanged(loss: Loss) -> Loss:
    return loss


def with_cwd(form: str, normalize: bool) -> Callable[[Loss], Loss]:
    term = ClassWiseDecorrelation(
        ClassWiseDecorrelation.Options(form=form, normalize=normalize),  # type: ignore[arg-type]
        BASE,
    )
    return lambda loss: lambda batch: loss(batch) + term.options.weight * term(batch)


@pytest.mark.parametrize(
    ("phase", "stage"), [(BASE, "train"), (LATER, "train"), (LATER, "balance")], ids=["0", "1", "balance"]
)
@pytest.mark.parametrize("imprint", [False, True])
def test_no_step_of_lucir_looks_at_values(phase: Phase, stage: str, imprint: bool) -> None:
    method = Lucir(Lucir.Options(balanced_epochs=1, imprint=imprint))
    with FakeTensorMode():
        run_fake(method, phase, stage, unchanged)


@pytest.mark.parametrize("form", ["code", "equation", "algorithm"])
@pytest.mark.parametrize("normalize", [False, True])
def test_no_step_with_cwd_looks_at_values(form: str, normalize: bool) -> None:
    with FakeTensorMode():
        run_fake(Lucir(Lucir.Options()), BASE, "train", with_cwd(form, normalize))


def reads_a_value(loss: Loss) -> Loss:
    def spoilt(batch: Batch) -> Tensor:
        value = loss(batch)
        return value * 2 if value.item() > 1 else value

    return spoilt


def selects_by_value(loss: Loss) -> Loss:
    def spoilt(batch: Batch) -> Tensor:
        return loss(batch) + batch.output.logits[batch.labels < 2].sum()

    return spoilt


@pytest.mark.parametrize(
    ("spoil", "error"),
    [(reads_a_value, DataDependentOutputException), (selects_by_value, DynamicOutputShapeException)],
)
def test_a_step_that_looks_at_values_is_caught(spoil: Callable[[Loss], Loss], error: type[Exception]) -> None:
    """So that the tests above can fail."""
    with FakeTensorMode(), pytest.raises(error):
        run_fake(Lucir(Lucir.Options()), LATER, "train", spoil)


def test_an_overflow_skips_the_step_and_halves_the_scale() -> None:
    scaling = LossScale(torch.device("cpu"))
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=torch.tensor(0.1), momentum=0.9, fused=True)
    optimizer.state[weight]["momentum_buffer"] = torch.zeros(3)
    optimizer.found_inf = scaling.overflow  # type: ignore[attr-defined]

    weight.grad = torch.tensor([1.0, math.inf, 2.0])
    scaling.unscale([weight.grad])
    optimizer.step()
    scaling.update()
    assert weight.tolist() == [1.0, 1.0, 1.0]
    assert scaling.scale.item() == 2.0**12

    weight.grad = torch.tensor([1.0, 2.0, 3.0]) * 2.0**12
    scaling.unscale([weight.grad])
    optimizer.step()
    scaling.update()
    assert weight.tolist() == pytest.approx([0.9, 0.8, 0.7])
    assert scaling.scale.item() == 2.0**12
