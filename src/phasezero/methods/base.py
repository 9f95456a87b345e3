"""What a method may say: which head, what happens when classes come, its loss, its stages. Never a loop.

A method sees positions and tensors; the trainer owns epochs, devices, optimisers and files. Losses must be
capturable: no `.item()`, no shapes that depend on data, no Python branch on a tensor's value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from phasezero.data.stream import Phase
from phasezero.nets import CosineHead, GrowingHead, IncrementalModel, Output
from phasezero.registry import Registry
from phasezero.schedule import Schedule


class Batch(NamedTuple):
    """One training step's worth: everything that a loss may look at."""

    images: Tensor
    labels: Tensor
    output: Output
    teacher: Output | None
    """The previous phase's model on the same images; None in phase 0."""


Loss = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Stage:
    """A piece of training that the one trainer runs: what to minimise, over what, on which images."""

    name: str
    schedule: Schedule
    loss: Loss
    parameters: Sequence[nn.Parameter]
    data: Literal["phase", "exemplars"] = "phase"
    """`phase`: new images and exemplars together; `exemplars`: the balanced set of all seen classes."""
    batch_statistics: bool = True
    """Whether BatchNorm uses and updates batch statistics (train mode)."""


class PhaseImages(Protocol):
    """What the trainer offers a method when classes come."""

    def class_features(self, position: int) -> Tensor:
        """Pooled features [n, d] of the training images of a class of this phase (test view, eval mode)."""


@dataclass(frozen=True)
class MethodOptions:
    name: str = ""


class Method:
    Options: ClassVar[type[MethodOptions]] = MethodOptions

    def __init__(self, options: MethodOptions) -> None:
        self.options = options

    def make_head(self, feature_size: int) -> GrowingHead:
        return CosineHead(feature_size)

    def grow(self, model: IncrementalModel, phase: Phase, images: PhaseImages, rng: torch.Generator) -> None:
        """Called at the start of each phase: make room for the new classes."""
        model.head.grow(phase.new, rng)

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        """What to train in this phase, in order; `schedule` is the configured one of the phase."""
        return [Stage("train", schedule, self.make_loss(phase), trainable(model))]

    def make_loss(self, phase: Phase) -> Loss:
        raise NotImplementedError


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


METHODS: Registry[type[Method]] = Registry("method")
