"""Mixed images: mixup (Zhang et al., ICLR 2018) and CutMix (Yun et al., ICCV 2019).

Each image is mixed with a partner of the same batch. The share of the image is drawn once per batch from
Beta(alpha, alpha). The loss is the mixture of the losses for both labels, so it works with every method and term. The
weight is alpha.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from phasezero.initial.base import Strategy, StrategyOptions, register_initial
from phasezero.methods.stage import Batch, Loss
from phasezero.validation import POSITIVE, SHARE, option


class Mixing(Strategy):
    rank, coefficient = 1, "alpha"

    def draw(self, count: int, rng: Generator) -> Tensor:
        # A Beta(a, a) is the share of one Gamma(a) in the sum of two. A small a gives values below those of float32.
        alpha = torch.full((2, count), self.options.weight, dtype=torch.float64)
        gamma = torch._standard_gamma(alpha, generator=rng)
        return torch.cat([(gamma[:1] / gamma.sum(0)).float(), torch.rand(self.numbers - 1, count, generator=rng)])

    def share(self, numbers: Tensor, height: int, width: int) -> Tensor:
        """Return the share of an image in its mixture; the batch's first image decides."""
        return numbers[0, 0]

    def compute_loss(self, inner: Loss, batch: Batch, numbers: Tensor) -> Tensor:
        share = self.share(numbers, *batch.images.shape[2:])
        return share * inner(batch) + (1 - share) * inner(batch._replace(labels=batch.labels[partners(numbers)]))


def partners(numbers: Tensor) -> Tensor:
    """Return a random partner for each image: a permutation of the batch."""
    return numbers[1].argsort()


@register_initial("mixup", "mixtures of two images and both labels (ICLR 2018)")
class Mixup(Mixing):
    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "mixup"
        weight: float = option(1.0, **POSITIVE)  # alpha: the authors' value for CIFAR

    label, numbers = "mixup", 2
    options: Options

    def transform(self, pixels: Tensor, numbers: Tensor) -> Tensor:
        share = self.share(numbers, *pixels.shape[2:])
        return share * pixels + (1 - share) * pixels[partners(numbers)]


@register_initial("cutmix", "a box of another image and both labels (ICCV 2019)")
class CutMix(Mixing):
    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "cutmix"
        weight: float = option(1.0, **POSITIVE)  # alpha: the authors' value
        probability: float = option(0.5, **SHARE)  # that a batch is mixed: the authors' value for CIFAR

    label, numbers = "CutMix", 5
    options: Options

    def box(self, numbers: Tensor, height: int, width: int) -> Tensor:
        """Return the pasted box as a mask [H, W]: sides of sqrt(1 - lambda) times the image's, a uniform centre."""
        mixed, _, centre_y, centre_x, chosen = numbers[:, 0]
        side = (1 - mixed).sqrt() * (chosen < self.options.probability)
        masks = []
        for size, centre in ((height, centre_y), (width, centre_x)):
            place, half = torch.arange(size, device=numbers.device), (side * size).floor() / 2
            middle = (centre * size).floor()
            masks.append((place >= (middle - half).floor()) & (place < (middle + half).floor()))
        rows, columns = masks
        return torch.logical_and(rows[:, None], columns)

    def share(self, numbers: Tensor, height: int, width: int) -> Tensor:
        return (~self.box(numbers, height, width)).float().mean()

    def transform(self, pixels: Tensor, numbers: Tensor) -> Tensor:
        return torch.where(self.box(numbers, *pixels.shape[2:]), pixels[partners(numbers)], pixels)
