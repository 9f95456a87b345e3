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
        self._compiled: dict[int, Callable[[Tensor], Features]] = {}

    def compile_backbone(self, batch_size: int) -> None:
        """Batches of this size run through a compiled backbone; it does not change when the head grows."""
        if batch_size not in self._compiled:
            self._compiled[batch_size] = torch.compile(self.backbone, dynamic=False)

    def replace_backbone(self, backbone: nn.Module) -> None:
        self.backbone, self._compiled = backbone, {}

    def forward(self, images: Tensor) -> Output:
        backbone = self._compiled.get(len(images), self.backbone)
        with torch.autocast(images.device.type, self.half_precision, enabled=self.half_precision is not None):
            found = backbone(images)
        scores = self.head(found.pooled)
        return Output(found.pooled, scores.logits, scores.similarities, found.maps)

    def teacher_copy(self) -> IncrementalModel:
        """A frozen copy in evaluation mode."""
        compiled, self._compiled = self._compiled, {}
        teacher = copy.deepcopy(self).eval()
        self._compiled = compiled
        for batch_size in compiled:
            teacher.compile_backbone(batch_size)
        for parameter in teacher.parameters():
            parameter.requires_grad_(False)
        return teacher
