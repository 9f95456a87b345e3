"""Self-supervised label augmentation, SLA (Lee et al., ICML 2020): each image in four rotations, with labels 4c + r.

A linear head with 4C outputs learns the joint label of class and rotation. It exists in phase 0 only. The method's own
head and loss, and all terms, see the upright images.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.errors import UserError
from phasezero.initial.base import Strategy, StrategyOptions, register_initial
from phasezero.methods.stage import Batch, Loss
from phasezero.nets import LinearHead, Output
from phasezero.validation import WEIGHT, option


def rotations(images: Tensor) -> Tensor:
    """Return the images, then all of them turned by 90, 180 and 270 degrees: [4n, C, H, H]."""
    return torch.cat([torch.rot90(images, turns, (2, 3)) for turns in range(4)])


def joint_labels(labels: Tensor) -> Tensor:
    """Return the labels 4c + r of `rotations`.

    >>> import torch
    >>> from phasezero.initial.sla import joint_labels
    >>> joint_labels(torch.tensor([0, 2]))
    tensor([ 0,  8,  1,  9,  2, 10,  3, 11])
    """
    return torch.cat([4 * labels + turns for turns in range(4)])


def first_rows(output: Output, count: int) -> Output:
    """Return the output on the first images."""
    features, logits, similarities, maps = output
    return Output(features[:count], logits[:count], similarities[:count], tuple(one[:count] for one in maps))


@register_initial("sla", "rotated images, labels 4c + r on a second head (2020)")
class SelfSupervisedLabels(Strategy):
    label = "SLA"

    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "sla"
        weight: float = option(1.0, **WEIGHT)  # weight of the joint labels' cross-entropy

    rank, copies = 2, 4
    options: Options

    def make_module(self, feature_size: int, rng: torch.Generator) -> nn.Module:
        self.head = LinearHead(feature_size, bias=True)
        self.head.grow(4 * self.phase.new, rng)
        return self.head

    def transform(self, pixels: Tensor, numbers: Tensor) -> Tensor:
        if pixels.shape[2] != pixels.shape[3]:
            raise UserError(f"initial sla: images must be square, got {tuple(pixels.shape[2:])}")
        return rotations(pixels)

    def compute_loss(self, inner: Loss, batch: Batch, numbers: Tensor) -> Tensor:
        count = len(batch.labels)
        joint = F.cross_entropy(self.head(batch.output.features).logits, joint_labels(batch.labels))
        upright = batch._replace(images=batch.images[:count], output=first_rows(batch.output, count))
        return inner(upright) + self.weight * joint
