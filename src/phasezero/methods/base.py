"""What a method may say: which head, what happens when classes come, its loss, its stages. Never a loop.

A method sees positions and tensors; the trainer owns epochs, devices, optimisers and files. Losses must be
capturable: no `.item()`, no shapes that depend on data, no Python branch on a tensor's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

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
Settings = Mapping[str, Mapping[str, Any]]


class PhaseImages(Protocol):
    """What the trainer offers a method in a phase: training images as indices, class by class."""

    new: Sequence[Tensor]  # of each class of this phase
    kept: Sequence[Tensor]
    """The exemplars of each class of earlier phases, best first."""
    quota: int
    """How many exemplars a class may keep after this phase."""

    def all_seen(self) -> Sequence[Tensor]:
        """Every image of every class seen so far: what only an oracle may ask for."""

    def choose_exemplars(self) -> Sequence[Tensor]:
        """Exemplars of every class seen so far; those of the new classes by the features as they are now."""

    def class_features(self, position: int) -> Tensor:
        """Pooled features [n, d] of the training images of a class of this phase (test view, eval mode)."""

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers of this run and phase, for that purpose alone."""


def new_and_exemplars(images: PhaseImages) -> Tensor:
    """The usual training set of a phase: its own images and the exemplars of all before, simply together."""
    return torch.cat([*images.new, *images.kept])


def balanced_exemplars(images: PhaseImages) -> Tensor:
    """Equally many images of each class seen."""
    return torch.cat(list(images.choose_exemplars()))


@dataclass(frozen=True)
class Stage:
    """A piece of training that the one trainer runs: what to minimise, over what, on which images."""

    name: str
    schedule: Schedule
    loss: Loss
    parameters: Sequence[nn.Parameter]
    images: Callable[[PhaseImages], Tensor] = new_and_exemplars
    batch_statistics: bool = True
    """Whether BatchNorm uses and updates batch statistics (train mode)."""
    augment: bool = True
    """Whether images are cropped and flipped at random; else they are seen as in testing."""
    needs_teacher: bool = True
    """Whether the loss looks at the previous phase's model (where there is one)."""
    clamp_gradients: float | None = None
    """Each entry of each gradient is cut to plus or minus this."""
    accumulate: Sequence[nn.Parameter] = ()
    """Parameters whose gradients are summed from step to step and never set back (AANets' weights)."""
    each_epoch: Stage | None = None
    """Another stage, of which one epoch follows each epoch of this one (AANets' second level)."""


def both_phases(**settings: object) -> dict[str, object]:
    """Settings of a schedule, for phase 0 and the later phases alike."""
    return {f"training.{when}.{key}": value for when in ("first", "later") for key, value in settings.items()}


@dataclass(frozen=True)
class MethodOptions:
    name: str = ""
    variant: str = ""  # a named set of the options below, kept for the run's name; changes nothing by itself


class Method:
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    published: ClassVar[Settings] = {}
    """The authors' settings by data set (`*`: all of them), as dotted keys of a configuration."""
    variants: ClassVar[Mapping[str, Settings]] = {}
    """Other named ways to run the method, for the data sets named; presets are called `method-variant`."""
    sees_everything: ClassVar[bool] = False
    """Whether it trains on all images of all classes seen (only an oracle does)."""
    needs_teacher: ClassVar[bool] = True
    """Whether losses look at the previous phase's model."""
    needs_maps: ClassVar[bool] = False
    """Whether losses look at the maps of the backbone's stages."""
    network_makers: ClassVar[type] = object  # of nets.NETWORKS, those whose networks it can work with

    def __init__(self, options: MethodOptions) -> None:
        self.options = options

    def make_head(self, feature_size: int) -> GrowingHead:
        return CosineHead(feature_size)

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        """Room for the phase's classes. Structure only: also called to rebuild a model that is then loaded."""
        model.head.grow(phase.new, rng)

    def begin(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        """What must be set from the images before training, such as imprinted class weights."""

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        """What to train in this phase, in order; `schedule` is the configured one of the phase."""
        return [Stage("train", schedule, self.make_loss(phase), trainable(model))]

    def exemplars(self, images: PhaseImages) -> Sequence[Tensor]:
        """What to keep of every class seen, called when the phase is trained."""
        return images.choose_exemplars()

    def phase_zero(self) -> object:
        """What of this method phase 0 depends on: methods that give the same share finished phase 0s."""
        return asdict(self.options)

    def make_loss(self, phase: Phase) -> Loss:
        """What the one stage above minimises: cross-entropy over all classes seen, unless a method says more."""
        return lambda batch: nn.functional.cross_entropy(batch.output.logits, batch.labels)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


METHODS: Registry[type[Method]] = Registry("method")
