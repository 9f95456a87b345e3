"""References written the slow, obvious way, for the tests of several methods and networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)) * 2


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def same_with_gradient(loss: Tensor, expected: Tensor, logits: Tensor) -> None:
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-12)
    (gradient,), (wanted,) = (torch.autograd.grad(value, logits) for value in (loss, expected))
    assert torch.allclose(gradient, wanted, rtol=0, atol=1e-10)


def softmax(row: Tensor) -> list[Tensor]:
    total = sum(value.exp() for value in row)
    return [value.exp() / total for value in row]


def cross_entropy(logits: Tensor, labels: Sequence[int]) -> Tensor:
    return sum(
        -(row[label] - sum(value.exp() for value in row).log()) for row, label in zip(logits, labels, strict=True)
    ) / len(labels)


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
