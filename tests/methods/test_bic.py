"""BiC's losses against sums written out number by number, what is held out, and whether the correction evens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from phasezero import run
from phasezero.config import Engine, RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.device import Device
from phasezero.engine.passes import StagePass
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import PhaseResult, Trainer
from phasezero.methods import METHODS
from phasezero.methods.base import Batch
from phasezero.methods.bic import Bic, correction_loss, sigmoid_distillation, split_held_out
from phasezero.nets import BiasCorrectedHead, Features, IncrementalModel, Output
from phasezero.presets import preset
from phasezero.schedule import Schedule

Make = Callable[..., RunConfig]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def same_gradients(loss: Tensor, expected: Tensor, inputs: list[Tensor]) -> bool:
    found = torch.autograd.grad(loss, inputs, retain_graph=True)
    wanted = torch.autograd.grad(expected, inputs, retain_graph=True)
    return all(torch.allclose(a, b, rtol=0, atol=1e-10) for a, b in zip(found, wanted, strict=True))


# ---- losses -----------------------------------------------------------------------------------------------


def slow_cross_entropy(logits: Tensor, labels: list[int]) -> Tensor:
    losses = [
        -(row[label] - sum(value.exp() for value in row).log())
        for row, label in zip(logits, labels, strict=True)
    ]
    return sum(losses) / len(losses)


def slow_softened(logits: Tensor, old: Tensor, temperature: float) -> Tensor:
    total = 0.0
    for row, old_row in zip(logits, old, strict=True):
        found = [(value / temperature).exp() for value in row]
        wanted = [(value / temperature).exp() for value in old_row]
        probabilities = [value / sum(found) + 1e-5 / len(row) for value in found]
        for p, w in zip(probabilities, wanted, strict=True):
            total = total - w / sum(wanted) * (p / sum(probabilities)).log() / len(logits)
    return total


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
    loss, expected = sigmoid_distillation(logits, old, temperature), slow_sigmoid(logits, old, temperature)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, [logits])


def test_correction_loss() -> None:
    logits = normal(6, 5).requires_grad_()
    pair = torch.tensor([1.2, -0.7], dtype=torch.float64, requires_grad=True)
    corrected = torch.cat([logits[:, :3], pair[0] * logits[:, 3:] + pair[1]], 1)
    loss = correction_loss(corrected, torch.tensor(LABELS), pair, 0.1)
    expected = slow_cross_entropy(corrected, LABELS) + 0.1 * pair[1] ** 2 / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, [logits, pair])


@pytest.mark.parametrize("kind", ["bic", "bic-podnet"])
@pytest.mark.parametrize(("old", "new"), [(3, 2), (4, 1), (1, 4)])
def test_the_whole_loss(kind: str, old: int, new: int) -> None:
    logits, old_logits = normal(6, 5).requires_grad_(), normal(6, old, seed=1)
    batch = Batch(
        torch.empty(0),
        torch.tensor(LABELS),
        Output(torch.empty(0), logits, torch.empty(0), ()),
        Output(torch.empty(0), old_logits, torch.empty(0), ()),
    )
    options = preset(f"{kind}/glyphs/b50s10").method
    method = METHODS[options.name](options)
    loss = method.make_loss(Phase(1, old, new))(batch)
    learned = slow_cross_entropy(logits, LABELS)
    if kind == "bic":
        part = old / (old + new)
        expected = (1 - part) * learned + part * slow_softened(logits[:, :old], old_logits, 2.0)
    else:
        expected = learned + slow_sigmoid(logits[:, :old], old_logits, 2.0)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, [logits])


def test_phase_0_is_cross_entropy() -> None:
    logits = normal(6, 5)
    batch = Batch(torch.empty(0), torch.tensor(LABELS), Output(logits, logits, logits, ()), None)
    loss = Bic(Bic.Options()).make_loss(Phase(0, 0, 5))(batch)
    assert loss.item() == pytest.approx(slow_cross_entropy(logits, LABELS).item(), rel=1e-12)


# ---- what is held out -------------------------------------------------------------------------------------


class FakeImages:
    """Classes of the given numbers of images, the old ones' first."""

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
        ([40] * 2, [50], 20, 2),  # of what a class may keep after the phase
        ([2], [2], 2, 1),
        ([1] * 3, [50] * 2, 1, 0),
        ([0] * 3, [50] * 2, 0, 0),
        ([20], [1, 50], 20, 0),
        ([40], [2, 50], 40, 1),  # a class keeps at least one to train on
        ([40], [4, 50], 40, 3),
        ([], [50] * 3, 20, 2),  # in phase 0 too, for the phases to come
    ],
)
def test_as_many_of_each_class_are_held_out(kept: list[int], new: list[int], quota: int, each: int) -> None:
    images = FakeImages(kept, new, quota)
    trained_classes, held_out_classes = split_held_out(images, 0.1)
    train, held_out = torch.cat(trained_classes), torch.cat(held_out_classes)
    everything = sorted(torch.cat([*images.kept, *images.new]).tolist())
    assert sorted([*train.tolist(), *held_out.tolist()]) == everything
    for own in images.kept:  # the best exemplars
        assert torch.equal(held_out[torch.isin(held_out, own)], own[:each])
    for own in images.new:
        assert torch.isin(held_out, own).sum() == each
    again, _ = split_held_out(images, 0.1)
    assert torch.equal(train, torch.cat(again))


class Diary:
    def __init__(self) -> None:
        self.results: list[PhaseResult] = []

    def started(self, phases: int, total_images: int) -> None: ...

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None: ...

    def phase(self, result: PhaseResult) -> None:
        self.results.append(result)


def toy(toy_config: Make, **settings: Any) -> RunConfig:
    return toy_config("bic/glyphs/b50s10", method__bias_epochs=2, **settings)


def test_held_out_images_are_never_trained_on(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[str, set[int]]] = []
    original = StagePass.epoch

    def watched(self: StagePass, epoch: int, rng: torch.Generator) -> float:
        drawn.append((self.stage.name, set(self.indices.tolist())))
        return original(self, epoch, rng)

    monkeypatch.setattr(StagePass, "epoch", watched)
    trainer = Trainer(toy(toy_config), toy_data)
    kept: list[list[list[int]]] = []
    for _ in trainer.run():
        kept.append([own.tolist() for own in trainer.memory.by_class])
    trained = [images for stage, images in drawn[::2] if stage == "train"]
    fitted = [images for stage, images in drawn[::2] if stage == "bias"]
    assert [len(images) for images in trained] == [4 * 13, 2 * 4 + 2 * 13, 2 * 6 + 2 * 13]
    for seen, held_out in zip((6, 8), fitted, strict=True):
        assert torch.bincount(trainer.train.labels[sorted(held_out)]).tolist() == [1] * seen
    # Not in the phase, and not in any other: what is held out of a class was so since it was new.
    assert not set.union(*trained) & set.union(*fitted)
    assert fitted[0] <= fitted[1]
    assert {own[0] for own in kept[1]} == fitted[0]
    assert [len(own) for own in kept[2]] == [3] * 8


@pytest.mark.parametrize(
    ("memory", "stages"),
    [
        ("per_class:0", ["train"]),
        ("per_class:1", ["train"]),
        ("per_class:2", ["train", "bias"]),
        ("total:20", ["train", "bias"]),
    ],
)
def test_little_memory_and_single_classes(
    memory: str, stages: list[str], toy_config: Make, toy_data: ImageData
) -> None:
    config = toy(toy_config, protocol__memory=memory, protocol__phase_sizes=[5, 1, 1])
    record = run(config, data=toy_data)
    assert list(record["phases"][0]["loss"]) == ["train"]
    assert list(record["phases"][1]["loss"]) == stages


# ---- the correction ---------------------------------------------------------------------------------------


class Identity(nn.Module):
    """The images are the features; a norm shows whether batch statistics were used."""

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

    def prepare(self, ticket: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return self.images[ticket[0]], self.labels[ticket[0]]

    def test_batches(self, indices: Tensor, batch_size: int) -> Iterator[tuple[Tensor]]:
        return ((part,) for part in indices.split(batch_size))


def biased_model(method: Bic) -> IncrementalModel:
    """A head that is right but for its newest two classes: too steep and too high."""
    model = IncrementalModel(Identity(), method.make_head(6))
    for phase in (Phase(0, 0, 4), Phase(1, 4, 2)):
        method.grow(model, phase, torch.Generator())
    head = model.head
    assert isinstance(head, BiasCorrectedHead)
    with torch.no_grad():
        for block, rows, bias, shift in zip(
            head.blocks, (torch.eye(6)[:4], 1.5 * torch.eye(6)[4:]), head.biases, (0.0, 4.0), strict=True
        ):
            block.copy_(6 * rows)
            bias.fill_(shift)
    return model


def test_the_correction_evens_out_old_and_new() -> None:
    method, data = Bic(Bic.Options(bias_epochs=200)), Clusters()
    model = biased_model(method)
    method.training_images, method.held_out_images = [torch.arange(120, 240)], [torch.arange(120)]
    _, stage = method.stages(model, Phase(1, 4, 2), Schedule(batch_size=60, weight_decay=5e-4, momentum=0.3))
    pair = model.head.pairs[0]
    assert (stage.name, stage.batch_statistics, list(map(id, stage.parameters))) == (
        "bias",
        False,
        [id(pair)],
    )
    fit = stage.schedule
    assert (fit.lr_at(0), fit.lr_at(100), fit.momentum, fit.weight_decay) == (0.1, 0.05, 0.9, 0.0)
    assert torch.equal(stage.images(FakeImages([1], [1], 1)), torch.arange(120))

    def per_class(logits: Tensor) -> Tensor:
        right = (logits.argmax(1) == data.labels[120:]).float()
        return torch.stack([right[data.labels[120:] == label].mean() for label in range(6)])

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    pair.requires_grad_()
    model.train(stage.batch_statistics)
    program = StepProgram(model, None, stage.loss, stage, data, torch.device("cpu"))
    losses = []
    for epoch in range(fit.epochs):
        program.learning_rate.fill_(fit.lr_at(epoch))
        program.loss_sum.zero_()
        for half in torch.arange(120).split(60):
            program.run((half,))
        losses.append(program.loss_sum.item() / 120)
    assert losses[-1] < 0.5 * losses[0]
    assert losses[-1] == pytest.approx(min(losses), abs=1e-3)
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"head.pairs.0"}

    scores = model(data.images[120:])
    corrected, plain = per_class(scores.logits), per_class(scores.similarities)
    assert plain[:4].mean() < 0.75  # old images taken for new ones
    assert plain[4:].mean() == 1
    assert corrected.min() > 0.8
    assert corrected[:4].mean() > plain[:4].mean() + 0.1
    alpha, beta = pair.tolist()
    assert alpha < 1
    assert beta < 0


@pytest.mark.parametrize(
    ("images", "size", "even"),
    [(104, 128, 104), (128, 128, 128), (130, 128, 65), (131, 128, 66), (300, 128, 100)],
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
    """Ever finer grids around the best pair so far."""

    def loss(alpha: float, beta: float) -> float:
        corrected = torch.cat([similarities[:, :4], alpha * similarities[:, 4:] + beta], 1)
        return -corrected.log_softmax(1)[range(len(labels)), labels].mean().item() + 0.1 * beta**2 / 2

    best, reach = (0.0, 0.0), 4.0
    while reach > 1e-5:
        around = [step * reach / 4 for step in range(-4, 5)]
        best = min(((best[0] + a, best[1] + b) for a in around for b in around), key=lambda pair: loss(*pair))
        reach /= 2
    return best


def fitted_pair(settles: bool, images: int, seed: int) -> tuple[Tensor, tuple[float, float]]:
    """By all epochs of the stage, and by trying; on so many images that batches of 60 leave two for a third."""
    method, data = Bic(Bic.Options(bias_settles=settles)), Clusters()
    model = biased_model(method)
    method.training_images, method.held_out_images = [torch.arange(images, 240)], [torch.arange(images)]
    _, stage = method.stages(model, Phase(1, 4, 2), Schedule(batch_size=60))
    device = Device.choose(Engine(device="cpu"))
    stage_pass = StagePass(stage, stage.loss, model, None, data, torch.arange(images), device)
    rng = torch.Generator().manual_seed(seed)
    for epoch in range(stage.schedule.epochs):
        stage_pass.epoch(epoch, rng)
    similarities = model.eval()(data.images[:images]).similarities.detach()
    return model.head.pairs[0].detach(), slow_minimum(similarities, data.labels[:images].tolist())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_fit_settles_at_the_minimum(seed: int) -> None:
    pair, minimum = fitted_pair(True, 122, seed)
    assert pair.tolist() == pytest.approx(minimum, abs=2e-3)
    facils, _ = fitted_pair(False, 122, seed)
    assert max(abs(a - b) for a, b in zip(facils.tolist(), minimum, strict=True)) > 0.02


def test_the_correction_reaches_the_record_and_the_teacher(toy_config: Make, toy_data: ImageData) -> None:
    diary = Diary()
    trainer = Trainer(toy(toy_config, method__bias_lr=2.0), toy_data, diary)
    list(trainer.run())
    pairs = trainer.model.head.pairs
    assert len(pairs) == 2
    assert all(pair.tolist() != [1.0, 0.0] for pair in pairs)
    assert trainer.teacher is not None
    for own, copied in zip(pairs, trainer.teacher.head.pairs, strict=True):
        assert torch.equal(own, copied)
    for result in diary.results:
        assert result.predictions.uncorrected is not None
        same = bool((result.predictions.uncorrected == result.predictions.head).all())
        assert same == (result.phase.index == 0)


def test_pairs_stay_through_ordinary_training(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy(toy_config), toy_data)
    pairs: list[list[float]] = []
    for result in trainer.run():
        if result.phase.index:
            pairs.append(trainer.model.head.pairs[0].tolist())
    assert pairs[0] == pairs[1]


# ---- the published numbers --------------------------------------------------------------------------------


def test_the_common_recipe_with_facils_constants() -> None:
    config = preset("bic/cifar100/b50s10")
    assert config.training.first == config.training.later == Schedule()
    assert config.network.last_relu is True
    assert config.method == Bic.Options(
        held_out=0.1,
        temperature=2.0,
        distillation="softmax",
        balanced_losses=True,
        keep_pairs=True,
        bias_epochs=200,
        bias_lr=0.1,
        bias_momentum=0.9,
        bias_settles=True,  # ours
        beta_decay=0.1,
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            "cifar100/b50s10",
            Schedule(epochs=250, lr=0.1, milestones=(100, 150, 200), weight_decay=2e-4, batch_size=128),
        ),
        (
            "imagenet/b100s100",
            Schedule(epochs=100, lr=0.025, milestones=(30, 60, 80, 90), weight_decay=1e-4, batch_size=64),
        ),
    ],
)
def test_podnets_version(data: str, expected: Schedule) -> None:
    config = preset(f"bic-podnet/{data}")
    assert config.training.first == config.training.later == expected
    assert isinstance(config.method, Bic.Options)
    assert (config.method.distillation, config.method.balanced_losses, config.method.keep_pairs) == (
        "sigmoid",
        False,
        False,
    )
    assert math.isclose(config.method.held_out, 0.1)
