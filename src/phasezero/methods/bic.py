"""BiC: Large Scale Incremental Learning (Wu et al., CVPR 2019).

The last layer favours new classes, by a scale and a shift that two numbers can take back: alpha and beta, fitted
on a balanced set held out of the training. Losses and their constants are FACIL's, where as here every phase's pair
stays in the model (but held-out images are not cropped at random). `bic-podnet` is PODNet's version, which the CwD
paper's CIFAR100 rows may come from: it evaluates without the correction, so its number is the record's `uncorrected`.
(Its own fit, 50 steps of L-BFGS on gradients that add up, need not end near the minimum, where both end here.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.methods.base import (
    METHODS,
    Batch,
    Loss,
    Method,
    MethodOptions,
    PhaseImages,
    Stage,
    both_phases,
    trainable,
)
from phasezero.methods.lwf import softened_cross_entropy
from phasezero.nets import BiasCorrectedHead, GrowingHead, IncrementalModel
from phasezero.schedule import Schedule


def sigmoid_distillation(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """PODNet's code: each old class's softened yes or no should be the old model's, mean over all of them."""
    wanted = (old_logits / temperature).sigmoid()
    return F.binary_cross_entropy_with_logits(logits / temperature, wanted)


def correction_loss(logits: Tensor, labels: Tensor, pair: Tensor, decay: float) -> Tensor:
    """Eq. 5, and the authors' code's weight decay of beta, which the paper does not mention (FACIL)."""
    return F.cross_entropy(logits, labels) + decay * pair[1].square() / 2


def split_held_out(images: PhaseImages, share: float, aside: float) -> tuple[list[Tensor], list[Tensor]]:
    """What to train on, an image of each class at least, and what to hold out: the first exemplars of an old class
    (held out since it was new: `Bic.exemplars`), random images of a new one, of which more may go `aside`."""
    shuffle = images.generator("held-out")
    new = [indices[torch.randperm(len(indices), generator=shuffle)] for indices in images.new]
    classes = [*images.kept, *new]
    count = max(0, min(max(1, round(share * images.quota)), min(images.quota, *map(len, classes)) - 1))
    aside_too = [min(max(count, round(aside * len(own))), len(own) - 1) for own in new]
    unused = [count] * len(images.kept) + aside_too
    return [own[first:] for own, first in zip(classes, unused, strict=True)], [own[:count] for own in classes]


_IMAGENET = both_phases(
    epochs=100, lr=0.025, milestones=(30, 60, 80, 90), weight_decay=1e-4, batch_size=64, shift=-1
)


@METHODS.register("bic")
class Bic(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "bic"
        held_out: float = 0.1  # of the exemplars, 2 of 20: FACIL, PODNet's and PyCIL's code
        set_aside: float = 0.0  # of a new class's images; PODNet's code: 0.1
        head_bias: bool = True  # not in PODNet's code
        temperature: float = 2.0  # T, the same in FACIL, PODNet's and PyCIL's code
        distillation: Literal["softmax", "sigmoid"] = "softmax"  # the paper's; PODNet's code
        balanced_losses: bool = True  # (1 - lambda) * cross-entropy + lambda * distillation; else their sum
        keep_pairs: bool = True
        bias_epochs: int = 200  # FACIL
        bias_lr: float = 0.1  # FACIL: the main stage's
        bias_momentum: float = 0.9  # FACIL
        bias_settles: bool = True  # ours; `fit_schedule` says why
        beta_decay: float = 0.1  # FACIL, from the authors' code

    published = {
        "*": {"network.last_relu": True},
        "glyphs": {"method.bias_epochs": 30},  # ours: the loss has long stopped falling
    }
    variants = {
        "podnet": {  # options/bic/*.yaml of PODNet's code
            "*": {"method.distillation": "sigmoid", "method.set_aside": 0.1}
            | dict.fromkeys(["method.balanced_losses", "method.keep_pairs", "method.head_bias"], False),
            "cifar100": both_phases(epochs=250, milestones=(100, 150, 200), weight_decay=2e-4, shift=-1),
            "imagenet100": _IMAGENET,
            "imagenet": _IMAGENET,
        },
    }
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return BiasCorrectedHead(feature_size, self.options.head_bias, keep_pairs=self.options.keep_pairs)

    def begin(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        shares = self.options.held_out, self.options.set_aside
        self.training_images, self.held_out_images = split_held_out(images, *shares)

    def exemplars(self, images: PhaseImages) -> list[Tensor]:
        """Held-out images first, so that the next phases hold out the same; then herding's choice of the rest."""
        chosen, held_out = images.choose_exemplars(), self.held_out_images
        rest = [own[~torch.isin(own, apart)] for own, apart in zip(chosen, held_out, strict=True)]
        return [torch.cat(both)[: images.quota] for both in zip(held_out, rest, strict=True)]

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        train, held_out = torch.cat(self.training_images), torch.cat(self.held_out_images)
        learning = Stage("train", schedule, self.make_loss(phase), trainable(model), lambda _: train)
        if phase.index == 0 or not len(held_out):
            return [learning]
        assert isinstance(model.head, BiasCorrectedHead)
        fit, pair = self.fit_schedule(schedule, len(held_out)), model.head.pairs[-1]

        def loss(batch: Batch) -> Tensor:
            return correction_loss(batch.output.logits, batch.labels, pair, self.options.beta_decay)

        bias = Stage("bias", fit, loss, [pair], lambda _: held_out, False, augment=False, needs_teacher=False)
        return [learning, bias]

    def fit_schedule(self, schedule: Schedule, images: int) -> Schedule:
        """FACIL's steps stay as long as they were; where 130 images are a batch of 128 and one of 2, they follow
        those two and miss the loss's one minimum, at times by far. So: even batches, steps that fall to zero."""
        options, size = self.options, schedule.batch_size
        steps = Schedule(options.bias_epochs, options.bias_lr, momentum=options.bias_momentum, weight_decay=0)
        if not options.bias_settles:
            return replace(steps, milestones=(), batch_size=size)
        return replace(steps, shape="cosine", batch_size=math.ceil(images / math.ceil(images / size)))

    def phase_zero(self) -> object:
        return "linear head", self.options.head_bias, self.options.held_out, self.options.set_aside

    def make_loss(self, phase: Phase) -> Loss:
        if phase.index == 0:
            return super().make_loss(phase)
        options, share = self.options, phase.old / phase.seen  # lambda
        distil = softened_cross_entropy if options.distillation == "softmax" else sigmoid_distillation
        learn_weight, keep_weight = (1 - share, share) if options.balanced_losses else (1.0, 1.0)

        def loss(batch: Batch) -> Tensor:
            assert batch.teacher is not None
            logits, old_logits = batch.output.logits, batch.teacher.logits  # both corrected
            kept = distil(logits[:, : phase.old], old_logits, options.temperature)
            return learn_weight * F.cross_entropy(logits, batch.labels) + keep_weight * kept

        return loss
