"""PODNet's losses against sums written out number by number, and what it trains in which stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase, cut_phases
from phasezero.engine.trainer import PhaseResult, Trainer
from phasezero.methods import METHODS
from phasezero.methods.base import Batch, balanced_exemplars, new_and_exemplars
from phasezero.methods.podnet import Podnet, nca, nca_with_margin, pod_flat, pod_spatial
from phasezero.nets import NETWORKS, IncrementalModel, LocalSimilarityHead, Output
from phasezero.presets import preset
from phasezero.schedule import Schedule

Make = Callable[..., RunConfig]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def same_gradients(loss: Tensor, expected: Tensor, inputs: list[Tensor], atol: float = 1e-10) -> bool:
    found = torch.autograd.grad(loss, inputs, retain_graph=True)
    wanted = torch.autograd.grad(expected, inputs, retain_graph=True)
    return all(torch.allclose(a, b, rtol=0, atol=atol) for a, b in zip(found, wanted, strict=True))


# ---- slow references --------------------------------------------------------------------------------------


def slow_nca(logits: Tensor, labels: list[int]) -> Tensor:
    losses = []
    for row, label in zip(logits, labels, strict=True):
        top = row[max(range(len(row)), key=lambda j: row[j].item())]
        others = sum((row[j] - top).exp() for j in range(len(row)) if j != label)
        losses.append(-(row[label] - top) + (1 + others).log())
    return sum(losses) / len(losses)


def slow_nca_with_margin(logits: Tensor, labels: list[int], margin: Tensor) -> Tensor:
    losses = []
    for row, label in zip(logits, labels, strict=True):
        others = sum(row[j].exp() for j in range(len(row)) if j != label)
        loss = -((row[label] - margin).exp() / others).log()
        losses.append(loss if loss.item() > 0 else loss * 0)
    return sum(losses) / len(losses)


def slow_pod_spatial(maps: list[Tensor], old_maps: list[Tensor]) -> Tensor:
    def pooled(image: Tensor) -> list[Tensor]:
        channels, height, width = image.shape
        values = [
            sum(image[c, h, w] ** 2 for w in range(width)) for c in range(channels) for h in range(height)
        ]
        values += [
            sum(image[c, h, w] ** 2 for h in range(height)) for c in range(channels) for w in range(width)
        ]
        length = sum(value * value for value in values) ** 0.5
        return [value / length for value in values]

    total = 0.0
    for one, other in zip(maps, old_maps, strict=True):
        for a, b in zip(one, other, strict=True):
            squares = sum((x - y) ** 2 for x, y in zip(pooled(a), pooled(b), strict=True))
            total = total + squares**0.5 / len(one) / len(maps)
    return total


def slow_pod_flat(features: Tensor, old_features: Tensor) -> Tensor:
    total = 0.0
    for a, b in zip(features, old_features, strict=True):
        product = sum(x * y for x, y in zip(a, b, strict=True))
        lengths = sum(x * x for x in a) ** 0.5 * sum(y * y for y in b) ** 0.5
        total = total + (1 - product / lengths) / len(features)
    return total


# ---- each part --------------------------------------------------------------------------------------------


LABELS = [0, 4, 2, 1, 3, 0, 2]


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_nca_as_run(scale: float) -> None:
    logits = (scale * normal(7, 5)).requires_grad_()
    loss, expected = nca(logits, torch.tensor(LABELS)), slow_nca(logits, LABELS)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, [logits])


def test_nca_as_run_is_cross_entropy_where_the_label_wins_and_above_it_elsewhere() -> None:
    logits = normal(200, 6)
    entropies = torch.nn.functional.cross_entropy(logits, logits.argmax(1), reduction="none")
    assert nca(logits, logits.argmax(1)).item() == pytest.approx(entropies.mean().item(), rel=1e-12)
    for row in logits:
        label = row.argmin()[None]
        excess = nca(row[None], label) - torch.nn.functional.cross_entropy(row[None], label)
        assert 0 < excess <= math.log(2)


def test_the_margin_as_coded_would_change_nothing() -> None:
    """It was taken from all similarities alike, then the row's maximum was."""
    logits, labels = normal(7, 5), torch.tensor(LABELS)
    assert nca(logits - 0.6, labels).item() == pytest.approx(nca(logits, labels).item(), rel=1e-12)


@pytest.mark.parametrize("margin", [0.0, 0.6, 5.0])
def test_nca_with_its_margin(margin: float) -> None:
    logits = (2 * normal(7, 5)).requires_grad_()
    delta = torch.tensor(margin, dtype=torch.float64).requires_grad_()
    loss = nca_with_margin(logits, torch.tensor(LABELS), delta)
    expected = slow_nca_with_margin(logits, LABELS, delta)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, [logits, delta])


def test_a_single_class_costs_nothing() -> None:
    logits, labels = normal(4, 1).requires_grad_(), torch.zeros(4, dtype=torch.long)
    for loss in (nca(logits, labels), nca_with_margin(logits, labels, torch.tensor(0.6))):
        assert loss.item() == 0
        (gradient,) = torch.autograd.grad(loss, logits)
        assert torch.equal(gradient, torch.zeros_like(gradient))


def test_pod_spatial() -> None:
    shapes = [(3, 2, 4, 3), (3, 4, 2, 2)]
    maps = [normal(*shape, seed=i).requires_grad_() for i, shape in enumerate(shapes)]
    old = [normal(*shape, seed=5 + i) for i, shape in enumerate(shapes)]
    loss, expected = pod_spatial(maps, old), slow_pod_spatial(maps, old)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, maps)


def test_pod_spatial_of_equal_maps_has_no_gradient() -> None:
    maps = normal(2, 3, 4, 4).requires_grad_()
    loss = pod_spatial([maps], [maps.detach()])
    (gradient,) = torch.autograd.grad(loss, maps)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_pod_spatial_is_computed_in_float32_at_least() -> None:
    assert (
        pod_spatial([normal(2, 3, 4, 4).bfloat16()], [normal(2, 3, 4, 4).bfloat16()]).dtype == torch.float32
    )


# ---- the whole loss ---------------------------------------------------------------------------------------


def batch_of(logits: Tensor, labels: list[int], one: list[Tensor], other: list[Tensor] | None) -> Batch:
    """`one` and `other`: features, then maps, of the student and the teacher."""
    teacher = None if other is None else Output(other[0], torch.empty(0), torch.empty(0), tuple(other[1:]))
    return Batch(
        torch.empty(0), torch.tensor(labels), Output(one[0], logits, logits, tuple(one[1:])), teacher
    )


@pytest.mark.parametrize("true_margin", [False, True])
def test_the_whole_loss(true_margin: bool) -> None:
    logits = normal(7, 5).requires_grad_()
    scale = torch.tensor(1.7, dtype=torch.float64).requires_grad_()
    own = [normal(7, 4, seed=1).requires_grad_(), normal(7, 2, 3, 3, seed=2).requires_grad_()]
    old = [normal(7, 4, seed=3), normal(7, 2, 3, 3, seed=4)]
    method = Podnet(Podnet.Options(flat=1.5, spatial=2.5, true_margin=true_margin, margin=0.4))
    loss = method.loss_with(scale, Phase(2, 3, 2))(batch_of(logits, LABELS, own, old))
    learned = slow_nca_with_margin(logits, LABELS, 0.4 * scale) if true_margin else slow_nca(logits, LABELS)
    kept = 1.5 * slow_pod_flat(own[0], old[0]) + 2.5 * slow_pod_spatial(own[1:], old[1:])
    expected = learned + math.sqrt(5 / 2) * kept
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, [logits, *own, *([scale] if true_margin else [])])


def test_phase_0_has_no_distillation() -> None:
    logits, features = normal(7, 5), normal(7, 4)
    loss = Podnet(Podnet.Options()).loss_with(torch.ones(()), Phase(0, 0, 5))
    found = loss(batch_of(logits, LABELS, [features], None))
    assert found.item() == pytest.approx(slow_nca(logits, LABELS).item(), rel=1e-12)


@pytest.mark.parametrize(
    ("classes", "base", "step", "first", "last"),
    [
        (100, 50, 10, 2.449, 3.162),
        (100, 50, 5, 3.317, 4.472),
        (100, 50, 2, 5.099, 7.071),
        (1000, 100, 100, 1.414, 3.162),
        (1000, 100, 50, 1.732, 4.472),
    ],
)
def test_the_factors_grow_with_the_classes_seen(
    classes: int, base: int, step: int, first: float, last: float
) -> None:
    phases = cut_phases(classes, base, step)
    for phase, expected in ((phases[1], first), (phases[-1], last)):
        loss = Podnet(Podnet.Options(flat=1.0, spatial=0.0)).loss_with(torch.ones(()), phase)
        ahead, aside = torch.eye(2, dtype=torch.float64)[:, None]
        logits, maps = normal(1, phase.seen), normal(1, 1, 2, 2)
        cost, nothing = (
            loss(batch_of(logits, [0], [ahead, maps], [old, maps])).item() for old in (aside, ahead)
        )
        assert cost - nothing == pytest.approx(expected, abs=5e-4)  # a right angle costs 1


def test_pod_flat_is_the_mean_of_one_minus_the_cosine() -> None:
    features = normal(5, 4).requires_grad_()
    old = normal(5, 4, seed=1)
    loss, expected = pod_flat(features, old), slow_pod_flat(features, old)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert same_gradients(loss, expected, [features])


# ---- stages -----------------------------------------------------------------------------------------------


def test_stages() -> None:
    method = Podnet(Podnet.Options(finetune_epochs=7, finetune_lr=0.03, clamp=4.0))
    model = IncrementalModel(NETWORKS["resnet-glyphs-podnet"](channels=1), method.make_head(64))
    method.has_exemplars = True
    schedule = Schedule(epochs=9, shape="cosine", shift=-1, weight_decay=1e-4, batch_size=32, momentum=0.8)
    first, second = Phase(0, 0, 3), Phase(1, 3, 2)
    method.grow(model, first, torch.Generator().manual_seed(0))
    (train,) = method.stages(model, first, schedule)
    assert {id(p) for p in train.parameters} == {id(p) for p in model.parameters()}
    method.grow(model, second, torch.Generator().manual_seed(1))
    train, tune = method.stages(model, second, schedule)
    assert (train.name, train.images, train.schedule) == ("train", new_and_exemplars, schedule)
    assert {id(p) for p in model.parameters()} - {id(p) for p in train.parameters} == {
        id(model.head.blocks[0])
    }
    assert (tune.name, tune.images, tune.batch_statistics) == ("finetune", balanced_exemplars, True)
    assert [id(p) for p in tune.parameters] == [id(block) for block in model.head.blocks]
    assert [tune.schedule.lr_at(epoch) for epoch in range(7)] == [0.03] * 7
    assert tune.schedule.epochs == 7
    assert (tune.schedule.momentum, tune.schedule.weight_decay, tune.schedule.batch_size) == (0.8, 1e-4, 32)
    assert train.clamp_gradients == tune.clamp_gradients == 4.0
    still = Podnet(Podnet.Options(finetune_statistics=False))
    still.has_exemplars = True
    assert [stage.batch_statistics for stage in still.stages(model, second, schedule)] == [True, False]


class Watch:
    """Copies of the head after each epoch of each stage."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.seen: list[tuple[int, str, int, dict[str, Tensor]]] = []

    def started(self, phases: int, total_images: int) -> None: ...

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        assert self.trainer is not None
        state = {name: tensor.clone() for name, tensor in self.trainer.model.state_dict().items()}
        self.seen.append((phase.index, stage, epoch, state))

    def phase(self, result: PhaseResult) -> None: ...


def toy(toy_config: Make, **settings: Any) -> RunConfig:
    return toy_config("podnet/glyphs/b50s10", method__finetune_epochs=1, **settings)


def test_old_proxies_move_in_fine_tuning_alone(toy_config: Make, toy_data: ImageData) -> None:
    watch = Watch()
    watch.trainer = Trainer(toy(toy_config), toy_data, watch)
    list(watch.trainer.run())
    assert [(phase, stage) for phase, stage, _, _ in watch.seen] == [
        (0, "train"),
        (0, "train"),
        *[(phase, stage) for phase in (1, 2) for stage in ("train", "train", "finetune")],
    ]
    states = [state for *_, state in watch.seen]
    end_of_0, after_main, after_tuning = states[1], states[3], states[4]
    assert torch.equal(end_of_0["head.blocks.0"], after_main["head.blocks.0"])
    moved = {name for name in after_main if not torch.equal(after_main[name], after_tuning[name])}
    statistics = {name for name in after_main if "running" in name}
    assert moved == {"head.blocks.0", "head.blocks.1"} | statistics
    learned = set(end_of_0) - {"head.blocks.0"}
    assert all(not torch.equal(end_of_0[name], after_main[name]) for name in learned)


def test_new_proxies_are_imprinted_after_phase_0(toy_config: Make, toy_data: ImageData) -> None:
    settings = {"training.later.epochs": 0, "method.finetune_epochs": 0}
    trainer = Trainer(toy(toy_config).override(settings), toy_data)
    phases = trainer.run()
    next(phases)
    head = trainer.model.head
    assert isinstance(head, LocalSimilarityHead)
    length = torch.linalg.vector_norm(head.blocks[0], dim=2).mean()
    features = trainer.train_features(trainer.train_by_class[5])
    next(phases)
    # The toy has 14 images a class: the mean of ten centres of unit vectors lies near their mean.
    proxies = head.blocks[1][1].detach() / length
    assert proxies.shape == (10, 64)
    assert (torch.linalg.vector_norm(proxies, dim=1) <= 1 + 1e-5).all()
    units = torch.nn.functional.normalize(features, dim=1)
    nearest = torch.cdist(units, proxies).amin(1)
    assert nearest.mean() < 0.5 * (units - units.mean(0)).norm(dim=1).mean()


@pytest.mark.parametrize("memory", ["per_class:0", "per_class:1"])
@pytest.mark.parametrize("sizes", [[6, 1, 1]])
def test_little_memory_and_single_classes(
    memory: str, sizes: list[int], toy_config: Make, toy_data: ImageData
) -> None:
    record = run(toy(toy_config, protocol__memory=memory, protocol__phase_sizes=sizes), data=toy_data)
    stages = ["train"] if memory == "per_class:0" else ["train", "finetune"]
    assert list(record["phases"][1]["loss"]) == stages


# ---- the published numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "network", "schedule", "options"),
    [
        (
            "cifar100/b50s10",
            "resnet18-cifar-podnet",
            {"epochs": 160, "lr": 0.1, "batch_size": 128, "weight_decay": 5e-4},
            {"flat": 1.0, "spatial": 3.0, "finetune_lr": 0.05},
        ),
        (
            "imagenet100-podnet/b50s10",
            "resnet18-podnet",
            {"epochs": 90, "lr": 0.05, "batch_size": 64, "weight_decay": 5e-4},
            {"flat": 10.0, "spatial": 8.0, "finetune_lr": 0.01},
        ),
        (
            "imagenet/b100s100",
            "resnet18-podnet",
            {"epochs": 90, "lr": 0.05, "batch_size": 64, "weight_decay": 1e-4},
            {"flat": 10.0, "spatial": 8.0, "finetune_lr": 0.01},
        ),
    ],
)
def test_published_numbers(
    data: str, network: str, schedule: dict[str, Any], options: dict[str, float]
) -> None:
    config = preset(f"podnet/{data}")
    assert config.network.name == network
    assert config.training.brightness == pytest.approx(63 / 255)
    own = {"finetune_statistics": not data.startswith("cifar100")}  # ours where it is false
    assert config.method == Podnet.Options(
        **options, **own, proxies=10, true_margin=False, margin=0.6, clamp=5.0, finetune_epochs=20
    )
    for found in (config.training.first, config.training.later):
        assert {key: getattr(found, key) for key in schedule} == schedule
        assert (found.shape, found.shift, found.momentum) == ("cosine", -1, 0.9)
        for epoch in (0, 1, 2, found.epochs - 1):
            turned = math.pi * max(epoch - 1, 0) / found.epochs
            assert found.lr_at(epoch) == pytest.approx(schedule["lr"] * (1 + math.cos(turned)) / 2)


def test_the_original_network_on_cifar100() -> None:
    assert METHODS["podnet"] is Podnet
    config = preset("podnet-original/cifar100/b50s10")
    assert config.network.name == "resnet32-podnet"
    assert config.training.brightness == pytest.approx(63 / 255)
    assert preset("podnet/glyphs/b50s10").training.brightness == 0  # characters are black on white
