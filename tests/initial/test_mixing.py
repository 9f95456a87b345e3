"""Mixup and CutMix: images pixel by pixel, losses label by label."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.initial import STRATEGIES
from phasezero.initial.mixing import CutMix, Mixing, Mixup
from phasezero.methods import METHODS
from phasezero.methods.stage import Batch
from phasezero.nets import Output
from slow import cross_entropy, normal, rng, same_with_gradient

SIZE = (8, 12)
both = pytest.mark.parametrize("name", ["mixup", "cutmix"])


def make(name: str, **options: float) -> Mixing:
    kind = STRATEGIES[name]
    assert issubclass(kind, Mixup | CutMix)
    return kind(kind.Options(**options), Phase(0, 0, 3))


def slow_partners(numbers: Tensor) -> list[int]:
    """Return the images in the order of their second random number."""
    return sorted(range(numbers.shape[1]), key=numbers[1].tolist().__getitem__)


def slow_weights(name: str, numbers: Tensor, height: int, width: int) -> np.ndarray:
    """Return how much of each pixel of an image is kept, by the rules of both papers."""
    share, _, *rest = numbers[:, 0].tolist()
    if name == "mixup":
        return np.full((height, width), share)
    kept = np.ones((height, width))
    tall, wide = int(height * math.sqrt(1 - share)), int(width * math.sqrt(1 - share))
    middle_y, middle_x = int(rest[0] * height), int(rest[1] * width)
    for y in range(middle_y - (tall + 1) // 2, middle_y + tall // 2):
        for x in range(middle_x - (wide + 1) // 2, middle_x + wide // 2):
            if 0 <= y < height and 0 <= x < width:
                kept[y, x] = 0
    return kept


@both
@pytest.mark.parametrize("seed", range(6))
def test_each_pixel_is_mixed_with_the_partners(name: str, seed: int) -> None:
    strategy, images = make(name, **({"probability": 1} if name == "cutmix" else {})), normal(5, 3, *SIZE)
    numbers = strategy.draw(5, rng(seed))
    kept, partners = slow_weights(name, numbers, *SIZE), slow_partners(numbers)
    found = strategy.transform(images, numbers)
    for place, partner in enumerate(partners):
        for channel in range(3):
            wanted = kept * images[place, channel].numpy() + (1 - kept) * images[partner, channel].numpy()
            assert np.allclose(found[place, channel], wanted, rtol=0, atol=1e-6)


@both
@pytest.mark.parametrize("seed", range(6))
def test_the_loss_is_cross_entropy_with_the_mixed_labels(name: str, seed: int) -> None:
    strategy, labels, logits = make(name), [0, 2, 1, 1, 0], normal(5, 3).requires_grad_()
    numbers = strategy.draw(5, rng(seed)).double()
    images = torch.eye(5)[:, :, None, None].expand(5, 5, *SIZE)  # channel i shows how much of image i there is
    batch = Batch(strategy.transform(images, numbers), torch.tensor(labels), Output(logits, logits, logits, ()), None)
    found = strategy.compute_loss(
        METHODS["lucir"](METHODS["lucir"].Options()).make_loss(strategy.phase), batch, numbers
    )

    partners = slow_partners(numbers)
    places = [place for place, partner in enumerate(partners) if place != partner]
    share = batch.images.mean((2, 3))[places[0], places[0]].item() if places else 1.0
    theirs = [labels[partner] for partner in partners]
    wanted = share * cross_entropy(logits, labels) + (1 - share) * cross_entropy(logits, theirs)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)

    log_p = np.log(np.exp(logits.detach().numpy()) / np.exp(logits.detach().numpy()).sum(1, keepdims=True))
    targets = np.zeros((5, 3))
    for place, image in enumerate(batch.images.mean((2, 3)).tolist()):
        for label, part in zip(labels, image, strict=True):
            targets[place, label] += part
    assert found.item() == pytest.approx(-(targets * log_p).sum() / 5, rel=1e-6)
    soft = -sum(row.log_softmax(0) @ torch.from_numpy(target) for row, target in zip(logits, targets, strict=True)) / 5
    (gradient,), (slope,) = (torch.autograd.grad(value, logits) for value in (found, soft))
    assert torch.allclose(gradient, slope, rtol=0, atol=1e-7)


@both
@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_the_share_has_a_beta_distribution(name: str, alpha: float) -> None:
    shares = make(name, weight=alpha).draw(50_000, rng()).double()[0] - 0.5
    assert shares.abs().max() <= 0.5
    assert shares.mean().item() == pytest.approx(0, abs=0.01)
    assert shares.square().mean().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.02)
    assert shares.pow(4).mean().item() == pytest.approx(3 / (16 * (2 * alpha + 1) * (2 * alpha + 3)), rel=0.03)


def test_a_small_alpha_hardly_mixes() -> None:
    shares = make("mixup", weight=0.01).draw(10_000, rng()).double()[0] - 0.5
    assert shares.square().mean().item() == pytest.approx(1 / (4 * 1.02), rel=0.02)


@both
def test_partners_are_any_permutation_equally_often(name: str) -> None:
    strategy, images = make(name, **({"probability": 1} if name == "cutmix" else {})), torch.eye(3)[:, :, None, None]
    found: Counter[tuple[int, ...]] = Counter()
    for numbers in strategy.draw(3 * 6_000, rng()).split(3, dim=1):
        numbers[0] = 0  # nothing is kept
        if name == "cutmix":
            numbers[2:4] = 0.5  # a box of the whole image
        found[tuple(strategy.transform(images.expand(3, 3, 2, 2), numbers)[:, :, 0, 0].argmax(1).tolist())] += 1
    assert sorted(found) == [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert all(count == pytest.approx(1_000, rel=0.1) for count in found.values())


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_cutmix_changes_its_share_of_batches_and_leaves_the_others_alone(probability: float) -> None:
    strategy, logits = make("cutmix", probability=probability), normal(4, 3).requires_grad_()
    images, labels, changed = normal(4, 1, 32, 32), [0, 1, 2, 0], 0
    for numbers in strategy.draw(4 * 1_000, rng()).split(4, dim=1):
        numbers[0], numbers[1] = 0.5, torch.tensor([0.3, 0.2, 0.1, 0.0])
        mixed = strategy.transform(images, numbers)
        changed += int(not torch.equal(mixed, images))
    assert changed == pytest.approx(1_000 * probability, abs=40)
    if not probability:
        batch = Batch(mixed, torch.tensor(labels), Output(logits, logits, logits, ()), None)
        found = strategy.compute_loss(lambda one: cross_entropy(one.output.logits, one.labels.tolist()), batch, numbers)
        same_with_gradient(found, cross_entropy(logits, labels), logits)


@pytest.mark.parametrize(
    ("centre", "pasted"), [((0.5, 0.5), 4 * 6), ((0.0, 0.0), 2 * 3), ((0.99, 0.5), 3 * 6), ((0.5, 0.99), 4 * 4)]
)
def test_a_box_that_leaves_the_image_counts_only_its_pixels_inside(centre: tuple[float, float], pasted: int) -> None:
    strategy = make("cutmix", probability=1)
    numbers = torch.tensor([[0.75, 1.0, *centre, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]).T  # a box of half the sides
    images = torch.stack([torch.zeros(1, *SIZE), torch.ones(1, *SIZE)])
    mixed = strategy.transform(images, numbers)
    assert (mixed[0].sum().item(), mixed[1].sum().item()) == (pasted, 96 - pasted)
    assert strategy.share(numbers, *SIZE).item() == pytest.approx(1 - pasted / 96)
