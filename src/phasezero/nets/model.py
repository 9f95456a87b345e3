"""The model that grows: a backbone, and a head on its pooled features."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from phasezero.nets.heads import GrowingHead
from phasezero.nets.resnet import Features, at_least_float32

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def compiled(function: AnyFunction) -> AnyFunction:
    """Compile a function for each set of input shapes, as a whole graph."""
    # Each network, mode and precision of a process needs its own. Beyond torch's limit of 8 nothing is compiled.
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    return torch.compile(function, dynamic=False, fullgraph=True)  # type: ignore[return-value]


def run_backbone(backbone: nn.Module, images: Tensor, keep_maps: bool) -> Features:
    found: Features = backbone(images)
    return Features(at_least_float32(found.pooled), found.maps if keep_maps else ())


@functools.cache
def compiled_backbone() -> Callable[[nn.Module, Tensor, bool], Features]:
    """Return one compiled function for all models, so that models of the same structure share compiled code."""
    return compiled(run_backbone)


class Output(NamedTuple):
    """The output of a forward pass, for losses and evaluation.

    >>> import torch
    >>> from phasezero import Output
    >>> Output(torch.zeros(2, 64), logits=torch.eye(2), similarities=torch.eye(2), maps=()).logits.argmax(1)
    tensor([0, 1])
    """

    features: Tensor
    logits: Tensor
    similarities: Tensor
    """The head's scores before any scale or correction."""
    maps: tuple[Tensor, ...]
    """The output maps of the backbone's stages."""


class IncrementalModel(nn.Module):
    """A backbone with a head that grows."""

    def __init__(self, backbone: nn.Module, head: GrowingHead) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.half_precision: torch.dtype | None = None
        """Autocast type of the backbone; head and losses always stay in the features' float32."""
        self.backbone_lr = 1.0
        """Learning rate of the backbone relative to that of the head; with 0 the backbone stays as it is."""
        self.keep_maps = True
        """Whether outputs contain the stages' maps, which cost time in a compiled backbone even if unused."""
        self.compiled_sizes: set[int] = set()
        """Training batches of these sizes use a compiled backbone, which does not change when the head grows."""

    def set_backbone_lr(self, rate: float) -> None:
        """Set the backbone's relative learning rate. At 0 it has no gradients, and BatchNorm keeps its statistics."""
        self.backbone_lr = rate
        if not rate:
            self.backbone.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> IncrementalModel:
        super().train(mode)
        if not self.backbone_lr:
            self.backbone.eval()
        return self

    def forward(self, images: Tensor) -> Output:
        return self.classify(self.extract_features(images))

    def extract_features(self, images: Tensor) -> Features:
        """Run the backbone, the first half of a forward pass."""
        # Within a loss that is being compiled (an oracle's features), the backbone is compiled with that loss.
        own = not torch.compiler.is_compiling() and len(images) in self.compiled_sizes
        run = compiled_backbone() if own and not torch.is_inference_mode_enabled() else run_backbone
        with torch.autocast(images.device.type, self.half_precision, enabled=self.half_precision is not None):
            return run(self.backbone, images, self.keep_maps)

    def classify(self, found: Features) -> Output:
        """Run the head, the second half."""
        scores = self.head(found.pooled)
        return Output(found.pooled, scores.logits, scores.similarities, found.maps)

    def teacher_copy(self) -> IncrementalModel:
        """Return a frozen copy in evaluation mode."""
        return copy.deepcopy(self).eval().requires_grad_(False)
