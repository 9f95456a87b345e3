"""iCaRL: Incremental Classifier and Representation Learning (Rebuffi et al., CVPR 2017).

It has exemplars by herding, distillation, and the nearest mean of exemplars as the classifier: the number to report is
the record's `nearest_mean`. Two losses have this name. It is not known which of them the CwD paper's rows used:

`cross-entropy`  LUCIR's and AANets' code: cross-entropy plus the divergence from the old model's softened
                 probabilities, trained by the common recipe.
`sigmoid`        the original, as in PODNet's code: each output is a binary classifier, and the targets of old classes
                 are the old model's outputs. The variant `icarl-sigmoid` has this loss and its own recipe. (That code
                 herds and classifies by features before the last ReLU, and initialises its last layer otherwise.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.methods.base import Method, MethodOptions, both_phases, register_method
from phasezero.methods.stage import Batch, Loss
from phasezero.nets import GrowingHead, LinearHead
from phasezero.validation import POSITIVE, WEIGHT, option

Form = Literal["cross-entropy", "sigmoid"]


def distillation(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """Return the Kullback-Leibler divergence between softened old and new probabilities, mean over the batch."""
    found = (logits / temperature).log_softmax(1)
    wanted = (old_logits / temperature).log_softmax(1)
    return F.kl_div(found, wanted, reduction="batchmean", log_target=True)


def sigmoid_cross_entropy(logits: Tensor, labels: Tensor, old_logits: Tensor | None = None) -> Tensor:
    """Return Algorithm 3's loss, mean over samples and classes.

    The targets of new classes come from the label, those of old classes from the old model, also for exemplars.
    """
    targets = (labels[:, None] == torch.arange(logits.shape[1], device=labels.device)).to(logits.dtype)
    if old_logits is not None:
        targets = torch.cat([old_logits.sigmoid(), targets[:, old_logits.shape[1] :]], 1)
    return F.binary_cross_entropy_with_logits(logits, targets)


_IMAGENET = both_phases(
    epochs=60, lr=1.0, milestones=(20, 30, 40, 50), decay=0.2, weight_decay=1e-5, batch_size=64, shift=-1
)


@register_method("icarl", "iCaRL (CVPR 2017): distillation, nearest mean")
class Icarl(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "icarl"
        form: Form = "cross-entropy"  # of the loss; sigmoid: PODNet's code
        # Weight of distillation, read by the form cross-entropy. LUCIR's code: mean over entries * T^2 * beta * old
        # classes, with beta 0.25. At T = 2 that is 1 * batch mean.
        distillation: float = option(1.0, **WEIGHT, later=True)
        temperature: float = option(2.0, **POSITIVE, later=True)  # T of distillation, read by the form cross-entropy

    label, classifier = "iCaRL", "nearest_mean"
    published = {"*": {"network.last_relu": True}}
    variants = {
        "sigmoid": {  # options/icarl/*.yaml of PODNet's code
            "*": {"method.form": "sigmoid"},
            # The rate is high because the loss is a mean over all outputs.
            "cifar100": both_phases(epochs=70, lr=2.0, milestones=(49, 63), decay=0.2, weight_decay=5e-5, shift=-1),
            "imagenet100": _IMAGENET,
            "imagenet": _IMAGENET,
            # Ours, after CIFAR100's: the drops of the glyphs recipe are near 0.7 and 0.9 of the epochs, too.
            "glyphs": both_phases(lr=2.0, decay=0.2, weight_decay=5e-5),
        }
    }
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return LinearHead(feature_size, bias=True)  # a plain fully connected layer

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
