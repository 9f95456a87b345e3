"""PODNet's losses against sums written out number by number, and what it trains in which stage."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase, cut_phases
from phasezero.engine.callbacks import Callback
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.methods.podnet import Podnet, nca, nca_with_margin, pod_flat, pod_spatial
from phasezero.methods.stage import Batch, balanced_exemplars, new_and_exemplars
from phasezero.nets import NETWORKS, IncrementalModel, LocalSimilarityHead, Output
from phasezero.presets import preset
from phasezero.schedule import Schedule
from samples import Make, train
from slow import cosine_distance, normal, same_with_gradient

FIRST, LATER = Phase(0, 0, 5), Phase(2, 3, 2)


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
        values = [sum(image[c, h, w] ** 2 for w in range(width)) for c in range(channels) for h in range(height)]
        values += [sum(image[c, h, w] ** 2 for h in range(height)) for c in range(channels) for w in range(width)]
        length = sum(value * value for value in values) ** 0.5
        return [value / length for value in values]

    total = 0.0
    for one, other in zip(maps, old_maps, strict=True):
        for a, b in zip(one, other, strict=True):
            squares = sum((x - y) ** 2 for x, y in zip(pooled(a), pooled(b), strict=True))
            total = total + squares**0.5 / len(one) / len(maps)
    return total


LABELS = [0, 4, 2, 1, 3, 0, 2]


@pytest.mark.parametrize("scale", [0.05, 0.5, 10.0])
def test_nca_as_coded(scale: float) -> None:
    logits = (scale * normal(7, 5)).requires_grad_()
    same_with_gradient(nca(logits, torch.tensor(LABELS)), slow_nca(logits, LABELS), logits)


def test_nca_as_coded_is_cross_entropy_where_the_label_wins_and_above_it_elsewhere() -> None:
    logits = normal(200, 6)
    expected = F.cross_entropy(logits, logits.argmax(1))
    assert nca(logits, logits.argmax(1)).item() == pytest.approx(expected.item(), rel=1e-12)
    for row in logits[:, None]:
        assert 0 < nca(row, row.argmin(1)) - F.cross_entropy(row, row.argmin(1)) <= math.log(2)


def test_the_margin_as_coded_changes_nothing() -> None:
    """The code subtracts it from all similarities, and then the largest similarity of the sample."""
    logits, labels = normal(7, 5), torch.tensor(LABELS)
    assert nca(logits - 0.6, labels).item() == pytest.approx(nca(logits, labels).item(), rel=1e-12)


@pytest.mark.parametrize("margin", [0.0, 0.6, 5.0])
def test_nca_with_its_margin(margin: float) -> None:
    numbers = torch.cat([normal(35), torch.tensor([margin], dtype=torch.float64)]).requires_grad_()
    logits, delta = numbers[:35].view(7, 5), numbers[35]
    loss = nca_with_margin(logits, torch.tensor(LABELS), delta)
    same_with_gradient(loss, slow_nca_with_margin(logits, LABELS, delta), numbers)


def test_a_single_class_costs_nothing() -> None:
    logits, labels = normal(4, 1).requires_grad_(), torch.zeros(4, dtype=torch.long)
    for loss in (nca(logits, labels), nca_with_margin(logits, labels, torch.tensor(0.6))):
        same_with_gradient(loss, logits.sum() * 0, logits)


def test_pod_flat_is_the_mean_of_one_minus_the_cosine() -> None:
    features, old = normal(5, 4).requires_grad_(), normal(5, 4, seed=1)
    same_with_gradient(pod_flat(features, old), cosine_distance(features, old), features)


def test_a_network_without_maps_is_rejected() -> None:
    with pytest.raises(UserError, match="PODNet needs the maps"):
        pod_spatial([], [])


def test_pod_spatial() -> None:
    numbers, old = normal(120).requires_grad_(), normal(120, seed=1)
    maps, old_maps = ([x[:72].view(3, 2, 4, 3), x[72:].view(3, 4, 2, 2)] for x in (numbers, old))
    same_with_gradient(pod_spatial(maps, old_maps), slow_pod_spatial(maps, old_maps), numbers)


def test_pod_spatial_of_equal_maps_has_no_gradient() -> None:
    maps = normal(2, 3, 4, 4).requires_grad_()
    same_with_gradient(pod_spatial([maps], [maps.detach()]), maps.sum() * 0, maps)
    assert pod_spatial([maps.bfloat16()], [maps.bfloat16()]).dtype == torch.float32  # at least


def batch_of(logits: Tensor, labels: list[int], own: list[Tensor], old: list[Tensor] | None) -> Batch:
    """`own` and `old` are the features and then the maps of the model and its teacher."""
    outputs = [None if one is None else Output(one[0], logits, logits, tuple(one[1:])) for one in (own, old)]
    return Batch(torch.empty(0), torch.tensor(labels), *outputs)


@pytest.mark.parametrize(("true_margin", "phase"), [(False, LATER), (True, LATER), (False, FIRST)])
def test_the_whole_loss(true_margin: bool, phase: Phase) -> None:
    numbers, old_numbers = normal(190).requires_grad_(), normal(154, seed=3)
    logits, scale = numbers[154:189].view(7, 5), numbers[189]
    own, old = ([x[:28].view(7, 4), x[28:154].view(7, 2, 3, 3)] for x in (numbers, old_numbers))
    method = Podnet(Podnet.Options(flat=1.5, spatial=2.5, true_margin=true_margin, margin=0.4))
    loss = method.loss_with(scale, phase)(batch_of(logits, LABELS, own, old if phase.old else None))
    expected = slow_nca_with_margin(logits, LABELS, 0.4 * scale) if true_margin else slow_nca(logits, LABELS)
    if phase.old:
        kept = 1.5 * cosine_distance(own[0], old[0]) + 2.5 * slow_pod_spatial(own[1:], old[1:])
        expected = expected + math.sqrt(5 / 2) * kept
    same_with_gradient(loss, expected, numbers)


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
def test_the_factors_grow_with_the_classes_seen(classes: int, base: int, step: int, first: float, last: float) -> None:
    """A right angle between old and new features costs 1, the same direction nothing."""
    phases = cut_phases(classes, base, step)
    for phase, expected in ((phases[1], first), (phases[-1], last)):
        loss = Podnet(Podnet.Options(flat=1.0, spatial=0.0)).loss_with(torch.ones(()), phase)
        ahead, aside = torch.eye(2, dtype=torch.float64)[:, None]
        logits, maps = normal(1, phase.seen), normal(1, 1, 2, 2)
        cost, nothing = (loss(batch_of(logits, [0], [ahead, maps], [old, maps])).item() for old in (aside, ahead))
        assert cost - nothing == pytest.approx(expected, abs=5e-4)


def test_stages() -> None:
    method = Podnet(Podnet.Options(finetune_epochs=7, finetune_lr=0.03, clamp=4.0))
    model = IncrementalModel(NETWORKS["resnet-glyphs-podnet"](channels=1), method.make_head(64))
    schedule = Schedule(epochs=9, shape="cosine", shift=-1, weight_decay=1e-4, batch_size=32, momentum=0.8)
    first, second = Phase(0, 0, 3), Phase(1, 3, 2)
    method.grow(model, first, torch.Generator().manual_seed(0))
    (train,) = method.stages(model, first, schedule)
    assert {id(p) for p in train.parameters} == {id(p) for p in model.parameters()}
    method.grow(model, second, torch.Generator().manual_seed(1))
    train, tune = method.stages(model, second, schedule)
    assert (train.name, train.images, train.schedule) == ("train", new_and_exemplars, schedule)
    assert {id(p) for p in model.parameters()} - {id(p) for p in train.parameters} == {id(model.head.blocks[0])}
    assert (tune.name, tune.images, tune.batch_statistics) == ("finetune", balanced_exemplars, True)
    assert [id(p) for p in tune.parameters] == [id(block) for block in model.head.blocks]
    constant = tune.schedule
    assert (constant.epochs, {constant.lr_at(epoch) for epoch in range(7)}) == (7, {0.03})
    assert (constant.momentum, constant.weight_decay, constant.batch_size) == (0.8, 1e-4, 32)
    assert train.clamp_gradients == tune.clamp_gradients == 4.0
    still = Podnet(Podnet.Options(finetune_statistics=False))
    assert [stage.batch_statistics for stage in still.stages(model, second, schedule)] == [True, False]


class Watch(Callback):
    """Copy the model's tensors after each epoch of each stage."""

    trainer: Trainer

    def __init__(self) -> None:
        self.stages: list[tuple[int, str]] = []
        self.states: list[dict[str, Tensor]] = []

    def on_epoch_end(self, phase: Phase, stage: str, *facts: object) -> None:
        self.stages.append((phase.index, stage))
        self.states.append({name: tensor.clone() for name, tensor in self.trainer.model.state_dict().items()})


def toy(toy_config: Make, **settings: Any) -> RunConfig:
    return toy_config("podnet/glyphs/b50s10", method__finetune_epochs=1, **settings)


def test_old_proxies_move_in_fine_tuning_only(toy_config: Make, toy_data: ImageData) -> None:
    watch = Watch()
    watch.trainer = Trainer(toy(toy_config, protocol__phase_sizes=[4, 2]), toy_data, watch)
    list(watch.trainer.run())
    assert watch.stages == [(0, "train"), (0, "train"), (1, "train"), (1, "train"), (1, "finetune")]
    _, end_of_0, _, after_main, after_tuning = watch.states
    learned = {name for name in end_of_0 if not torch.equal(end_of_0[name], after_main[name])}
    assert learned == set(end_of_0) - {"head.blocks.0"}
    moved = {name for name in after_main if not torch.equal(after_main[name], after_tuning[name])}
    assert moved == {"head.blocks.0", "head.blocks.1"} | {name for name in after_main if "running" in name}


def test_new_proxies_are_imprinted_after_phase_0(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy(toy_config, training__later__epochs=0).override({"method.finetune_epochs": 0}), toy_data)
    phases = trainer.run()
    next(phases)
    head = trainer.model.head
    assert isinstance(head, LocalSimilarityHead)
    length = torch.linalg.vector_norm(head.blocks[0], dim=2).mean()
    features = trainer.train_features(trainer.train_by_class[5])
    next(phases)
    # Each of the 14 images is near one of the ten centres.
    proxies = head.blocks[1][1].detach() / length
    assert proxies.shape == (10, 64)
    assert (torch.linalg.vector_norm(proxies, dim=1) <= 1 + 1e-5).all()
    units = F.normalize(features, dim=1)
    nearest = torch.cdist(units, proxies).amin(1)
    assert nearest.mean() < 0.5 * (units - units.mean(0)).norm(dim=1).mean()


@pytest.mark.parametrize(("memory", "stages"), [(0, ["train"]), (1, ["train", "finetune"])])
def test_fine_tuning_needs_exemplars(memory: int, stages: list[str], toy_config: Make, toy_data: ImageData) -> None:
    settings = {"protocol__memory": f"per_class:{memory}", "protocol__phase_sizes": [4, 1]}
    assert list(train(toy(toy_config, **settings), data=toy_data)["phases"][1]["loss"]) == stages


@pytest.mark.parametrize(
    ("data", "network", "recipe", "options"),
    [
        ("cifar100/b50s10", "resnet18-cifar-podnet", (160, 0.1, 128, 5e-4), (1.0, 3.0, 0.05)),
        ("imagenet100-podnet/b50s10", "resnet18-podnet", (90, 0.05, 64, 5e-4), (10.0, 8.0, 0.01)),
        ("imagenet/b100s100", "resnet18-podnet", (90, 0.05, 64, 1e-4), (10.0, 8.0, 0.01)),
    ],
)
def test_published_numbers(data: str, network: str, recipe: tuple[float, ...], options: tuple[float, ...]) -> None:
    """Epochs, rate, batch size and weight decay; the factors of POD-flat and POD-spatial, and the rate of tuning."""
    config = preset(f"podnet/{data}")
    assert config.network.name == network
    assert config.training.brightness == pytest.approx(63 / 255)
    flat, spatial, tuning = options
    fixed = {"proxies": 10, "true_margin": False, "margin": 0.6, "clamp": 5.0, "finetune_epochs": 20}
    moving = not data.startswith("cifar100")  # fixed statistics on CIFAR100 are ours
    assert config.method == Podnet.Options(
        flat=flat, spatial=spatial, finetune_lr=tuning, finetune_statistics=moving, **fixed
    )
    for found in (config.training.first, config.training.later):
        assert (found.epochs, found.lr, found.batch_size, found.weight_decay) == recipe
        assert (found.shape, found.shift, found.momentum) == ("cosine", -1, 0.9)
        for epoch in (0, 1, 2, found.epochs - 1):
            turned = math.pi * max(epoch - 1, 0) / found.epochs
            assert found.lr_at(epoch) == pytest.approx(found.lr * (1 + math.cos(turned)) / 2)


def test_the_original_network_on_cifar100() -> None:
    config = preset("podnet-original/cifar100/b50s10")
    assert config.network.name == "resnet32-podnet"
    assert config.training.brightness == pytest.approx(63 / 255)
    assert preset("podnet/glyphs/b50s10").training.brightness == 0  # characters are black on white
