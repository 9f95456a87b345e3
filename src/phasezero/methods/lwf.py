"""LwF: Learning without Forgetting (Li & Hoiem, ECCV 2016), for classes instead of tasks.

The old classes' softened probabilities should stay what the old model says. As in the published CwD code
(from FACIL): linear heads without bias, the last ReLU kept, and with exemplars a cross-entropy over all heads.
The paper itself keeps no image: `lwf-free` learns the new head by the new classes alone and freezes the old.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.methods.base import METHODS, Batch, Loss, Method, MethodOptions
from phasezero.nets import GrowingHead, IncrementalModel, LinearHead

PROBABILITY_FLOOR = 1e-5  # shared out among the classes, so that no logarithm is of zero (FACIL)


def softened_cross_entropy(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """Eq. 2 and 3: -sum p' log q', mean over the batch, p' and q' the old and new probabilities to the power of
    1/T made to sum to 1 again, which is the softmax of the logits divided by T. Not multiplied by T^2."""
    wanted = (old_logits / temperature).softmax(1)
    found = (logits / temperature).softmax(1) + PROBABILITY_FLOOR / logits.shape[1]
    found = found / found.sum(1, keepdim=True)
    return -(wanted * found.log()).sum(1).mean()


def new_class_cross_entropy(logits: Tensor, labels: Tensor, old_classes: int) -> Tensor:
    """Cross-entropy among the new classes; samples of old ones (if there are exemplars) do not count."""
    is_new = (labels >= old_classes).to(logits.dtype)
    shifted = (labels - old_classes).clamp_min(0)
    losses = F.cross_entropy(logits[:, old_classes:], shifted, reduction="none")
    return (losses * is_new).sum() / is_new.sum().clamp_min(1)


@METHODS.register("lwf")
class LwF(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "lwf"
        distillation: float = 1.0  # lambda, sec. 3
        temperature: float = 2.0  # T, sec. 3
        # all: over all heads, which all learn; new: over the new head, the old ones frozen.
        cross_entropy: Literal["all", "new"] = "all"

    published = {"*": {"network.last_relu": True}}
    variants = {"free": {"*": {"protocol.memory": "per_class:0", "method.cross_entropy": "new"}}}
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return LinearHead(feature_size)

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        model.head.grow(phase.new, rng)
        if self.options.cross_entropy == "new":
            model.head.freeze_old()

    def phase_zero(self) -> object:
        return "cross-entropy on a linear head"

    def make_loss(self, phase: Phase) -> Loss:
        if phase.index == 0:
            return super().make_loss(phase)
        options = self.options

        def loss(batch: Batch) -> Tensor:
            assert batch.teacher is not None
            logits = batch.output.logits
            if options.cross_entropy == "new":
                learned = new_class_cross_entropy(logits, batch.labels, phase.old)
            else:
                learned = F.cross_entropy(logits, batch.labels)
            kept = softened_cross_entropy(logits[:, : phase.old], batch.teacher.logits, options.temperature)
            return learned + options.distillation * kept

        return loss
