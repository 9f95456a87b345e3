"""BiC's losses against sums written out number by number, what is held out, and what the correction does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from phasezero.config import Engine, RunConfig
from phasezero.data.images import ImageData, View
from phasezero.data.stream import Phase
from phasezero.engine.device import Device
from phasezero.engine.stage import StagePass
from phasezero.engine.trainer import Trainer
from phasezero.methods.bic import Bic, correction_loss, sigmoid_distillation, split_held_out
from phasezero.methods.stage import Stage
from phasezero.nets import BiasCorrectedHead, Features, IncrementalModel
from phasezero.presets import preset
from phasezero.schedule import Schedule
from samples import Make, train, watch_epochs
from slow import batch_of, cross_entropy, normal, same_with_gradient, softened_cross_entropy

LATER = Phase(1, 4, 2)


def slow_sigmoid(logits: Tensor, old: Tensor, temperature: float) -> Tensor:
    total = 0.0
    for row, old_row in zip(logits, old, strict=True):
        for value, old_value in zip(row, old_row, strict=True):
            p, w = 1 / (1 + (-value / temperature).exp()), 1 / (1 + (-old_value / temperature).exp())
            total = total - (w * p.log() + (1 - w) * (1 - p).log()) / logits.numel()
    return total


LABELS = [0, 4, 2, 1, 3, 0]


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_sigmoid_distillation(temperature: float) -> None:
    logits, old = normal(6, 3).requires_grad_(), normal(6, 3, seed=1)
    expected = slow_sigmoid(logits, old, temperature)
    same_with_gradient(sigmoid_distillation(logits, old, temperature), expected, logits)


def test_correction_loss() -> None:
    numbers = normal(32).requires_grad_()
    logits, pair = numbers[:30].view(6, 5), numbers[30:]
    one, other = (torch.cat([logits[:, :3], pair[0] * logits[:, 3:] + pair[1]], 1) for _ in range(2))
    loss = correction_loss(one, torch.tensor(LABELS), pair, 0.1)
    same_with_gradient(loss, cross_entropy(other, LABELS) + 0.1 * pair[1] ** 2 / 2, numbers)


@pytest.mark.parametrize("kind", ["bic", "bic-podnet"])
@pytest.mark.parametrize(("old", "new"), [(3, 2), (4, 1), (1, 4)])
def test_the_whole_loss(kind: str, old: int, new: int) -> None:
    logits, taught = normal(6, 5).requires_grad_(), normal(6, old, seed=1)
    method = Bic(preset(f"{kind}/glyphs/b50s10").method)
    loss = method.make_loss(Phase(1, old, new))(batch_of(logits, LABELS, taught))
    learned, part = cross_entropy(logits, LABELS), old / (old + new)
    if kind == "bic":
        expected = (1 - part) * learned + part * softened_cross_entropy(logits[:, :old], taught, 2.0)
    else:
        expected = learned + slow_sigmoid(logits[:, :old], taught, 2.0)
    same_with_gradient(loss, expected, logits)


class FakeImages:
    """Classes with these numbers of images; old classes come first."""

    def __init__(self, kept: Sequence[int], new: Sequence[int], quota: int) -> None:
        self.quota = quota
        parts = list(torch.arange(sum(kept) + sum(new)).split([*kept, *new]))
        self.kept, self.new = parts[: len(kept)], parts[len(kept) :]

    def generator(self, purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(len(purpose))


@pytest.mark.parametrize(
    ("kept", "new", "quota", "each"),
    [
        ([20] * 3, [50] * 2, 20, 2),
        ([30] * 2, [50], 30, 3),
        ([3] * 4, [9, 8], 3, 1),
        ([40] * 2, [50], 20, 2),  # a share of what a class may keep after the phase
        ([2], [2], 2, 1),
        ([1] * 3, [50] * 2, 1, 0),
        ([0] * 3, [50] * 2, 0, 0),
        ([20], [1, 50], 20, 0),
        ([40], [2, 50], 40, 1),  # at least one image of a class is trained on
        ([40], [4, 50], 40, 3),
        ([], [50] * 3, 20, 2),  # in phase 0 too, for later phases
    ],
)
def test_the_same_number_of_images_of_each_class_is_held_out(
    kept: list[int], new: list[int], quota: int, each: int
) -> None:
    images = FakeImages(kept, new, quota)
    train, held_out = map(torch.cat, split_held_out(images, 0.1, aside=0.0))
    everything = sorted(torch.cat([*images.kept, *images.new]).tolist())
    assert sorted([*train.tolist(), *held_out.tolist()]) == everything
    for own in images.kept:  # the best exemplars
        assert torch.equal(held_out[torch.isin(held_out, own)], own[:each])
    for own in images.new:
        assert torch.isin(held_out, own).sum() == each
    again, _ = split_held_out(images, 0.1, aside=0.0)
    assert torch.equal(train, torch.cat(again))


def test_a_share_of_the_new_images_goes_aside_but_never_all() -> None:
    """PODNet's code: a tenth of all images, two per class of which are held out for the fit."""
    trained, held_out = split_held_out(FakeImages([20] * 2, [500, 50, 2], 20), 0.1, aside=0.1)
    assert [len(own) for own in held_out] == [1] * 5  # a class of two images has only one to spare
    assert [len(own) for own in trained] == [19, 19, 450, 45, 1]
    for own, apart in zip(trained, held_out, strict=True):
        assert not torch.isin(own, apart).any()
    for images in (1, 2, 5, 500):
        trained, held_out = split_held_out(FakeImages([20], [images, 50], 20), 0.1, aside=0.999)
        assert [len(own) for own in trained[1:]] == [1, 1]
        assert [len(own) for own in held_out] == [min(2, images - 1)] * 3


def toy(toy_config: Make, **settings: Any) -> RunConfig:
    return toy_config("bic/glyphs/b50s10", method__bias_epochs=2, **settings)


def test_held_out_images_are_never_trained_on(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, set[int]]] = []
    watch_epochs(monkeypatch, lambda one, epoch: drawn.append((one.stage.name, set(one.indices.tolist()))))
    trainer = Trainer(toy(toy_config), toy_data)
    kept = [[own.tolist() for own in trainer.memory.by_class] for _ in trainer.run()]
    trained = [images for stage, images in drawn[::2] if stage == "train"]
    fitted = [images for stage, images in drawn[::2] if stage == "bias"]
    assert [len(images) for images in trained] == [4 * 13, 2 * 4 + 2 * 13, 2 * 6 + 2 * 13]
    for seen, held_out in zip((6, 8), fitted, strict=True):
        assert torch.bincount(trainer.train.labels[sorted(held_out)]).tolist() == [1] * seen
    # An image that is held out in any phase is trained on in no phase.
    assert not set.union(*trained) & set.union(*fitted)
    assert fitted[0] <= fitted[1]
    assert {own[0] for own in kept[1]} == fitted[0]
    assert [len(own) for own in kept[2]] == [3] * 8


@pytest.mark.parametrize(("memory", "fits"), [("per_class:0", False), ("per_class:1", False), ("per_class:2", True)])
def test_the_fit_needs_two_exemplars_per_class(memory: str, fits: bool, toy_config: Make, toy_data: ImageData) -> None:
    record = train(toy(toy_config, protocol__memory=memory, protocol__phase_sizes=[5, 1]), data=toy_data)
    stages = [list(phase["loss"]) for phase in record["phases"]]
    assert stages == [["train"], ["train", "bias"] if fits else ["train"]]


def test_the_correction_reaches_the_record_and_the_teacher(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy(toy_config, method__bias_lr=2.0), toy_data)
    first_pairs = []
    for result in trainer.run():
        by = result.predictions.by
        same = bool((by["uncorrected"] == by["head"]).all())
        assert same == (result.phase.index == 0)
        first_pairs += [trainer.model.head.pairs[0].tolist()] if result.phase.index else []
    assert first_pairs[0] == first_pairs[1]  # training in later phases leaves it as it is
    pairs = trainer.model.head.pairs
    assert len(pairs) == 2
    assert all(pair.tolist() != [1.0, 0.0] for pair in pairs)
    assert trainer.teacher is not None
    for own, copied in zip(pairs, trainer.teacher.head.pairs, strict=True):
        assert torch.equal(own, copied)


class Identity(nn.Module):
    """The images are the features. A norm shows whether batch statistics were used."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, images: Tensor) -> Features:
        return Features(self.norm(images), ())


class Clusters:
    """Images of class c lie around the c-th unit vector; six classes, forty images each."""

    def __init__(self) -> None:
        self.labels = torch.arange(240) % 6
        noise = torch.randn(240, 6, generator=torch.Generator().manual_seed(0))
        self.images = torch.eye(6)[self.labels] + 0.3 * noise

    def prepare(self, plan: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return self.images[plan[0]], self.labels[plan[0]]

    def test_batches(self, indices: Tensor, batch_size: int, first: int) -> Iterator[tuple[Tensor]]:
        return ((part,) for part in indices.split(batch_size)[first:])


def biased_model(method: Bic) -> IncrementalModel:
    """Return a model whose scores of the newest two classes are too steep and too high."""
    model = IncrementalModel(Identity(), method.make_head(6))
    for phase in (Phase(0, 0, 4), LATER):
        method.grow(model, phase, torch.Generator())
    head = model.head
    assert isinstance(head, BiasCorrectedHead)
    with torch.no_grad():
        head.blocks[0].copy_(6 * torch.eye(6)[:4])
        head.blocks[1].copy_(9 * torch.eye(6)[4:])
        head.biases[0].fill_(0.0)
        head.biases[1].fill_(4.0)
    return model


def bias_stage(method: Bic, model: IncrementalModel, images: int, schedule: Schedule) -> Stage:
    """Return the stage that fits the newest pair on the first images."""
    method.training_images, method.held_out_images = [torch.arange(images, 240)], [torch.arange(images)]
    _, stage = method.stages(model, LATER, schedule)
    return stage


def run_stage(stage: Stage, model: IncrementalModel, data: Clusters, images: int, seed: int = 0) -> list[float]:
    """Train the stage on the first images; return the mean loss of each epoch."""
    device = Device.choose(Engine(device="cpu"))
    stage_pass = StagePass(stage, model, None, data, torch.arange(images), device, View("pad"))
    rng = torch.Generator().manual_seed(seed)
    return [float(stage_pass.epoch(epoch, rng)) for epoch in range(stage.schedule.epochs)]


def test_the_correction_balances_old_and_new_classes() -> None:
    method, data = Bic(Bic.Options(bias_epochs=200)), Clusters()
    model = biased_model(method)
    stage = bias_stage(method, model, 120, Schedule(batch_size=120, weight_decay=5e-4, momentum=0.3))
    pair = model.head.pairs[0]
    assert (stage.name, stage.batch_statistics, list(map(id, stage.parameters))) == ("bias", False, [id(pair)])
    fit = stage.schedule
    assert (fit.lr_at(0), fit.lr_at(100), fit.momentum, fit.weight_decay) == (0.1, 0.05, 0.9, 0.0)
    assert torch.equal(stage.images(None), torch.arange(120))

    def per_class(logits: Tensor) -> Tensor:
        right = (logits.argmax(1) == data.labels[120:]).float()
        return torch.stack([right[data.labels[120:] == label].mean() for label in range(6)])

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    losses = run_stage(stage, model, data, images=120)
    assert losses[-1] < 0.5 * losses[0]
    assert losses[-1] == pytest.approx(min(losses), abs=1e-3)
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"head.pairs.0"}

    scores = model(data.images[120:])
    corrected, plain = per_class(scores.logits), per_class(scores.similarities)
    assert plain[:4].mean() < 0.75  # images of old classes are taken for new classes
    assert plain[4:].mean() == 1
    assert corrected.min() > 0.8
    assert corrected[:4].mean() > plain[:4].mean() + 0.1
    alpha, beta = pair.tolist()
    assert alpha < 1
    assert beta < 0


@pytest.mark.parametrize(
    ("images", "size", "even"), [(104, 128, 104), (128, 128, 128), (130, 128, 65), (131, 128, 66), (300, 128, 100)]
)
def test_the_fit_has_even_batches_and_ends_in_small_steps(images: int, size: int, even: int) -> None:
    given = Schedule(batch_size=size, weight_decay=5e-4, momentum=0.3, milestones=(3,))
    fit = Bic(Bic.Options()).fit_schedule(given, images)
    assert (fit.epochs, fit.lr_at(0), fit.momentum, fit.weight_decay) == (200, 0.1, 0.9, 0.0)
    assert fit.batch_size == even
    assert 0 < fit.lr_at(199) < 1e-4
    facils = Bic(Bic.Options(bias_settles=False)).fit_schedule(given, images)
    assert {facils.lr_at(epoch) for epoch in range(200)} == {0.1}
    assert facils.batch_size == size


def slow_minimum(similarities: Tensor, labels: list[int]) -> tuple[float, float]:
    """Search ever finer grids around the best pair so far."""

    def loss(alpha: float, beta: float) -> float:
        corrected = torch.cat([similarities[:, :4], alpha * similarities[:, 4:] + beta], 1)
        return -corrected.log_softmax(1)[range(len(labels)), labels].mean().item() + 0.1 * beta**2 / 2

    best, reach = (0.0, 0.0), 4.0
    while reach > 1e-5:
        around = [step * reach / 4 for step in range(-4, 5)]
        best = min(((best[0] + a, best[1] + b) for a in around for b in around), key=lambda pair: loss(*pair))
        reach /= 2
    return best


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fit_ends_at_the_minimum(seed: int) -> None:
    """On 122 images: FACIL's schedule has batches of 60, 60 and 2 and misses the minimum."""
    data, pairs = Clusters(), []
    for settles in (True, False):
        method = Bic(Bic.Options(bias_settles=settles))
        model = biased_model(method)
        run_stage(bias_stage(method, model, 122, Schedule(batch_size=60)), model, data, 122, seed)
        pairs.append(model.head.pairs[0].tolist())
    similarities = model.eval()(data.images[:122]).similarities.detach()
    minimum = slow_minimum(similarities, data.labels[:122].tolist())
    assert pairs[0] == pytest.approx(minimum, abs=2e-3)
    assert max(abs(a - b) for a, b in zip(pairs[1], minimum, strict=True)) > 0.02


def test_the_common_recipe_with_facils_constants() -> None:
    config = preset("bic/cifar100/b50s10")
    assert config.training.first == config.training.later == Schedule()
    assert config.network.last_relu is True
    losses = {"temperature": 2.0, "distillation": "softmax", "balanced_losses": True}
    fit = {"bias_epochs": 200, "bias_lr": 0.1, "bias_momentum": 0.9, "beta_decay": 0.1}
    assert config.method == Bic.Options(held_out=0.1, keep_pairs=True, **losses, **fit, bias_settles=True)  # ours


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("cifar100/b50s10", Schedule(250, 0.1, "step", (100, 150, 200), weight_decay=2e-4, batch_size=128, shift=-1)),
        (
            "imagenet/b100s100",
            Schedule(100, 0.025, "step", (30, 60, 80, 90), weight_decay=1e-4, batch_size=64, shift=-1),
        ),
    ],
)
def test_podnets_version(data: str, expected: Schedule) -> None:
    config = preset(f"bic-podnet/{data}")
    assert config.training.first == config.training.later == expected
    own = {"distillation": "sigmoid", "balanced_losses": False, "keep_pairs": False, "head_bias": False}
    assert config.method == Bic.Options(variant="podnet", held_out=0.1, set_aside=0.1, **own)
    head = Bic(config.method).make_head(4)
    assert isinstance(head, BiasCorrectedHead)
    assert head.biases is None
