"""Several phase-0 strategies as one: their random numbers, their views in turn, their losses around each other."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from phasezero.initial.base import Strategy
from phasezero.methods.stage import Batch, Loss


class Strategies:
    """Combine strategies by rank, whatever their order in the configuration; equal ranks keep that order."""

    def __init__(self, parts: Sequence[Strategy], feature_size: int, rng: Generator, device: torch.device) -> None:
        self.parts = sorted(parts, key=lambda part: part.rank)
        self.changes_images = any(type(part).transform is not Strategy.transform for part in parts)
        self.copies, self.parameters = 1, list[nn.Parameter]()
        for part in self.parts:
            part.weight = torch.tensor(part.options.weight, device=device)
            self.copies *= part.copies
            if (module := part.make_module(feature_size, rng)) is not None:
                self.parameters += module.to(device).parameters()

    def draw(self, count: int, rng: Generator) -> Tensor:
        """Draw the random numbers of an epoch, a row for each number of each strategy."""
        return torch.cat([part.draw(count, rng) for part in self.parts])

    def transform(self, pixels: Tensor, numbers: Tensor) -> Tensor:
        """Apply all views to a batch."""
        for part, own in zip(self.parts, self._split(numbers), strict=True):
            pixels = part.transform(pixels, own)
        return pixels

    def around(self, loss: Loss) -> Loss:
        """Return the loss of the method and all strategies."""

        def total(batch: Batch) -> Tensor:
            whole = loss
            for part, own in reversed(list(zip(self.parts, self._split(batch.numbers), strict=True))):
                whole = functools.partial(part.compute_loss, whole, numbers=own)
            return whole(batch)

        return total

    def _split(self, numbers: Tensor) -> Sequence[Tensor]:
        return torch.split(numbers, [part.numbers for part in self.parts])
