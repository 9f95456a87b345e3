"""AANets on LUCIR: what each level trains, the gradient that adds up, and runs that stop and go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit, Preparation
from phasezero.data.loader import ResidentImages
from phasezero.data.stream import Phase
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.methods import METHODS
from phasezero.methods.aanet import Aanet, balanced_draw
from phasezero.methods.base import Batch, Stage, new_and_exemplars
from phasezero.methods.lucir import Lucir, imprint
from phasezero.nets import IncrementalModel, ResNet
from phasezero.nets.aggregated import AggregatedResNet
from phasezero.presets import build_config, preset
from phasezero.schedule import Schedule

Make = Callable[..., RunConfig]
CPU = torch.device("cpu")
PHASES = (Phase(0, 0, 3), Phase(1, 3, 2), Phase(2, 5, 2))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def toy_aanet(toy_config: Make, **settings: Any) -> RunConfig:
    """With a rate of the weights at which they are seen to move."""
    return toy_config("aanet/glyphs/b50s10", **{"method__weights_lr": 1e-3, **settings})


# ---- the balanced set -------------------------------------------------------------------------------------


class ToyPhaseImages:
    def __init__(self, kept: list[Tensor], new: list[Tensor], seed: int = 0) -> None:
        self.kept, self.new, self.seed = kept, new, seed
        self.purposes: list[str] = []

    def generator(self, purpose: str) -> torch.Generator:
        self.purposes.append(purpose)
        return rng(self.seed)


def test_the_balanced_set() -> None:
    kept = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])]
    new = [torch.arange(100, 140), torch.arange(200, 210)]
    images = ToyPhaseImages(kept, new)
    found = balanced_draw(images)
    assert images.purposes == ["balanced"]
    assert found[:6].tolist() == [1, 2, 3, 4, 5, 6]
    drawn = found[6:].tolist()
    assert len(drawn) == 2 * 3
    assert set(drawn) <= {*range(100, 140), *range(200, 210)}
    assert torch.equal(balanced_draw(ToyPhaseImages(kept, new)), found)


def test_the_draw_is_from_all_new_images_with_replacement() -> None:
    """Not so many of each class: each image is as likely as any other, and may come twice."""
    kept = [torch.arange(1000)]
    drawn = balanced_draw(ToyPhaseImages(kept, [torch.arange(30), torch.arange(30, 40)]))[1000:]
    assert len(drawn) == 2000
    counts = torch.bincount(drawn, minlength=40)
    assert counts.min() > 20  # 50 expected of each, with a deviation of 7
    assert counts.max() < 80
    assert 1400 < int((drawn < 30).sum()) < 1600
    assert len(balanced_draw(ToyPhaseImages([torch.arange(2), torch.arange(5)], [torch.arange(9)]))) == 7 + 5


# ---- growing and stages -----------------------------------------------------------------------------------


def grown(method: Lucir, phases: int) -> IncrementalModel:
    torch.manual_seed(0)
    model = IncrementalModel(ResNet((4, 8), (1, 1), stem="conv3", channels=1), method.make_head(8))
    for phase in PHASES[:phases]:
        method.grow(model, phase, rng(phase.index))
    return model


def test_aanet_is_a_lucir_with_imprinting() -> None:
    assert METHODS["aanet"] is Aanet
    assert issubclass(Aanet, Lucir)
    assert Aanet.Options().imprint
    assert Aanet(Aanet.Options()).make_loss.__func__ is Lucir.make_loss


def test_two_branches_from_phase_1_on() -> None:
    method = Aanet(Aanet.Options())
    single = grown(method, 1)
    assert isinstance(single.backbone, ResNet)
    source = {name: tensor.clone() for name, tensor in single.backbone.state_dict().items()}
    method.grow(single, PHASES[1], rng(1))
    backbone = single.backbone
    assert isinstance(backbone, AggregatedResNet)
    assert torch.equal(backbone.stable[0][0][0].kernel, source["stem.0.weight"])
    assert torch.equal(backbone.plastic[1][0].conv1.weight, source["stages.1.0.conv1.weight"])
    method.grow(single, PHASES[2], rng(2))
    assert single.backbone is backbone  # branches go on, and are never made anew
    assert [block.requires_grad for block in single.head.blocks] == [False, False, True]


def test_new_weights_are_imprinted_with_aggregated_features(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_aanet(toy_config, training__later__epochs=0), toy_data)
    results = trainer.run()
    next(results)
    old = trainer.model.head.weight().detach().clone()
    next(results)
    assert isinstance(trainer.model.backbone, AggregatedResNet)
    features = [trainer.train_features(trainer.train_by_class[position]) for position in (4, 5)]
    assert torch.allclose(trainer.model.head.blocks[1], imprint(old, features))


def test_the_stages() -> None:
    method = Aanet(Aanet.Options(weights_lr=1e-7, weights_batch_size=50, weights_drops=(0.333, 0.667)))
    model = grown(method, 2)
    schedule = Schedule(epochs=90, lr=0.05, shape="cosine", momentum=0.8, weight_decay=1e-4, shift=1)
    (train,) = method.stages(model, PHASES[1], schedule)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert train.name == "train"
    assert train.schedule == schedule
    assert train.images is new_and_exemplars
    assert {names[id(one)] for one in train.parameters} == set(names.values()) - {
        "backbone.weights",
        "head.blocks.0",
    }
    assert [names[id(one)] for one in train.accumulate] == ["backbone.weights"]
    second = train.each_epoch
    assert second is not None
    assert second.batch_statistics is False
    assert second.images is balanced_draw
    assert [names[id(one)] for one in second.parameters] == ["backbone.weights"]
    assert [names[id(one)] for one in second.accumulate] == ["backbone.weights"]
    assert second.schedule == Schedule(
        epochs=90, lr=1e-7, milestones=(29, 60), momentum=0.8, weight_decay=1e-4, batch_size=50, shift=1
    )


def test_phase_0_has_no_second_level() -> None:
    method = Aanet(Aanet.Options())
    model = grown(method, 1)
    (train,) = method.stages(model, PHASES[0], Schedule())
    assert train.each_epoch is None
    assert list(train.accumulate) == []
    assert len(train.parameters) == len(list(model.parameters()))


def test_lucirs_fine_tuning_may_follow() -> None:
    method = Aanet(Aanet.Options(balanced_epochs=3))
    stages = method.stages(grown(method, 2), PHASES[1], Schedule())
    assert [stage.name for stage in stages] == ["train", "balance"]
    assert stages[1].each_epoch is None


# ---- the second level, step by step -----------------------------------------------------------------------


class ToySource:
    """Images that are given as they are: a ticket is a batch."""

    def prepare(self, ticket: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return ticket[0], ticket[1]


def batch(seed: int) -> tuple[Tensor, Tensor]:
    return torch.randn(10, 1, 8, 8, generator=rng(seed)), torch.arange(10) % 5


class Levels:
    """Both levels of phase 1 as the trainer has them, to be stepped one by one."""

    def __init__(self, accumulate: bool) -> None:
        method = Aanet(Aanet.Options(weights_lr=0.01, accumulate=accumulate))
        teacher = grown(method, 1).eval().requires_grad_(False)
        self.model, self.teacher = grown(method, 2), teacher
        assert isinstance(self.model.backbone, AggregatedResNet)
        self.backbone = self.model.backbone
        (self.train,) = method.stages(self.model, PHASES[1], Schedule(epochs=4, lr=0.1, milestones=(2,)))
        assert self.train.each_epoch is not None
        self.second = self.train.each_epoch
        self.programs = {
            stage.name: StepProgram(self.model, teacher, stage.loss, stage, ToySource(), CPU)
            for stage in (self.train, self.second)
        }

    def step(self, stage: Stage, seed: int) -> Tensor:
        """One step; returns the gradient of the weights, found apart from it."""
        wanted = {id(parameter) for parameter in (*stage.parameters, *stage.accumulate)}
        for parameter in self.model.parameters():
            parameter.requires_grad_(id(parameter) in wanted)
        self.model.train(stage.batch_statistics)
        apart = IncrementalModel(AggregatedResNet(grown(Lucir(Lucir.Options()), 1).backbone), self.model.head)
        apart.backbone.load_state_dict(self.backbone.state_dict())
        apart.backbone.weights.requires_grad_()
        apart.train(stage.batch_statistics)
        images, labels = batch(seed)
        output, teacher_output = apart(images), self.teacher(images)
        loss = stage.loss(Batch(images, labels, output, teacher_output))
        (gradient,) = torch.autograd.grad(loss, apart.backbone.weights)
        self.programs[stage.name].run((images, labels))
        return gradient


def test_the_gradient_of_the_weights_adds_up_over_both_levels() -> None:
    levels = Levels(accumulate=True)
    total, momentum = torch.zeros(2), torch.zeros(2)
    expected = torch.full((2,), 0.5)
    for seed in range(8):
        stage = levels.second if seed % 4 > 1 else levels.train
        total = total + levels.step(stage, seed)
        assert torch.allclose(levels.backbone.gradient_sum, total, rtol=1e-4, atol=1e-6)
        if stage is levels.second:
            momentum = 0.9 * momentum + total + 5e-4 * expected
            expected = expected - 0.01 * momentum
        assert torch.allclose(levels.backbone.weights, expected, rtol=1e-4, atol=1e-6)
    assert (levels.backbone.weights - 0.5).abs().min() > 1e-4
    assert levels.backbone.weights.grad is levels.backbone.gradient_sum


def test_without_accumulation_each_step_has_its_own_gradient() -> None:
    levels = Levels(accumulate=False)
    momentum, expected = torch.zeros(2), torch.full((2,), 0.5)
    for seed in range(8):
        stage = levels.second if seed % 4 > 1 else levels.train
        gradient = levels.step(stage, seed)
        if stage is levels.second:
            momentum = 0.9 * momentum + gradient + 5e-4 * expected
            expected = expected - 0.01 * momentum
        assert torch.allclose(levels.backbone.weights, expected, rtol=1e-4, atol=1e-6)
    assert (levels.backbone.gradient_sum == 0).all()


def moved(model: IncrementalModel, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


def snapshot(model: IncrementalModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_what_each_level_changes() -> None:
    levels = Levels(accumulate=True)
    before = snapshot(levels.model)
    for seed in range(3):
        levels.step(levels.train, seed)
    frozen = {name for name in before if name.endswith("kernel")}
    assert len(frozen) == 6
    assert moved(levels.model, before) == set(before) - frozen - {"backbone.weights", "head.blocks.0"}
    before = snapshot(levels.model)
    for seed in range(3):
        levels.step(levels.second, seed)
    assert moved(levels.model, before) == {"backbone.weights", "backbone.gradient_sum"}


def test_the_second_levels_loss_is_cross_entropy_alone() -> None:
    levels = Levels(accumulate=True)
    images, labels = batch(0)
    output = levels.model(images)
    loss = levels.second.loss(Batch(images, labels, output, None))
    assert loss.item() == pytest.approx(F.cross_entropy(output.logits, labels).item())


# ---- steps on tensors without values ----------------------------------------------------------------------


def without_values(model: IncrementalModel, mode: FakeTensorMode) -> IncrementalModel:
    """Fake tensors cannot be copied deeply, so a model grows first and loses its values then."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(
                    mode.from_tensor(parameter.detach()), requires_grad=parameter.requires_grad
                )
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = mode.from_tensor(buffer)
    return model


@pytest.mark.parametrize("name", ["train", "aggregate"])
@pytest.mark.parametrize("accumulate", [True, False])
def test_no_step_looks_at_values(name: str, accumulate: bool) -> None:
    method = Aanet(Aanet.Options(accumulate=accumulate))
    mode = FakeTensorMode()
    model = without_values(grown(method, 2), mode)
    teacher = without_values(grown(method, 1).eval().requires_grad_(False), mode)
    with mode:
        (train,) = method.stages(model, PHASES[1], Schedule())
        assert train.each_epoch is not None
        stage = train if name == "train" else train.each_epoch
        wanted = {id(parameter) for parameter in (*stage.parameters, *stage.accumulate)}
        for parameter in model.parameters():
            parameter.requires_grad_(id(parameter) in wanted)
        model.train(stage.batch_statistics)
        split = ImageSplit(np.zeros((20, 12, 12, 1), np.uint8), np.zeros(20, np.int64))
        preparation = Preparation((0.5,), (0.25,), crop="pad", size=12, padding=2)
        source = ResidentImages(split, torch.arange(20) % 5, preparation, CPU)
        program = StepProgram(model, teacher, stage.loss, stage, source, CPU)
        for ticket in source.train_batches(torch.arange(20), 8, rng()):
            program.run(ticket)
        for tensor in program.state():
            assert isinstance(tensor, FakeTensor)
        for parameter in stage.parameters:
            assert parameter.grad is not None


# ---- presets ----------------------------------------------------------------------------------------------


def test_published_settings_on_cifar100() -> None:
    config = preset("aanet/cifar100/b50s10")
    options = config.method
    assert isinstance(options, Aanet.Options)
    assert config.network.name == "resnet18-cifar"
    assert config.protocol.memory == "per_class:20"
    assert (options.lambda_base, options.top_k, options.margin, options.ranking_weight) == (5, 2, 0.5, 1)
    assert (options.imprint, options.accumulate, options.balanced_epochs) == (True, True, 0)
    assert (options.weights_lr, options.weights_batch_size) == (1e-8, 100)
    later = config.training.later
    assert (later.epochs, later.batch_size, later.momentum, later.weight_decay) == (160, 128, 0.9, 5e-4)
    drops = [epoch for epoch in range(1, 160) if later.lr_at(epoch) != later.lr_at(epoch - 1)]
    assert drops == [79, 119]
    assert later.lr_at(0) == pytest.approx(0.1)
    assert config.training.first == preset("lucir/cifar100/b50s10").training.first
    second = second_level(config)
    assert [epoch for epoch in range(1, 160) if second.lr_at(epoch) < second.lr_at(epoch - 1)] == [79, 119]
    assert second.lr_at(159) == pytest.approx(1e-10)
    assert (second.momentum, second.weight_decay) == (0.9, 5e-4)


def second_level(config: RunConfig) -> Schedule:
    method = Aanet(config.method)
    (train,) = method.stages(grown(method, 2), PHASES[1], config.training.later)
    assert train.each_epoch is not None
    return train.each_epoch.schedule


def test_published_settings_on_imagenet() -> None:
    subset = preset("aanet/imagenet100-lucir/b50s10")
    for schedule in (subset.training.first, subset.training.later):
        assert (schedule.epochs, schedule.lr, schedule.shape, schedule.weight_decay, schedule.batch_size) == (
            90,
            0.05,
            "cosine",
            5e-4,
            128,
        )
        assert schedule.lr_at(89) == pytest.approx(0, abs=1e-12)
        assert schedule.lr_at(44) == pytest.approx(0.025)
    assert second_level(subset).milestones == (29, 60)
    assert second_level(subset).batch_size == 50
    assert subset.training.brightness == pytest.approx(63 / 255)
    assert preset("aanet/imagenet/b100s100").training.brightness == pytest.approx(63 / 255)
    assert preset("aanet/cifar100/b50s10").training.brightness == 0

    whole = preset("aanet/imagenet/b100s100")
    plain = preset("lucir/imagenet/b100s100")
    assert replace(whole.training, brightness=0.0) == plain.training
    for config in (subset, whole):
        assert isinstance(config.method, Aanet.Options)
        assert config.method.lambda_base == 10
        assert config.method.imprint
        assert config.method.balanced_epochs == 0
        assert config.network.name == "resnet18"


def test_a_network_without_stages_is_refused_before_phase_0(toy_data: ImageData) -> None:
    class Never:
        def started(self, phases: int, total_images: int) -> None: ...

        def epoch(self, *facts: object) -> None:
            raise AssertionError("it trained")

        def phase(self, result: object) -> None: ...

    settings = {"network.name": "alexnet-3d", "protocol.memory": "per_class:4"}
    config = build_config("aanet", "glyphs", base=4, step=2).override(settings)
    with pytest.raises(
        UserError, match=r"'aanet' does not work with network\.name=alexnet-3d; choose .*resnet32"
    ):
        run(config, data=toy_data, listener=Never())


def test_variants() -> None:
    original = preset("aanet-original/cifar100/b50s5")
    plain = preset("aanet/cifar100/b50s5")
    assert original.network.name == "resnet32"
    assert original.training.first.shift == original.training.later.shift == 1
    assert original.label == "aanet-original"
    total = preset("aanet-total/cifar100/b50s5")
    assert total.protocol.memory == "total:2000"
    assert replace(total.protocol, memory=plain.protocol.memory) == plain.protocol
    assert total.training == plain.training
