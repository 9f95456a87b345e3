"""The model that grows: a backbone, and a head on its pooled features."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from phasezero.nets.heads import GrowingHead
from phasezero.nets.resnet import Features

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def compiled(function: AnyFunction) -> AnyFunction:
    """`function`, compiled anew for each set of shapes it is called with, in one piece or not at all."""
    # Each network, mode and precision of a process is one such set; beyond torch's limit of 8 nothing is compiled.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    return torch.compile(function, dynamic=False, fullgraph=True)  # type: ignore[return-value]


def look_through(backbone: nn.Module, images: Tensor, keep_maps: bool) -> Features:
    found: Features = backbone(images)
    return found if keep_maps else Features(found.pooled, ())


@functools.cache
def compiled_look() -> Callable[[nn.Module, Tensor, bool], Features]:
    """One compiled function for all models: those of the same structure share what was compiled."""
    return compiled(look_through)


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
        self.keep_maps = True
        """Whether outputs hold the stages' maps. A compiled backbone pays for each, used or not."""
        self.compiled_sizes: set[int] = set()
        """Training batches of these sizes run through a compiled backbone; a head that grows changes nothing."""

    def forward(self, images: Tensor) -> Output:
        return self.score(self.look(images))

    def look(self, images: Tensor) -> Features:
        """The backbone's half of a forward pass."""
        # Within a loss that is being compiled (an oracle's features), all of it is compiled with that loss.
        own = not torch.compiler.is_compiling() and len(images) in self.compiled_sizes
        look = compiled_look() if own and not torch.is_inference_mode_enabled() else look_through
        with torch.autocast(images.device.type, self.half_precision, enabled=self.half_precision is not None):
            return look(self.backbone, images, self.keep_maps)

    def score(self, found: Features) -> Output:
        """The head's half."""
        scores = self.head(found.pooled)
        return Output(found.pooled, scores.logits, scores.similarities, found.maps)

    def teacher_copy(self) -> IncrementalModel:
        """A frozen copy in evaluation mode."""
        teacher = copy.deepcopy(self).eval()
        for parameter in teacher.parameters():
            parameter.requires_grad_(False)
        return teacher
