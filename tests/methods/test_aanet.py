"""AANets on LUCIR: the balanced set, what each level trains, the gradient that accumulates, the published settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import Callback
from phasezero.engine.step import StepProgram
from phasezero.errors import UserError
from phasezero.methods.aanet import Aanet, balanced_draw
from phasezero.methods.lucir import Lucir
from phasezero.methods.stage import Batch, Stage, new_and_exemplars
from phasezero.nets import IncrementalModel, ResNet
from phasezero.nets.aggregated import AggregatedResNet
from phasezero.presets import build_config, preset
from phasezero.schedule import Schedule
from samples import ToySource, train
from slow import cross_entropy, rng

PHASES = (Phase(0, 0, 3), Phase(1, 3, 2), Phase(2, 5, 2))


class ToyPhaseImages:
    def __init__(self, kept: list[Tensor], new: list[Tensor]) -> None:
        self.kept, self.new = kept, new

    def generator(self, purpose: str) -> torch.Generator:
        return rng(len(purpose))


def test_the_balanced_set() -> None:
    kept = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6])]
    new = [torch.arange(100, 140), torch.arange(200, 210)]
    found = balanced_draw(ToyPhaseImages(kept, new))
    assert found[:6].tolist() == [1, 2, 3, 4, 5, 6]
    assert len(found[6:]) == 2 * 3
    assert set(found[6:].tolist()) <= {*range(100, 140), *range(200, 210)}
    assert torch.equal(balanced_draw(ToyPhaseImages(kept, new)), found)
    # The largest exemplar set counts. Without exemplars there is an image for each new class.
    assert len(balanced_draw(ToyPhaseImages([torch.arange(2), torch.arange(5)], [torch.arange(9)]))) == 7 + 5
    assert len(balanced_draw(ToyPhaseImages([torch.arange(0)] * 2, new))) == 2


def test_the_draw_is_from_all_new_images_with_replacement() -> None:
    """Classes do not have equal shares: each image is as likely as any other and may be drawn twice."""
    drawn = balanced_draw(ToyPhaseImages([torch.arange(1000)], [torch.arange(30), torch.arange(30, 40)]))[1000:]
    assert len(drawn) == 2000
    counts = torch.bincount(drawn, minlength=40)
    assert counts.min() > 20  # 50 are expected of each, with a standard deviation of 7
    assert counts.max() < 80
    assert 1400 < int((drawn < 30).sum()) < 1600


def grown(method: Lucir, phases: int) -> IncrementalModel:
    torch.manual_seed(0)
    model = IncrementalModel(ResNet((4, 8), (1, 1), stem="conv3", channels=1), method.make_head(8))
    for phase in PHASES[:phases]:
        method.grow(model, phase, rng(phase.index))
    return model


def test_two_branches_from_phase_1_on() -> None:
    method = Aanet(Aanet.Options())
    model = grown(method, 1)
    assert isinstance(model.backbone, ResNet)
    source = {name: tensor.clone() for name, tensor in model.backbone.state_dict().items()}
    method.grow(model, PHASES[1], rng(1))
    backbone = model.backbone
    assert isinstance(backbone, AggregatedResNet)
    assert torch.equal(backbone.stable[0][0][0].kernel, source["stem.0.weight"])
    assert torch.equal(backbone.plastic[1][0].conv1.weight, source["stages.1.0.conv1.weight"])
    method.grow(model, PHASES[2], rng(2))
    assert model.backbone is backbone  # the branches continue
    assert [block.requires_grad for block in model.head.blocks] == [False, False, True]


def test_the_stages() -> None:
    method = Aanet(Aanet.Options(weights_lr=1e-7, weights_batch_size=50, weights_drops=(0.333, 0.667)))
    model = grown(method, 2)
    schedule = Schedule(epochs=90, lr=0.05, shape="cosine", momentum=0.8, weight_decay=1e-4, shift=1)
    (train,) = method.stages(model, PHASES[1], schedule)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert (train.name, train.schedule, train.images) == ("train", schedule, new_and_exemplars)
    assert {names[id(one)] for one in train.parameters} == set(names.values()) - {"backbone.weights", "head.blocks.0"}
    second = train.each_epoch
    assert second is not None
    assert (second.batch_statistics, second.images) == (False, balanced_draw)
    for parameters in (train.accumulate, second.parameters, second.accumulate):
        assert [names[id(one)] for one in parameters] == ["backbone.weights"]
    assert second.schedule == Schedule(
        epochs=90, lr=1e-7, milestones=(29, 60), momentum=0.8, weight_decay=1e-4, batch_size=50, shift=1
    )


def test_phase_0_has_no_second_level_and_fine_tuning_may_follow() -> None:
    method = Aanet(Aanet.Options(balanced_epochs=3))
    model = grown(method, 1)
    (train,) = method.stages(model, PHASES[0], Schedule())
    assert (train.each_epoch, list(train.accumulate)) == (None, [])
    assert len(train.parameters) == len(list(model.parameters()))
    _, balance = method.stages(grown(method, 2), PHASES[1], Schedule())
    assert (balance.name, balance.each_epoch) == ("balance", None)


def batch(seed: int) -> tuple[Tensor, Tensor]:
    return torch.randn(10, 1, 8, 8, generator=rng(seed)), torch.arange(10) % 5


class Levels:
    """Both levels of phase 1, as the trainer has them."""

    def __init__(self, accumulate: bool) -> None:
        method = Aanet(Aanet.Options(weights_lr=0.01, accumulate=accumulate))
        self.model, self.teacher = grown(method, 2), grown(method, 1).eval().requires_grad_(False)
        (self.train,) = method.stages(self.model, PHASES[1], Schedule(epochs=4, lr=0.1, milestones=(2,)))
        assert self.train.each_epoch is not None
        self.second, self.backbone = self.train.each_epoch, self.model.backbone
        self.programs = {
            stage.name: StepProgram(self.model, self.teacher, stage, ToySource(), torch.device("cpu"))
            for stage in (self.train, self.second)
        }

    def step(self, stage: Stage, seed: int) -> None:
        wanted = {id(parameter) for parameter in (*stage.parameters, *stage.accumulate)}
        for parameter in self.model.parameters():
            parameter.requires_grad_(id(parameter) in wanted)
        self.model.train(stage.batch_statistics)
        self.programs[stage.name].run(batch(seed))

    def gradient(self, stage: Stage, seed: int) -> Tensor:
        """Return the gradient of the weights in the next step, computed by a copy of the network."""
        apart = IncrementalModel(AggregatedResNet(grown(Lucir(Lucir.Options()), 1).backbone), self.model.head)
        apart.backbone.load_state_dict(self.backbone.state_dict())
        apart.backbone.weights.requires_grad_()
        apart.train(stage.batch_statistics)
        images, labels = batch(seed)
        loss = stage.loss(Batch(images, labels, apart(images), self.teacher(images)))
        return torch.autograd.grad(loss, apart.backbone.weights)[0]


@pytest.mark.parametrize("accumulate", [True, False])
def test_the_gradient_of_the_weights_accumulates_over_both_levels(accumulate: bool) -> None:
    """The authors' code never resets it. Without accumulation each step has its own gradient."""
    levels = Levels(accumulate)
    weights, total, momentum, expected = levels.backbone.weights, torch.zeros(2), torch.zeros(2), torch.full((2,), 0.5)
    for seed in range(8):
        stage = levels.second if seed % 4 > 1 else levels.train
        gradient = levels.gradient(stage, seed)
        levels.step(stage, seed)
        total = total + gradient if accumulate else gradient
        if stage is levels.second:
            momentum = 0.9 * momentum + total + 5e-4 * expected
            expected = expected - 0.01 * momentum
        assert torch.allclose(weights, expected, rtol=1e-4, atol=1e-6)
        kept = total if accumulate else torch.zeros(2)
        assert torch.allclose(levels.backbone.gradient_sum, kept, rtol=1e-4, atol=1e-6)
    assert (weights - 0.5).abs().max() > 1e-4
    assert (weights.grad is levels.backbone.gradient_sum) == accumulate


def test_what_each_level_changes() -> None:
    levels, moved = Levels(accumulate=True), []
    for stage in (levels.train, levels.second):
        before = {name: tensor.clone() for name, tensor in levels.model.state_dict().items()}
        for seed in range(3):
            levels.step(stage, seed)
        state = levels.model.state_dict()
        moved.append({name for name in state if not torch.equal(state[name], before[name])})
    frozen = {name for name in before if name.endswith("kernel")}
    assert len(frozen) == 6
    assert moved[0] == set(before) - frozen - {"backbone.weights", "head.blocks.0"}
    assert moved[1] == {"backbone.weights", "backbone.gradient_sum"}


def test_the_second_levels_loss_is_cross_entropy_alone() -> None:
    levels, (images, labels) = Levels(accumulate=True), batch(0)
    output = levels.model(images)
    loss = levels.second.loss(Batch(images, labels, output, None))
    assert loss.item() == pytest.approx(cross_entropy(output.logits, labels.tolist()).item())


def second_level(config: RunConfig) -> Schedule:
    method = Aanet(config.method)
    (train,) = method.stages(grown(method, 2), PHASES[1], config.training.later)
    assert train.each_epoch is not None
    return train.each_epoch.schedule


def test_published_settings_on_cifar100() -> None:
    config = preset("aanet/cifar100/b50s10")
    assert (config.network.name, config.protocol.memory) == ("resnet18-cifar", "per_class:20")
    lucirs = {"lambda_base": 5.0, "top_k": 2, "margin": 0.5, "ranking_weight": 1.0, "imprint": True}
    own = {"weights_lr": 1e-8, "weights_batch_size": 100, "accumulate": True}
    assert config.method == Aanet.Options(balanced_epochs=0, **lucirs, **own)
    later, second = config.training.later, second_level(config)
    assert (later.epochs, later.batch_size, later.lr_at(0)) == (160, 128, 0.1)
    for schedule in (later, second):
        assert (schedule.momentum, schedule.weight_decay) == (0.9, 5e-4)
        # An epoch early: the authors' code steps its scheduler before each epoch.
        drops = [epoch for epoch in range(1, 160) if schedule.lr_at(epoch) < schedule.lr_at(epoch - 1)]
        assert drops == [79, 119]
    assert second.lr_at(159) == pytest.approx(1e-10)
    assert config.training.first == preset("lucir/cifar100/b50s10").training.first
    assert config.training.brightness == 0


def test_published_settings_on_imagenet() -> None:
    subset, whole = preset("aanet/imagenet100-lucir/b50s10"), preset("aanet/imagenet/b100s100")
    schedule = Schedule(epochs=90, lr=0.05, shape="cosine", milestones=(30, 60), weight_decay=5e-4, shift=1)
    assert subset.training.first == subset.training.later == schedule
    assert schedule.lr_at(89) == pytest.approx(0, abs=1e-12)
    assert schedule.lr_at(44) == pytest.approx(0.025)
    assert (second_level(subset).milestones, second_level(subset).batch_size) == ((29, 60), 50)
    assert replace(whole.training, brightness=0.0) == preset("lucir/imagenet/b100s100").training
    for config in (subset, whole):
        assert isinstance(config.method, Aanet.Options)
        assert (config.method.lambda_base, config.method.imprint, config.method.balanced_epochs) == (10, True, 0)
        assert config.network.name == "resnet18"
        assert config.training.brightness == pytest.approx(63 / 255)


def test_variants_on_cifar100() -> None:
    plain, original, total = (preset(f"aanet{variant}/cifar100/b50s5") for variant in ("", "-original", "-total"))
    assert original.network.name == "resnet32"
    assert original.training.first.shift == original.training.later.shift == 1
    assert total.protocol == replace(plain.protocol, memory="total:2000")
    assert total.training == plain.training


def test_a_network_without_stages_is_rejected_before_phase_0(toy_data: ImageData) -> None:
    class Never(Callback):
        def on_epoch_end(self, *facts: object) -> None:
            raise AssertionError("it trained")

    settings = {"network.name": "alexnet-3d", "protocol.memory": "per_class:4"}
    config = build_config("aanet", "glyphs", base=4, step=2).override(settings)
    with pytest.raises(UserError, match=r"'aanet' does not work with network\.name=alexnet-3d; choose .*resnet32"):
        train(config, data=toy_data, callback=Never())
