"""LUCIR's losses against sums written out sample by sample, and what it trains in which phase."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.data.images import ImageData
from phasezero.data.stream import Phase, cut_phases
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import Trainer
from phasezero.methods.lucir import Lucir, imprint, less_forget, margin_ranking
from phasezero.methods.stage import Batch, Stage, balanced_exemplars, new_and_exemplars
from phasezero.nets import CosineHead, IncrementalModel, Output
from phasezero.schedule import Schedule
from samples import Make, ToyBackbone
from slow import cosine_distance, cross_entropy, is_zero_with_gradient, normal, rng, same_with_gradient


def slow_ranking(cosines: Tensor, labels: list[int], old: int, top_k: int, margin: float) -> Tensor:
    terms = []
    for row, label in zip(cosines, labels, strict=True):
        if label >= old:
            continue
        rivals = sorted(range(old, len(row)), key=lambda j: -row[j].item())[:top_k]
        for j in rivals:
            short_by = margin - (row[label] - row[j])
            terms.append(short_by if short_by.item() > 0 else short_by * 0)
    return sum(terms) / len(terms) if terms else cosines.sum() * 0


def test_less_forget() -> None:
    features, old = normal(7, 5).requires_grad_(), normal(7, 5, seed=1)
    same_with_gradient(less_forget(features, old), cosine_distance(features, old), features)


@pytest.mark.parametrize(("scale", "expected"), [(3.0, 0.0), (-0.1, 2.0)])
def test_less_forget_sees_directions_only(scale: float, expected: float) -> None:
    features = normal(4, 5)
    assert less_forget(features, scale * features).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 5, 2, 6, 3, 4], [2, 5, 5, 6, 3, 4]])
def test_margin_ranking(labels: list[int], top_k: int) -> None:
    """Three old and four new classes. All, some, or one of the samples belong to old classes."""
    cosines = (normal(6, 7) / 6).clamp(-1, 1).requires_grad_()
    expected = slow_ranking(cosines, labels, 3, top_k, 0.5)
    assert expected.item() > 0
    same_with_gradient(margin_ranking(cosines, torch.tensor(labels), 3, top_k, 0.5), expected, cosines)


def test_margin_ranking_without_old_samples_is_a_zero_with_a_gradient() -> None:
    cosines = normal(4, 7).requires_grad_()
    is_zero_with_gradient(margin_ranking(cosines, torch.tensor([3, 4, 5, 6]), 3, 2, 0.5), cosines)


def test_margin_ranking_is_zero_beyond_the_margin() -> None:
    cosines = torch.tensor([[0.9, 0.0, 0.3, 0.4], [0.0, 0.9, 0.3, 0.39]], dtype=torch.float64)
    assert margin_ranking(cosines, torch.tensor([0, 1]), 2, 2, 0.5).item() == 0.0
    wider = margin_ranking(cosines, torch.tensor([0, 1]), 2, 2, 0.6)
    assert wider.item() == pytest.approx((0.1 + 0.0 + 0.09 + 0.0) / 4)


def test_imprint() -> None:
    weights = normal(3, 4, seed=5) * 2
    features = [normal(6, 4, seed=6), normal(1, 4, seed=7), normal(9, 4, seed=8) * 50]
    found = imprint(weights, features).numpy()
    lengths = [math.sqrt(sum(x * x for x in row)) for row in weights.tolist()]
    assert found.shape == (3, 4)
    for row, images in zip(found, features, strict=True):
        mean = np.zeros(4)
        for image in images.numpy():
            mean += image / np.sqrt((image**2).sum()) / len(images)
        expected = mean / np.sqrt((mean**2).sum()) * sum(lengths) / len(lengths)
        assert np.allclose(row, expected, atol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "labels"),
    [(4, 3, [0, 6, 2, 4, 5, 1, 3]), (4, 3, [4, 5, 6, 4, 5]), (5, 1, [0, 5, 1, 5, 4, 3]), (4, 2, [0, 1])],
    ids=["mixed", "new only", "one new class", "old only"],
)
def test_the_whole_loss(old: int, new: int, labels: list[int]) -> None:
    head = CosineHead(6)
    head.grow(old, rng(0))
    head.grow(new, rng(1))
    head.double().scale.data.fill_(3.0)
    features, old_features = normal(len(labels), 6).requires_grad_(), normal(len(labels), 6, seed=1)
    output, teacher = Output(features, *head(features), ()), Output(old_features, torch.empty(0), torch.empty(0), ())
    batch = Batch(torch.empty(0), torch.tensor(labels), output, teacher)
    options = Lucir.Options(lambda_base=7.0, margin=0.4, top_k=2, ranking_weight=0.8)
    loss = Lucir(options).make_loss(Phase(3, old, new))(batch)

    rows = [row for block in head.blocks for row in block]
    cosines = torch.stack([torch.stack([1 - cosine_distance([f], [w]) for w in rows]) for f in features])
    expected = (
        cross_entropy(head.scale * cosines, labels)
        + 7.0 * math.sqrt(old / new) * cosine_distance(features, old_features)
        + 0.8 * slow_ranking(cosines, labels, old, min(2, new), 0.4)
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    inputs = [features, *head.parameters()]
    for gradient, wanted in zip(torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs), strict=True):
        assert torch.allclose(gradient, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("base_weight", "step", "first", "last"),
    [
        (5, 10, 11.18, 15.0),
        (5, 5, 15.81, 21.79),
        (5, 2, 25.0, 35.0),
        (10, 10, 22.36, 30.0),
        (10, 5, 31.62, 43.59),
        (10, 2, 50.0, 70.0),
    ],
)
def test_the_weight_of_less_forget_grows_with_the_old_classes(
    base_weight: float, step: int, first: float, last: float
) -> None:
    """A right angle between old and new features costs 1, the same direction nothing."""
    phases = cut_phases(100, 50, step)
    ahead, aside = torch.eye(2, dtype=torch.float64)[:, None]
    for phase, expected in ((phases[1], first), (phases[-1], last)):
        loss = Lucir(Lucir.Options(lambda_base=base_weight)).make_loss(phase)
        scores = normal(1, phase.seen), normal(1, phase.seen, seed=1) / 10
        output, *teachers = (Output(features, *scores, ()) for features in (ahead, aside, ahead))
        cost, nothing = (loss(Batch(torch.empty(0), torch.tensor([0]), output, one)).item() for one in teachers)
        assert cost - nothing == pytest.approx(expected, abs=0.005)


class ToyImages:
    """Sixteen random images with labels 0 to 6. It notes which classes' features were computed."""

    def __init__(self) -> None:
        self.labels = torch.arange(16) % 7
        self.images = normal(16, 6, seed=3).float()
        self.asked: list[int] = []

    def prepare(self, plan: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return self.images[plan[0]], self.labels[plan[0]]

    def class_features(self, position: int) -> Tensor:
        self.asked.append(position)
        return normal(5, 8, seed=position).float()


FIRST, SECOND = Phase(0, 0, 4), Phase(1, 4, 3)


def begin(method: Lucir, *phases: Phase) -> tuple[IncrementalModel, ToyImages]:
    """Return a model as it is when the training of the last of these phases begins."""
    torch.manual_seed(0)
    model, images = IncrementalModel(ToyBackbone(), method.make_head(8)), ToyImages()
    for phase in phases:
        method.grow(model, phase, rng(phase.index))
        method.begin(model, phase, images)
    return model, images


@pytest.mark.parametrize("wanted", [False, True])
def test_imprinting_needs_old_classes(wanted: bool) -> None:
    method, bound = Lucir(Lucir.Options(imprint=wanted)), 1 / math.sqrt(8)
    model, images = begin(method, FIRST)
    old = model.head.weight().detach().clone()
    assert old.abs().max() <= bound
    assert images.asked == []
    model, images = begin(method, FIRST, SECOND)
    assert images.asked == ([4, 5, 6] if wanted else [])
    drawn = torch.empty(3, 8).uniform_(-bound, bound, generator=rng(1))
    imprinted = imprint(old, [ToyImages().class_features(position) for position in (4, 5, 6)])
    assert torch.allclose(model.head.blocks[1], imprinted if wanted else drawn)
    assert torch.equal(model.head.blocks[0], old)
    assert [block.requires_grad for block in model.head.blocks] == [False, True]


def moved_by(stage: Stage, model: IncrementalModel, images: ToyImages) -> set[str]:
    """Return which tensors of the model a few steps of the stage change."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    chosen = {id(parameter) for parameter in stage.parameters}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in chosen)
    model.train(stage.batch_statistics)
    program = StepProgram(model, model.teacher_copy(), stage, images, torch.device("cpu"))
    for i in range(4):
        program.run((torch.arange(16).roll(i)[:12],))
    assert math.isfinite(program.loss_sum.item())
    return {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


def test_all_but_old_class_weights_learn() -> None:
    method = Lucir(Lucir.Options())
    model, images = begin(method, FIRST, SECOND)
    (stage,) = method.stages(model, SECOND, Schedule(lr=0.1, weight_decay=0.01))
    assert (stage.name, stage.images) == ("train", new_and_exemplars)
    assert moved_by(stage, model, images) == set(model.state_dict()) - {"head.blocks.0"}
    everything, method = Phase(0, 0, 7), Lucir(Lucir.Options(balanced_epochs=20))
    model, images = begin(method, everything)
    (stage,) = method.stages(model, everything, Schedule())  # there is nothing to balance in phase 0
    assert moved_by(stage, model, images) == set(model.state_dict())


def test_only_class_weights_learn_in_the_balanced_stage() -> None:
    method = Lucir(Lucir.Options(balanced_epochs=20))
    model, images = begin(method, FIRST, SECOND)
    schedule = Schedule(momentum=0.8, weight_decay=1e-4, batch_size=32)
    train, balance = method.stages(model, SECOND, schedule)
    assert train.schedule == schedule
    assert (balance.name, balance.images, balance.batch_statistics) == ("balance", balanced_exemplars, False)
    kept = {"momentum": 0.8, "weight_decay": 1e-4, "batch_size": 32}
    assert balance.schedule == Schedule(epochs=20, lr=0.01, milestones=(10,), **kept)
    assert [id(p) for p in balance.parameters] == [id(block) for block in model.head.blocks]
    assert moved_by(balance, model, images) == {"head.blocks.0", "head.blocks.1"}


def test_the_balanced_stage_trains_on_the_exemplars_of_all_classes(toy_config: Make, toy_data: ImageData) -> None:
    epochs = {"training__first__epochs": 1, "training__later__epochs": 1, "method__balanced_epochs": 1}
    trainer = Trainer(toy_config("lucir/glyphs/b50s10", protocol__phase_sizes=[4, 2], **epochs), toy_data)
    drawn: list[Tensor] = []
    train_batches = trainer.train.train_batches

    def watched(indices: Tensor, *others: Any) -> object:
        drawn.append(indices)
        return train_batches(indices, *others)

    trainer.train.train_batches = watched  # type: ignore[method-assign]
    results = list(trainer.run())
    assert [list(result.record["loss"]) for result in results] == [["train"], ["train", "balance"]]
    counts = [torch.bincount(trainer.train.labels[indices]).tolist() for indices in drawn]
    assert counts == [[14] * 4, [3, 3, 3, 3, 14, 14], [3] * 6]
    assert set(drawn[2].tolist()) <= set(drawn[1].tolist())
