"""A phase-0 term: something added to any method's loss while the first classes are learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.methods.base import Batch
from phasezero.nets import IncrementalModel
from phasezero.registry import Registry


@dataclass(frozen=True)
class TermOptions:
    """A term's name and coefficient; each term adds its own fields."""

    name: str = ""
    weight: float = 1.0

    @property
    def label(self) -> str:
        return f"{self.name}:{self.weight:g}"

    @property
    def file(self) -> str:
        """Whose content the term depends on; empty for none."""
        return ""


class Workshop(Protocol):
    """What a term may ask for before training starts."""

    def oracle(self, path: str) -> IncrementalModel:
        """A frozen model that has seen all classes: of that checkpoint, or trained now and kept."""


class Term(ABC):
    """Called with a batch of phase 0, returns an unweighted scalar; the trainer multiplies by the weight."""

    Options: ClassVar[type[TermOptions]] = TermOptions
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The authors' settings by data set, or by `method/data set`: `weight` is the term's own, other keys are
    the configuration's."""

    looks_ahead: ClassVar[bool] = False
    """Whether it depends on classes that come later, so that phase 0 does."""

    def __init__(self, options: TermOptions, phase: Phase, workshop: Workshop | None = None) -> None:
        self.options = options
        self.phase = phase

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor: ...


TERMS: Registry[type[Term]] = Registry("phase-0 term")
