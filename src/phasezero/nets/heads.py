"""Heads that grow: one block of class weights a phase, concatenated into one product."""

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
    """Before any scale or correction: cosines for the cosine head (LUCIR's ranking loss needs them)."""


class GrowingHead(nn.Module, ABC):
    """The part that all heads share: a list of weight blocks, [classes of the phase, d] each."""

    place: Tensor
    corrects_bias: ClassVar[bool] = False
    """Whether logits are corrected similarities, so that both answers are worth recording (BiC)."""

    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.blocks = nn.ParameterList()
        # An empty tensor that moves with the head: where, and of which type, new blocks are made.
        self.register_buffer("place", torch.empty(0), persistent=False)

    @property
    def classes(self) -> int:
        return sum(len(block) for block in self.blocks)

    def grow(self, classes: int, generator: torch.Generator) -> nn.Parameter:
        """Appends a block, uniform in +-1/sqrt(d) (LUCIR's and torch.nn.Linear's initialisation)."""
        bound = 1 / math.sqrt(self.feature_size)
        weights = torch.empty(classes, self.feature_size).uniform_(-bound, bound, generator=generator)
        block = nn.Parameter(weights.to(self.place))
        self.blocks.append(block)
        return block

    def freeze_old(self) -> None:
        """No gradient for any block but the newest."""
        for block in list(self.blocks)[:-1]:
            block.requires_grad_(False)

    def weight(self) -> Tensor:
        return torch.cat(list(self.blocks))

    @abstractmethod
    def forward(self, features: Tensor) -> Scores: ...


class CosineHead(GrowingHead):
    """logits = sigma * cos(f, w), with one learnable sigma for all blocks, first 1 (LUCIR sec. 3.2)."""

    def __init__(self, feature_size: int) -> None:
        super().__init__(feature_size)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, features: Tensor) -> Scores:
        cosines = F.normalize(features, dim=1) @ F.normalize(self.weight(), dim=1).T
        return Scores(self.scale * cosines, cosines)


class LinearHead(GrowingHead):
    """logits = w . f, with a bias only where asked for."""

    def __init__(self, feature_size: int, *, bias: bool = False) -> None:
        super().__init__(feature_size)
        self.biases = nn.ParameterList() if bias else None

    def grow(self, classes: int, generator: torch.Generator) -> nn.Parameter:
        block = super().grow(classes, generator)
        if self.biases is not None:
            bound = 1 / math.sqrt(self.feature_size)
            values = torch.empty(classes).uniform_(-bound, bound, generator=generator)
            self.biases.append(nn.Parameter(values.to(block)))
        return block

    def freeze_old(self) -> None:
        super().freeze_old()
        for bias in list(self.biases or ())[:-1]:
            bias.requires_grad_(False)

    def forward(self, features: Tensor) -> Scores:
        bias = torch.cat(list(self.biases)) if self.biases is not None else None
        logits = F.linear(features, self.weight(), bias)
        return Scores(logits, logits)
