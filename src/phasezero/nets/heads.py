"""Heads that grow: a block of class weights per phase, concatenated for one matrix product."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Scores(NamedTuple):
    logits: Tensor
    similarities: Tensor
    """Scores before any scale or correction: cosines for the cosine head (LUCIR's ranking loss needs them)."""


class GrowingHead(nn.Module, ABC):
    """Base of heads: a list of weight blocks, one per phase, [classes of the phase, d] each."""

    place: Tensor
    corrects_bias: ClassVar[bool] = False
    """Whether logits are corrected similarities, so that the predictions of both are recorded (BiC)."""

    statistics: tuple[str, ...] = ()
    """Names of buffers that are kept instead of exemplars; training does not depend on them."""

    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.blocks = nn.ParameterList()
        self.biases: nn.ParameterList | None = None
        # An empty tensor that moves with the head and gives new blocks their device and type.
        self.register_buffer("place", torch.empty(0), persistent=False)

    @property
    def classes(self) -> int:
        return sum(len(block) for block in self.blocks)

    def grow(self, classes: int, generator: torch.Generator) -> None:
        """Append a block, uniform in +-1/sqrt(d) (LUCIR's and torch.nn.Linear's initialisation)."""
        self.blocks.append(self.draw(classes, self.feature_size, generator=generator))

    def draw(self, *shape: int, generator: torch.Generator) -> nn.Parameter:
        """Return random numbers on the device and of the type of the head."""
        bound = 1 / math.sqrt(self.feature_size)
        return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator).to(self.place))

    def freeze_old(self) -> None:
        """Turn off gradients for all classes except those of the newest block."""
        for old in (*list(self.blocks)[:-1], *list(self.biases or ())[:-1]):
            old.requires_grad_(False)

    def weight(self) -> Tensor:
        return torch.cat(list(self.blocks))

    @abstractmethod
    def forward(self, features: Tensor) -> Scores: ...


class CosineHead(GrowingHead):
    """logits = sigma * cos(f, w), with a learnable sigma for all blocks, initially 1 (LUCIR sec. 3.2)."""

    def __init__(self, feature_size: int) -> None:
        super().__init__(feature_size)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, features: Tensor) -> Scores:
        cosines = F.normalize(features, dim=1) @ F.normalize(self.weight(), dim=1).T
        return Scores(self.scale * cosines, cosines)


class LinearHead(GrowingHead):
    """logits = w . f, with an optional bias."""

    def __init__(self, feature_size: int, *, bias: bool = False) -> None:
        super().__init__(feature_size)
        if bias:
            self.biases = nn.ParameterList()

    def grow(self, classes: int, generator: torch.Generator) -> None:
        super().grow(classes, generator)
        if self.biases is not None:
            self.biases.append(self.draw(classes, generator=generator))

    def forward(self, features: Tensor) -> Scores:
        bias = torch.cat(list(self.biases)) if self.biases is not None else None
        logits = F.linear(features, self.weight(), bias)
        return Scores(logits, logits)


class BiasCorrectedHead(LinearHead):
    """BiC's head: logits = alpha * (w . f [+ b]) + beta, with a pair (alpha, beta) for each later phase.

    Pairs begin as (1, 0) and are trained only by a stage that names them. With `keep_pairs` earlier pairs stay in the
    model (FACIL, PyCIL). Otherwise only the newest pair corrects (PODNet's code).
    """

    corrects_bias = True

    def __init__(self, feature_size: int, bias: bool = True, *, keep_pairs: bool = True) -> None:
        super().__init__(feature_size, bias=bias)
        self.keep_pairs = keep_pairs
        self.pairs = nn.ParameterList()

    def grow(self, classes: int, generator: torch.Generator) -> None:
        super().grow(classes, generator)
        if len(self.blocks) > 1:
            self.pairs.append(nn.Parameter(torch.tensor([1.0, 0.0]).to(self.place), requires_grad=False))

    def forward(self, features: Tensor) -> Scores:
        plain = super().forward(features).similarities
        first, *later = plain.split([len(block) for block in self.blocks], dim=1)
        pairs = list(self.pairs)
        unused = 0 if self.keep_pairs else len(pairs) - 1
        corrected = [
            part if index < unused else pair[0] * part + pair[1]
            for index, (part, pair) in enumerate(zip(later, pairs, strict=True))
        ]
        return Scores(torch.cat([first, *corrected], 1), plain)
