"""The model that grows: a backbone, and a head on its pooled features."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from phasezero.nets.heads import GrowingHead
from phasezero.nets.resnet import Features


class Output(NamedTuple):
    """What a forward pass gives to losses and evaluation."""

    features: Tensor
    logits: Tensor
    similarities: Tensor
    maps: tuple[Tensor, ...]


class IncrementalModel(nn.Module):
    def __init__(self, backbone: nn.Module, head: GrowingHead) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.half_precision: torch.dtype | None = None
        """Autocast type of the backbone; head and losses always stay in the features' float32."""
        self._compiled: tuple[int, Callable[[Tensor], Features]] | None = None

    def compile_backbone(self, batch_size: int) -> None:
        """Batches of this size run through a compiled backbone; it does not change when the head grows."""
        self._compiled = (batch_size, torch.compile(self.backbone, dynamic=False))

    def forward(self, images: Tensor) -> Output:
        backbone: Callable[[Tensor], Features] = self.backbone
        if self._compiled is not None and self._compiled[0] == len(images):
            backbone = self._compiled[1]
        with torch.autocast(images.device.type, self.half_precision, enabled=self.half_precision is not None):
            found = backbone(images)
        scores = self.head(found.pooled)
        return Output(found.pooled, scores.logits, scores.similarities, found.maps)

    def teacher_copy(self) -> IncrementalModel:
        """A frozen copy in evaluation mode."""
        compiled, self._compiled = self._compiled, None
        teacher = copy.deepcopy(self).eval()
        self._compiled = compiled
        if compiled is not None:
            teacher.compile_backbone(compiled[0])
        for parameter in teacher.parameters():
            parameter.requires_grad_(False)
        return teacher
