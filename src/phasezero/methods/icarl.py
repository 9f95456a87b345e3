"""iCaRL: Incremental Classifier and Representation Learning (Rebuffi et al., CVPR 2017).

Exemplars by herding, distillation, and the nearest mean of exemplars as the classifier: the number to report
is the record's `nearest_mean`. Two losses bear the name, and nobody has said which the paper's rows used:

`cross-entropy`  LUCIR's and AANets' code: cross-entropy plus the divergence from the old model's softened
                 probabilities, trained by the common recipe.
`sigmoid`        the original's, as in PODNet's code: each output is a yes or no of its own, and an old class's
                 answer should be the old model's. With its own recipe it is the variant `icarl-sigmoid`. (That code
                 herds and classifies by features before the last ReLU, and its layer has another start.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.methods.base import METHODS, Batch, Loss, Method, MethodOptions, both_phases
from phasezero.nets import GrowingHead, LinearHead

Form = Literal["cross-entropy", "sigmoid"]


def distillation(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """The Kullback-Leibler divergence of the softened probabilities from the old ones, mean over the batch."""
    found = (logits / temperature).log_softmax(1)
    wanted = (old_logits / temperature).log_softmax(1)
    return F.kl_div(found, wanted, reduction="batchmean", log_target=True)


def sigmoid_cross_entropy(logits: Tensor, labels: Tensor, old_logits: Tensor | None = None) -> Tensor:
    """Algorithm 3's loss, mean over samples and classes: the label decides for a new class, the old model for an
    old one, of every sample (even of an exemplar: its own label says nothing)."""
    targets = (labels[:, None] == torch.arange(logits.shape[1], device=labels.device)).to(logits.dtype)
    if old_logits is not None:
        targets = torch.cat([old_logits.sigmoid(), targets[:, old_logits.shape[1] :]], 1)
    return F.binary_cross_entropy_with_logits(logits, targets)


_IMAGENET = both_phases(
    epochs=60, lr=1.0, milestones=(20, 30, 40, 50), decay=0.2, weight_decay=1e-5, batch_size=64, shift=-1
)


@METHODS.register("icarl")
class Icarl(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "icarl"
        form: Form = "cross-entropy"
        # LUCIR's code writes mean KL * T^2 * beta * old classes with beta 0.25: at T = 2, 1 * the batch mean.
        distillation: float = 1.0  # this and the temperature: of the form cross-entropy alone
        temperature: float = 2.0

    published = {"*": {"network.last_relu": True}}
    variants = {
        "sigmoid": {  # options/icarl/*.yaml of PODNet's code
            "*": {"method.form": "sigmoid"},
            # The rate is high because the loss is a mean over all outputs.
            "cifar100": both_phases(
                epochs=70, lr=2.0, milestones=(49, 63), decay=0.2, weight_decay=5e-5, shift=-1
            ),
            "imagenet100": _IMAGENET,
            "imagenet": _IMAGENET,
            # Ours: CIFAR100's in small (the recipe's drops are near 0.7 and 0.9 of the epochs already).
            "glyphs": both_phases(lr=2.0, decay=0.2, weight_decay=5e-5),
        },
    }
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return LinearHead(feature_size, bias=True)  # a plain fully connected layer

    def phase_zero(self) -> object:
        return f"{self.options.form} on a linear head with bias"

    def make_loss(self, phase: Phase) -> Loss:
        options = self.options

        def loss(batch: Batch) -> Tensor:
            logits, old_logits = batch.output.logits, batch.teacher.logits if batch.teacher else None
            if options.form == "sigmoid":
                return sigmoid_cross_entropy(logits, batch.labels, old_logits)
            learned = F.cross_entropy(logits, batch.labels)
            if old_logits is None:
                return learned
            kept = distillation(logits[:, : phase.old], old_logits, options.temperature)
            return learned + options.distillation * kept

        return loss
