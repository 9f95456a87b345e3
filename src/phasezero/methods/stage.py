"""The building blocks of methods: a stage of training, the images of a phase, and the batch that a loss sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from phasezero.nets import Output
from phasezero.schedule import Schedule


class Batch(NamedTuple):
    """Everything that a loss can use in one training step.

    >>> import torch
    >>> from phasezero import Batch, Output
    >>> output = Output(torch.zeros(2, 8), torch.zeros(2, 4), torch.zeros(2, 4), ())
    >>> Batch(torch.zeros(2, 3, 32, 32), torch.tensor([0, 1]), output, teacher=None).labels
    tensor([0, 1])
    """

    images: Tensor
    labels: Tensor
    output: Output
    teacher: Output | None
    """The output of the previous phase's model on the same images; None in phase 0."""
    numbers: Tensor = torch.empty(0, 0)
    """The random numbers of phase-0 strategies [k, n]."""


Loss = Callable[[Batch], Tensor]


class PhaseImages(Protocol):
    """The training images of a phase, as indices, class by class."""

    new: Sequence[Tensor]
    """Images of each class of this phase."""
    kept: Sequence[Tensor]
    """The exemplars of each class of earlier phases, best first."""
    quota: int
    """How many exemplars a class may keep after this phase."""

    def all_seen(self) -> Sequence[Tensor]:
        """Return every image of every class seen so far; only an oracle may use them."""

    def choose_exemplars(self) -> Sequence[Tensor]:
        """Return exemplars of every class seen so far. Those of new classes are chosen by the current features."""

    def class_features(self, position: int) -> Tensor:
        """Return pooled features [n, d] of the training images of a class of this phase, in the test view."""

    def generator(self, purpose: str) -> torch.Generator:
        """Return the random generator of this run and phase for one purpose."""


def new_and_exemplars(images: PhaseImages) -> Tensor:
    """Return the usual training set of a phase: its own images and the exemplars of all earlier classes."""
    return torch.cat([*images.new, *images.kept])


def balanced_exemplars(images: PhaseImages) -> Tensor:
    """Return the same number of images of each class seen."""
    return torch.cat(list(images.choose_exemplars()))


@dataclass(frozen=True)
class Stage:
    """A part of training that the trainer runs: which loss to minimise, over which parameters, on which images.

    >>> import torch
    >>> from phasezero import Schedule, Stage
    >>> weight = torch.nn.Parameter(torch.zeros(3))
    >>> Stage("train", Schedule(epochs=2), lambda batch: batch.output.logits.mean(), [weight]).batch_statistics
    True
    """

    name: str
    schedule: Schedule
    loss: Loss
    parameters: Sequence[nn.Parameter]
    images: Callable[[PhaseImages], Tensor] = new_and_exemplars
    batch_statistics: bool = True
    """Whether BatchNorm uses and updates batch statistics (train mode)."""
    augment: bool = True
    """Whether images are in the training view; otherwise they are in the test view."""
    needs_teacher: bool = True
    """Whether the loss uses the output of the previous phase's model."""
    clamp_gradients: float | None = None
    """The largest absolute value of a gradient's entry; larger entries are clamped."""
    accumulate: Sequence[nn.Parameter] = ()
    """Parameters whose gradients are summed from step to step and never reset (AANets' weights)."""
    each_epoch: Stage | None = None
    """A stage of which an epoch follows each epoch of this stage (AANets' second level)."""
