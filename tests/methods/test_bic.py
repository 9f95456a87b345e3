"""BiC's losses against sums written out number by number, what is held out, and where the correction reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.passes import StagePass
from phasezero.engine.trainer import PhaseResult, Trainer
from phasezero.methods import METHODS
from phasezero.methods.base import Batch
from phasezero.methods.bic import Bic, correction_loss, sigmoid_distillation, split_held_out
from phasezero.nets import BiasCorrectedHead, Output
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
    trained_classes, held_out_classes = split_held_out(images, 0.1, aside=0.0)
    train, held_out = torch.cat(trained_classes), torch.cat(held_out_classes)
    everything = sorted(torch.cat([*images.kept, *images.new]).tolist())
    assert sorted([*train.tolist(), *held_out.tolist()]) == everything
    for own in images.kept:  # the best exemplars
        assert torch.equal(held_out[torch.isin(held_out, own)], own[:each])
    for own in images.new:
        assert torch.isin(held_out, own).sum() == each
    again, _ = split_held_out(images, 0.1, aside=0.0)
    assert torch.equal(train, torch.cat(again))


def test_a_part_of_the_new_images_goes_aside() -> None:
    """PODNet's code: a tenth of all images, of which two a class are held out for the fit."""
    images = FakeImages([20] * 2, [500, 50, 2], 20)
    trained, held_out = split_held_out(images, 0.1, aside=0.1)
    assert [len(own) for own in held_out] == [1] * 5  # a class of two leaves one
    assert [len(own) for own in trained] == [19, 19, 450, 45, 1]
    for own, apart in zip(trained, held_out, strict=True):
        assert not torch.isin(own, apart).any()


@pytest.mark.parametrize("images", [1, 2, 5, 500])
def test_aside_goes_no_more_than_leaves_one(images: int) -> None:
    trained, held_out = split_held_out(FakeImages([20], [images, 50], 20), 0.1, aside=0.999)
    assert [len(own) for own in trained[1:]] == [1, 1]
    assert [len(own) for own in held_out] == [min(2, images - 1)] * 3


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


# ---- the correction in a run ------------------------------------------------------------------------------


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
            Schedule(epochs=250, milestones=(100, 150, 200), weight_decay=2e-4, batch_size=128, shift=-1),
        ),
        (
            "imagenet/b100s100",
            Schedule(100, 0.025, "step", (30, 60, 80, 90), weight_decay=1e-4, batch_size=64, shift=-1),
        ),
    ],
)
def test_podnets_version(data: str, expected: Schedule) -> None:
    config = preset(f"bic-podnet/{data}")
    assert config.training.first == config.training.later == expected
    assert isinstance(config.method, Bic.Options)
    found = config.method
    assert (found.distillation, found.balanced_losses, found.keep_pairs) == ("sigmoid", False, False)
    assert (found.held_out, found.set_aside, found.head_bias) == (0.1, 0.1, False)
    head = Bic(found).make_head(4)
    head.grow(3, torch.Generator())
    assert isinstance(head, BiasCorrectedHead)
    assert head.biases is None
