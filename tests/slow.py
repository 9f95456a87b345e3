"""References written the slow, obvious way, for the tests of several methods and networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.methods.stage import Batch
from phasezero.nets import Output


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)) * 2


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same_with_gradient(loss: Tensor, expected: Tensor, logits: Tensor) -> None:
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-12)
    (gradient,), (wanted,) = (torch.autograd.grad(value, logits) for value in (loss, expected))
    assert torch.allclose(gradient, wanted, rtol=0, atol=1e-10)


def is_zero_with_gradient(loss: Tensor, inputs: Tensor) -> None:
    assert loss.item() == 0.0
    (gradient,) = torch.autograd.grad(loss, inputs)
    assert torch.equal(gradient, torch.zeros_like(inputs))


def softmax(row: Tensor) -> list[Tensor]:
    total = sum(value.exp() for value in row)
    return [value.exp() / total for value in row]


def cross_entropy(logits: Tensor, labels: Sequence[int]) -> Tensor:
    return sum(
        -(row[label] - sum(value.exp() for value in row).log()) for row, label in zip(logits, labels, strict=True)
    ) / len(labels)


def cosine_distance(features: Tensor, others: Tensor) -> Tensor:
    """Return one minus the cosine between vectors of two lists, mean over the list."""
    total = 0.0
    for a, b in zip(features, others, strict=True):
        product = sum(x * y for x, y in zip(a, b, strict=True))
        lengths = sum(x * x for x in a) ** 0.5 * sum(y * y for y in b) ** 0.5
        total = total + (1 - product / lengths) / len(features)
    return total


def softened_cross_entropy(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """Return LwF's distillation as FACIL computes it: probabilities to the power of 1/T, normalised to sum to 1."""

    def softened(row: Tensor) -> list[Tensor]:
        powers = [p ** (1 / temperature) for p in softmax(row)]
        return [power / sum(powers) for power in powers]

    losses = []
    for row, old_row in zip(logits, old_logits, strict=True):
        found = [q + 1e-5 / len(row) for q in softened(row)]
        found = [q / sum(found) for q in found]
        losses.append(-sum(p * q.log() for p, q in zip(softened(old_row), found, strict=True)))
    return sum(losses) / len(losses)


def batch_of(logits: Tensor, labels: Sequence[int], old_logits: Tensor | None = None) -> Batch:
    """Return a batch for a loss that looks at logits alone."""
    output, teacher = (None if one is None else Output(one, one, one, ()) for one in (logits, old_logits))
    return Batch(torch.empty(0), torch.tensor(labels), output, teacher)


def batch_norm(state: Mapping[str, Tensor], training: bool) -> Callable[[Tensor, str], Tensor]:
    """The normalisation that a state's entry of that name stands for."""

    def norm(x: Tensor, name: str) -> Tensor:
        if training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        else:
            mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        scaled = (x - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
        return scaled * state[f"{name}.weight"][:, None, None] + state[f"{name}.bias"][:, None, None]

    return norm


def resized_crop(width: int, height: int, u: Sequence[float]) -> tuple[int, int, int, int]:
    """The rule of torchvision's RandomResizedCrop, with random numbers from `u`: ten tries, then the centre."""
    for area_draw, aspect_draw in zip(u[:10], u[10:20], strict=True):
        area = (0.08 + 0.92 * area_draw) * width * height
        aspect = (3 / 4) * (16 / 9) ** aspect_draw
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = math.floor(u[20] * (width - w + 1)), math.floor(u[21] * (height - h + 1))
            return left, top, left + w, top + h
    w, h = width, height
    if width / height < 3 / 4:
        h = round(width / (3 / 4))
    elif width / height > 4 / 3:
        w = round(height * (4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h
