"""The contract of a method: its head, what happens when classes arrive, its loss and its stages, but never a loop.

A method sees positions and tensors. The trainer owns epochs, devices, optimisers and files. Losses must be capturable:
no `.item()`, no shapes that depend on data, no Python branch on a tensor's value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn

from phasezero.data.stream import Phase
from phasezero.methods.stage import Loss, PhaseImages, Stage
from phasezero.nets import Backbone, CosineHead, GrowingHead, IncrementalModel
from phasezero.registry import Registry
from phasezero.schedule import Schedule
from phasezero.validation import Limited

Settings = Mapping[str, Mapping[str, Any]]


def both_phases(**settings: object) -> dict[str, object]:
    """Return the same schedule settings for phase 0 and the later phases."""
    return {f"training.{when}.{key}": value for when in ("first", "later") for key, value in settings.items()}


@dataclass(frozen=True)
class MethodOptions(Limited):
    """Base of a method's options: a frozen dataclass that names the source of every constant in a comment.

    >>> from dataclasses import dataclass
    >>> from phasezero import MethodOptions
    >>> @dataclass(frozen=True)
    ... class Options(MethodOptions):
    ...     weight: float = 1.0
    >>> Options(name="distil")
    Options(name='distil', variant='', weight=1.0)
    """

    name: str = ""
    variant: str = ""  # which of the method's variants set the options below; part of the run's name


class Method:
    """Base of methods. Without changes it is fine-tuning with exemplars on a cosine head.

    See `register_method` for a complete method.

    >>> from phasezero import Method, MethodOptions
    >>> Method(MethodOptions()).make_head(feature_size=64).classes
    0
    """

    Options: ClassVar[type[MethodOptions]] = MethodOptions
    label: ClassVar[str] = ""
    """Its label in tables and figures; empty for its name."""
    classifier: ClassVar[str] = "head"
    """The classifier that the method's paper reports: `head`, or `nearest_mean` of exemplars."""
    paper_row: ClassVar[str] = ""
    """The method's row in the CwD paper's tables, in lower case; empty for its name."""
    later_cost: ClassVar[Mapping[str, float]] = {}
    """Time per image in a later phase, relative to phase 0, on `cpu` and `cuda`, where it is not LATER."""
    published: ClassVar[Settings] = {}
    """The authors' settings by data set (`*`: every data set), as dotted keys of a configuration."""
    variants: ClassVar[Mapping[str, Settings]] = {}
    """Other published settings, by name and data set; presets call them `method-variant`."""
    phase_zero_like: ClassVar[str] = ""
    """Another method with a bit-identical phase 0: the two share stored phase-0 states."""
    memory_in_phase_zero: ClassVar[bool] = False
    """Whether the training of phase 0 depends on the memory rule."""
    trains_later: ClassVar[bool] = True
    """Whether later phases train; a frozen backbone does not."""
    sees_everything: ClassVar[bool] = False
    """Whether the method trains on all images of all classes seen (only an oracle does)."""
    needs_teacher: ClassVar[bool] = True
    """Whether losses use the previous phase's model."""
    needs_maps: ClassVar[bool] = False
    """Whether losses use the maps of the backbone's stages."""
    network: ClassVar[type[Backbone]] = Backbone
    """The class of networks that the method works with."""

    def __init__(self, options: MethodOptions) -> None:
        self.options = options

    def make_head(self, feature_size: int) -> GrowingHead:
        """Return the head, without classes."""
        return CosineHead(feature_size)

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        """Add the phase's classes to the model. Also called to rebuild a model's structure before it is loaded."""
        model.head.grow(phase.new, rng)

    def begin(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        """Prepare what depends on the phase's images, such as imprinted class weights, before training."""

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        """Return the training stages of this phase, in order; `schedule` is the configured schedule."""
        return [Stage("train", schedule, self.make_loss(phase), trainable(model))]

    def finish(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        """Compute what the method needs after training, before exemplars are chosen and the model is evaluated."""

    def exemplars(self, images: PhaseImages) -> Sequence[Tensor]:
        """Return the exemplars to keep of every class seen; called after training."""
        return images.choose_exemplars()

    def make_loss(self, phase: Phase) -> Loss:
        """Return the loss of the default stage: cross-entropy over all classes seen."""
        return lambda batch: nn.functional.cross_entropy(batch.output.logits, batch.labels)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that need gradients."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


METHODS: Registry[type[Method]] = Registry("method")

AnyMethod = TypeVar("AnyMethod", bound=type[Method])


def register_method(name: str, summary: str = "") -> Callable[[AnyMethod], AnyMethod]:
    """Return a class decorator that adds a method; presets, commands and tests then find it by its name.

    >>> from dataclasses import dataclass
    >>> from torch.nn import functional as F
    >>> from phasezero import Method, MethodOptions, preset, register_method
    >>> @register_method("doc-distil", "Features should stay where the old model had them")
    ... class Distil(Method):
    ...     @dataclass(frozen=True)
    ...     class Options(MethodOptions):
    ...         name: str = "doc-distil"
    ...         weight: float = 1.0
    ...
    ...     def make_loss(self, phase):
    ...         def loss(batch):
    ...             value = F.cross_entropy(batch.output.logits, batch.labels)
    ...             if batch.teacher is not None:
    ...                 moved = F.mse_loss(batch.output.features, batch.teacher.features)
    ...                 value = value + self.options.weight * moved
    ...             return value
    ...         return loss
    >>> preset("doc-distil+cwd/glyphs/b50s10").name
    'doc-distil+cwd/glyphs/b50s10'
    """
    return cast(Callable[[AnyMethod], AnyMethod], METHODS.register(name, summary))


LATER = {"cpu": 1.7, "cuda": 1.2}
"""Relative time per image in a later phase, for methods without an estimate: it has a teacher and more evaluation."""


def later_cost(name: str, machine: str) -> float:
    """Return a method's time per image in a later phase on `cpu` or `cuda`, relative to phase 0."""
    return METHODS[name].later_cost.get(machine, LATER[machine])


def classifier_of(method: str) -> str:
    """Return the classifier that a method's paper reports; `head` for a method that is not registered."""
    return METHODS[method].classifier if method in METHODS else "head"
