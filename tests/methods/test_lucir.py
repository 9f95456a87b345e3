"""LUCIR's losses against sums written out sample by sample, and what it trains in which phase."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from phasezero.config import Network, Protocol, RunConfig, Training
from phasezero.data.images import ImageData, ImageSplit, Preparation
from phasezero.data.stream import Phase, cut_phases
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import Trainer
from phasezero.methods import METHODS
from phasezero.methods.base import Batch, Stage, balanced_exemplars, new_and_exemplars
from phasezero.methods.lucir import Lucir, imprint, less_forget, margin_ranking
from phasezero.nets import CosineHead, Features, IncrementalModel, Output
from phasezero.schedule import Schedule


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- slow references: plain sums over single numbers, differentiable --------------------------------------


def slow_cosine(a: Tensor, b: Tensor) -> Tensor:
    product = sum(x * y for x, y in zip(a, b, strict=True))
    return product / (sum(x * x for x in a) ** 0.5 * sum(y * y for y in b) ** 0.5)


def slow_less_forget(features: Tensor, old_features: Tensor) -> Tensor:
    return sum(1 - slow_cosine(a, b) for a, b in zip(features, old_features, strict=True)) / len(features)


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


def slow_cross_entropy(logits: Tensor, labels: list[int]) -> Tensor:
    losses = [
        -(row[label] - sum(value.exp() for value in row).log())
        for row, label in zip(logits, labels, strict=True)
    ]
    return sum(losses) / len(losses)


# ---- each part --------------------------------------------------------------------------------------------


def test_less_forget() -> None:
    features, old = normal(7, 5).requires_grad_(), normal(7, 5, seed=1)
    loss, expected = less_forget(features, old), slow_less_forget(features, old)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, features)
    (expected_gradient,) = torch.autograd.grad(expected, features)
    assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("scale", "expected"), [(3.0, 0.0), (-0.1, 2.0)])
def test_less_forget_sees_directions_only(scale: float, expected: float) -> None:
    features = normal(4, 5)
    assert less_forget(features, scale * features).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("top_k", [1, 2, 4])
@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 5, 2, 6, 3, 4], [2, 5, 5, 6, 3, 4]])
def test_margin_ranking(labels: list[int], top_k: int) -> None:
    """Three old classes and four new ones; all, some, or one of the samples are old."""
    cosines = (normal(6, 7) / 3).clamp(-1, 1).requires_grad_()
    loss = margin_ranking(cosines, torch.tensor(labels), 3, top_k, 0.5)
    expected = slow_ranking(cosines, labels, 3, top_k, 0.5)
    assert expected.item() > 0
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, cosines)
    (expected_gradient,) = torch.autograd.grad(expected, cosines)
    assert torch.allclose(gradient, expected_gradient, rtol=0, atol=1e-12)


def test_margin_ranking_without_old_samples_is_a_zero_that_backpropagates() -> None:
    cosines = normal(4, 7).requires_grad_()
    loss = margin_ranking(cosines, torch.tensor([3, 4, 5, 6]), 3, 2, 0.5)
    assert loss.item() == 0.0
    loss.backward()
    assert torch.equal(cosines.grad, torch.zeros_like(cosines))


def test_margin_ranking_is_zero_beyond_the_margin() -> None:
    cosines = torch.tensor([[0.9, 0.0, 0.3, 0.4], [0.0, 0.9, 0.3, 0.39]], dtype=torch.float64)
    assert margin_ranking(cosines, torch.tensor([0, 1]), 2, 2, 0.5).item() == 0.0
    assert margin_ranking(cosines, torch.tensor([0, 1]), 2, 2, 0.6).item() == pytest.approx(
        (0.1 + 0.0 + 0.09 + 0.0) / 4
    )


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


# ---- the whole loss ---------------------------------------------------------------------------------------


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
    features = normal(len(labels), 6).requires_grad_()
    old_features = normal(len(labels), 6, seed=1)
    scores = head(features)
    batch = Batch(
        torch.empty(0),
        torch.tensor(labels),
        Output(features, scores.logits, scores.similarities, ()),
        Output(old_features, torch.empty(0), torch.empty(0), ()),
    )
    options = Lucir.Options(lambda_base=7.0, margin=0.4, top_k=2, ranking_weight=0.8)
    loss = Lucir(options).make_loss(Phase(3, old, new))(batch)

    rows = [row for block in head.blocks for row in block]
    cosines = torch.stack([torch.stack([slow_cosine(f, w) for w in rows]) for f in features])
    expected = (
        slow_cross_entropy(head.scale * cosines, labels)
        + 7.0 * math.sqrt(old / new) * slow_less_forget(features, old_features)
        + 0.8 * slow_ranking(cosines, labels, old, min(2, new), 0.4)
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    inputs = [features, *head.parameters()]
    for gradient, wanted in zip(
        torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        assert torch.allclose(gradient, wanted, rtol=0, atol=1e-11)


def test_phase_0_is_cross_entropy() -> None:
    logits, labels = normal(6, 4), [0, 1, 2, 3, 0, 1]
    batch = Batch(torch.empty(0), torch.tensor(labels), Output(logits, logits, logits, ()), None)
    loss = Lucir(Lucir.Options()).make_loss(Phase(0, 0, 4))(batch)
    assert loss.item() == pytest.approx(slow_cross_entropy(logits, labels).item(), rel=1e-12)


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
    phases = cut_phases(100, 50, step)
    for phase, expected in ((phases[1], first), (phases[-1], last)):
        loss = Lucir(Lucir.Options(lambda_base=base_weight)).make_loss(phase)
        logits, cosines = normal(1, phase.seen), normal(1, phase.seen, seed=1) / 5
        ahead, aside = torch.eye(2, dtype=torch.float64)[:, None]
        costs = [
            loss(
                Batch(
                    torch.empty(0),
                    torch.tensor([0]),
                    Output(ahead, logits, cosines, ()),
                    Output(old_features, logits, cosines, ()),
                )
            ).item()
            for old_features in (ahead, aside)
        ]
        # A right angle between the features costs 1, the same direction nothing.
        assert costs[1] - costs[0] == pytest.approx(expected, abs=0.005)


# ---- growing, freezing, stages ----------------------------------------------------------------------------


class ToyBackbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, images: Tensor) -> Features:
        return Features(self.norm(self.layer(images)), ())


class ToyImages:
    """Sixteen random images with labels 0 to 6, and a note of which classes' features were asked for."""

    def __init__(self) -> None:
        self.labels = torch.arange(16) % 7
        self.images = normal(16, 6, seed=3).float()
        self.asked: list[int] = []

    def prepare(self, ticket: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        return self.images[ticket[0]], self.labels[ticket[0]]

    def class_features(self, position: int) -> Tensor:
        self.asked.append(position)
        return normal(5, 8, seed=position).float()


FIRST, SECOND = Phase(0, 0, 4), Phase(1, 4, 3)


def grow(
    method: Lucir, model: IncrementalModel, phase: Phase, images: ToyImages, generator: torch.Generator
) -> None:
    """As the trainer begins a phase."""
    method.grow(model, phase, generator)
    method.begin(model, phase, images)


def model_in_phase_1(options: Lucir.Options) -> tuple[Lucir, IncrementalModel, ToyImages]:
    torch.manual_seed(0)
    method, images = Lucir(options), ToyImages()
    model = IncrementalModel(ToyBackbone(), method.make_head(8))
    grow(method, model, FIRST, images, rng(0))
    grow(method, model, SECOND, images, rng(1))
    return method, model, images


def test_lucir_is_registered_and_has_a_cosine_head() -> None:
    assert METHODS["lucir"] is Lucir
    assert isinstance(Lucir(Lucir.Options()).make_head(8), CosineHead)


@pytest.mark.parametrize("wanted", [False, True])
def test_imprinting_waits_for_old_classes(wanted: bool) -> None:
    method, images = Lucir(Lucir.Options(imprint=wanted)), ToyImages()
    model = IncrementalModel(ToyBackbone(), method.make_head(8))
    grow(method, model, FIRST, images, rng(0))
    assert images.asked == []
    bound = 1 / math.sqrt(8)
    assert model.head.weight().abs().max() <= bound
    old = model.head.weight().detach().clone()
    grow(method, model, SECOND, images, rng(1))
    assert images.asked == ([4, 5, 6] if wanted else [])
    new = model.head.blocks[1].detach()
    drawn = torch.empty(3, 8).uniform_(-bound, bound, generator=rng(1))
    imprinted = imprint(old, [normal(5, 8, seed=position).float() for position in (4, 5, 6)])
    assert torch.allclose(new, imprinted if wanted else drawn)
    assert new.shape == (3, 8)
    assert model.head.blocks[1].requires_grad
    assert torch.equal(model.head.blocks[0], old)


def run_steps(model: IncrementalModel, stage: Stage, images: ToyImages, steps: int = 4) -> None:
    """As the trainer does it: gradients for the stage's parameters alone, then its steps."""
    chosen = {id(parameter) for parameter in stage.parameters}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in chosen)
    model.train(stage.batch_statistics)
    teacher = model.teacher_copy()
    program = StepProgram(model, teacher, stage.loss, stage, images, torch.device("cpu"))
    for i in range(steps):
        program.run((torch.arange(16).roll(i)[:12],))
    assert math.isfinite(program.loss_sum.item())


def what_moved(model: IncrementalModel, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


def test_old_class_weights_stay_through_training() -> None:
    method, model, images = model_in_phase_1(Lucir.Options())
    (stage,) = method.stages(model, SECOND, Schedule(lr=0.1, weight_decay=0.01))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run_steps(model, stage, images)
    assert stage.name == "train"
    assert stage.images is new_and_exemplars
    assert what_moved(model, before) == set(before) - {"head.blocks.0"}


def test_everything_learns_in_phase_0() -> None:
    torch.manual_seed(0)
    method, images = Lucir(Lucir.Options(balanced_epochs=20)), ToyImages()
    model = IncrementalModel(ToyBackbone(), method.make_head(8))
    grow(method, model, Phase(0, 0, 7), images, rng(0))
    (stage,) = method.stages(model, Phase(0, 0, 7), Schedule())  # nothing to balance yet
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run_steps(model, stage, images)
    assert what_moved(model, before) == set(before)


def test_the_balanced_stage_learns_the_class_weights_alone() -> None:
    method, model, images = model_in_phase_1(Lucir.Options(balanced_epochs=20))
    schedule = Schedule(momentum=0.8, weight_decay=1e-4, batch_size=32)
    train, balance = method.stages(model, SECOND, schedule)
    assert train.schedule == schedule
    assert balance.name == "balance"
    assert balance.images is balanced_exemplars
    assert balance.batch_statistics is False
    assert balance.schedule == Schedule(
        epochs=20, lr=0.01, milestones=(10,), momentum=0.8, weight_decay=1e-4, batch_size=32
    )
    assert [id(p) for p in balance.parameters] == [id(block) for block in model.head.blocks]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run_steps(model, balance, images)
    assert what_moved(model, before) == {"head.blocks.0", "head.blocks.1"}


def test_the_balanced_stage_runs_on_the_exemplars_of_all_classes() -> None:
    """A whole small run, watched: which images each stage drew."""
    images = np.random.default_rng(0).integers(0, 256, (48, 8, 8, 1), np.uint8)
    labels = np.arange(48) % 6
    data = ImageData(
        "toy",
        tuple("abcdef"),
        tuple("abcdef"),
        ImageSplit(images, labels),
        ImageSplit(images[:12], labels[:12]),
        Preparation((0.5,), (0.25,), crop="pad", size=8, padding=1),
    )
    schedule = Schedule(epochs=1, batch_size=16)
    config = RunConfig(
        protocol=Protocol(data="toy", class_order="natural", base=4, step=2, memory="per_class:3"),
        network=Network("resnet-glyphs"),
        method=Lucir.Options(balanced_epochs=1),
        training=Training(schedule, schedule),
    )
    trainer = Trainer(config, data)
    drawn: list[list[int]] = []
    train_batches = trainer.train.train_batches

    def watched(indices: Tensor, *others: Any) -> object:
        drawn.append(sorted(indices.tolist()))
        return train_batches(indices, *others)

    trainer.train.train_batches = watched  # type: ignore[method-assign]
    results = list(trainer.run())
    assert [list(result.loss) for result in results] == [["train"], ["train", "balance"]]
    phase_0, phase_1, balanced = drawn
    assert phase_0 == [i for i in range(48) if labels[i] < 4]
    exemplars = sorted(set(phase_1) - {i for i in range(48) if labels[i] >= 4})
    assert np.bincount(labels[exemplars]).tolist() == [3, 3, 3, 3]
    assert len(phase_1) == 16 + 12
    assert np.bincount(labels[balanced]).tolist() == [3] * 6
    assert [i for i in balanced if labels[i] < 4] == exemplars
