"""The contract of a phase-0 strategy: a loss term, another view of the images, or a head that is discarded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, cast

import torch
from torch import Generator, Tensor, nn

from phasezero.data.stream import Phase
from phasezero.methods.stage import Batch, Loss
from phasezero.nets import IncrementalModel
from phasezero.registry import Registry
from phasezero.validation import WEIGHT, Limited, option


@dataclass(frozen=True)
class StrategyOptions(Limited):
    """Base of a strategy's options: its name and its weight. Each strategy adds its own fields.

    >>> from phasezero import StrategyOptions
    >>> StrategyOptions("cwd", 0.5).label
    'cwd:0.5'
    """

    name: str = ""
    weight: float = option(1.0, **WEIGHT)  # coefficient of the strategy

    @property
    def label(self) -> str:
        short = f"{self.weight:g}"  # where it is the same number; a + would be the next term
        return f"{self.name}:{short if float(short) == self.weight else self.weight}".replace("e+", "e")

    @property
    def file(self) -> str:
        """Return the file that the term depends on; empty for none."""
        return ""


class OracleProvider(Protocol):
    """Provide models that are trained before phase 0, such as the oracle, which has seen all classes."""

    def oracle(self, path: str) -> IncrementalModel:
        """Return the frozen model: from the checkpoint at `path`, or trained now and stored if `path` is empty."""

    def phase_zero(self, without: str) -> IncrementalModel:
        """Return the frozen model of the same phase 0 without a strategy, from the store or trained now."""


class Strategy:
    """Base of phase-0 strategies: another view of the images, another loss, or parameters that phase 0 discards.

    `transform` and `compute_loss` can be captured. Their random numbers are drawn on the CPU for a whole epoch, so that
    they are the same on every device.

    >>> from phasezero import Phase, Strategy, StrategyOptions
    >>> class Darker(Strategy):
    ...     def transform(self, pixels, numbers):
    ...         return pixels / 2
    >>> Darker(StrategyOptions("darker"), Phase(0, 0, 10)).numbers
    0
    """

    Options: ClassVar[type[StrategyOptions]] = StrategyOptions
    label: ClassVar[str] = ""
    """Its label in tables and figures; empty for its name."""
    coefficient: ClassVar[str] = "weight"
    """The weight's name in its paper."""
    paper_suffix: ClassVar[str] = ""
    """Its label after a method in the CwD paper's tables; empty for `+name`."""
    published: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The authors' settings by data set or by `method/data set`: the term's `weight`, or keys of a configuration."""
    looks_ahead: ClassVar[bool] = False
    """Whether the strategy, and with it phase 0, depends on classes that come later."""
    needs_phase_zero: ClassVar[bool] = False
    """Whether it needs the finished phase 0 of the same run without this strategy."""
    rank: ClassVar[int] = 0
    """Views are applied by ascending rank: 0 changes single images, 1 mixes images, 2 copies them."""
    numbers: ClassVar[int] = 0
    """How many random numbers it needs per image."""
    copies: ClassVar[int] = 1
    """How many images its view makes of one."""

    def __init__(self, options: StrategyOptions, phase: Phase, provider: OracleProvider | None = None) -> None:
        self.options = options
        self.phase = phase
        self.weight: float | Tensor = options.weight
        """The weight; on a device the trainer sets a tensor, so that another weight is not compiled again."""

    def make_module(self, feature_size: int, rng: Generator) -> nn.Module | None:
        """Return parameters that are trained in phase 0 and then discarded, such as a second head."""
        return None

    def draw(self, count: int, rng: Generator) -> Tensor:
        """Draw the random numbers of an epoch [numbers, count], by default uniform in [0, 1)."""
        return torch.rand(self.numbers, count, generator=rng)

    def transform(self, pixels: Tensor, numbers: Tensor) -> Tensor:
        """Return another view of a batch: pixels [n, C, H, W] from 0 to 255."""
        return pixels

    def compute_loss(self, inner: Loss, batch: Batch, numbers: Tensor) -> Tensor:
        """Return the loss of a batch; `inner` is the loss of the method and of the strategies of higher rank."""
        return inner(batch)


class Term(Strategy, ABC):
    """Base of loss terms: a term maps a batch of phase 0 to a scalar, which is multiplied by the weight and added.

    >>> from phasezero import Phase, Term, StrategyOptions
    >>> class Length(Term):
    ...     def __call__(self, batch):
    ...         return batch.output.features.square().mean()
    >>> Length(StrategyOptions("length"), Phase(0, 0, 10)).options.weight
    1.0
    """

    rank = 9

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor: ...

    def compute_loss(self, inner: Loss, batch: Batch, numbers: Tensor) -> Tensor:
        return inner(batch) + self.weight * self(batch)


STRATEGIES: Registry[type[Strategy]] = Registry("phase-0 strategy")

AnyStrategy = TypeVar("AnyStrategy", bound=type[Strategy])


def register_initial(name: str, summary: str = "") -> Callable[[AnyStrategy], AnyStrategy]:
    """Return a class decorator that adds a phase-0 strategy; every method can then be run with it.

    >>> from dataclasses import dataclass
    >>> from phasezero import Term, StrategyOptions, preset, register_initial
    >>> @register_initial("doc-short", "Features should be short")
    ... class Short(Term):
    ...     @dataclass(frozen=True)
    ...     class Options(StrategyOptions):
    ...         name: str = "doc-short"
    ...
    ...     def __call__(self, batch):
    ...         return batch.output.features.square().mean()
    >>> preset("lucir+doc-short:0.5/glyphs/b50s10").initial[0].label
    'doc-short:0.5'
    """
    return cast(Callable[[AnyStrategy], AnyStrategy], STRATEGIES.register(name, summary))
