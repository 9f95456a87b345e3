"""The contract of a phase-0 strategy: a term that is added to any method's loss in phase 0."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, cast

from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.methods.stage import Batch
from phasezero.nets import IncrementalModel
from phasezero.registry import Registry
from phasezero.validation import WEIGHT, Limited, option


@dataclass(frozen=True)
class TermOptions(Limited):
    """Base of a term's options: its name and its weight. Each term adds its own fields.

    >>> from phasezero import TermOptions
    >>> TermOptions("cwd", 0.5).label
    'cwd:0.5'
    """

    name: str = ""
    weight: float = option(1.0, **WEIGHT)

    @property
    def label(self) -> str:
        short = f"{self.weight:g}"  # where it is the same number; a + would be the next term
        return f"{self.name}:{short if float(short) == self.weight else self.weight}".replace("e+", "e")

    @property
    def file(self) -> str:
        """Return the file that the term depends on; empty for none."""
        return ""


class OracleProvider(Protocol):
    """Provide the oracle, a model that has seen all classes."""

    def oracle(self, path: str) -> IncrementalModel:
        """Return the frozen model: from the checkpoint at `path`, or trained now and stored if `path` is empty."""


class Term(ABC):
    """Base of loss terms: a term maps a batch of phase 0 to a scalar, which the trainer multiplies by the weight.

    >>> from phasezero import Phase, Term, TermOptions
    >>> class Length(Term):
    ...     def __call__(self, batch):
    ...         return batch.output.features.square().mean()
    >>> Length(TermOptions("length"), Phase(0, 0, 10)).options.weight
    1.0
    """

    Options: ClassVar[type[TermOptions]] = TermOptions
    label: ClassVar[str] = ""
    """Its label in tables and figures; empty for its name."""
    coefficient: ClassVar[str] = "weight"
    """The weight's name in its paper."""
    paper_suffix: ClassVar[str] = ""
    """Its label after a method in the CwD paper's tables; empty for `+name`."""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The authors' settings by data set or by `method/data set`: the term's `weight`, or keys of a configuration."""
    looks_ahead: ClassVar[bool] = False
    """Whether the term, and with it phase 0, depends on classes that come later."""

    def __init__(self, options: TermOptions, phase: Phase, provider: OracleProvider | None = None) -> None:
        self.options = options
        self.phase = phase

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor: ...


TERMS: Registry[type[Term]] = Registry("phase-0 term")

AnyTerm = TypeVar("AnyTerm", bound=type[Term])


def register_initial(name: str, summary: str = "") -> Callable[[AnyTerm], AnyTerm]:
    """Return a class decorator that adds a phase-0 strategy; every method can then be run with it.

    >>> from dataclasses import dataclass
    >>> from phasezero import Term, TermOptions, preset, register_initial
    >>> @register_initial("doc-short", "Features should be short")
    ... class Short(Term):
    ...     @dataclass(frozen=True)
    ...     class Options(TermOptions):
    ...         name: str = "doc-short"
    ...
    ...     def __call__(self, batch):
    ...         return batch.output.features.square().mean()
    >>> preset("lucir+doc-short:0.5/glyphs/b50s10").initial[0].label
    'doc-short:0.5'
    """
    return cast(Callable[[AnyTerm], AnyTerm], TERMS.register(name, summary))
