"""LwF: Learning without Forgetting (Li & Hoiem, ECCV 2016), for classes instead of tasks.

The softened probabilities of the old classes should stay those of the old model. As in the published CwD code (from
FACIL), heads are linear without bias, the last ReLU stays, and with exemplars cross-entropy is over all heads. The LwF
paper keeps no images: `lwf-free` trains the new head on the new classes only and freezes the old heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.methods.base import register_method
from phasezero.methods.finetune import Finetune
from phasezero.methods.stage import Batch, Loss
from phasezero.nets import IncrementalModel
from phasezero.validation import POSITIVE, WEIGHT, option

PROBABILITY_FLOOR = 1e-5  # divided among the classes, so that there is no logarithm of zero (FACIL)


def softened_cross_entropy(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """Return Eq. 2 and 3: -sum p' log q', mean over the batch, not multiplied by T^2.

    p' and q' are the old and new probabilities to the power of 1/T, normalised: the softmax of the logits over T.
    """
    wanted = (old_logits / temperature).softmax(1)
    found = (logits / temperature).softmax(1) + PROBABILITY_FLOOR / logits.shape[1]
    found = found / found.sum(1, keepdim=True)
    return -(wanted * found.log()).sum(1).mean()


def new_class_cross_entropy(logits: Tensor, labels: Tensor, old_classes: int) -> Tensor:
    """Return the cross-entropy among the new classes; samples of old classes (exemplars) do not count."""
    is_new = (labels >= old_classes).to(logits.dtype)
    shifted = (labels - old_classes).clamp_min(0)
    losses = F.cross_entropy(logits[:, old_classes:], shifted, reduction="none")
    return (losses * is_new).sum() / is_new.sum().clamp_min(1)


@register_method("lwf", "LwF (ECCV 2016): distils the old classes' probabilities")
class LwF(Finetune):
    @dataclass(frozen=True)
    class Options(Finetune.Options):
        name: str = "lwf"
        distillation: float = option(1.0, **WEIGHT, later=True)  # weight of distillation: lambda, sec. 3
        temperature: float = option(2.0, **POSITIVE, later=True)  # of distillation: T, sec. 3
        # all: over all heads, and all of them learn. new: over the new head, and the old heads are frozen.
        cross_entropy: Literal["all", "new"] = option("all", later=True)

    label, phase_zero_like = "LwF", "finetune"
    needs_teacher = True
    variants = {"free": {"*": {"protocol.memory": "per_class:0", "method.cross_entropy": "new"}}}
    options: Options

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        model.head.grow(phase.new, rng)
        if self.options.cross_entropy == "new":
            model.head.freeze_old()

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
