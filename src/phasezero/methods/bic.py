"""BiC: Large Scale Incremental Learning (Wu et al., CVPR 2019).

The last layer favours new classes. Two numbers per phase correct it, a scale alpha and a shift beta, fitted on a
balanced set that is not trained on. Losses and constants are FACIL's, where every phase's pair also stays in the model
(but held-out images are cropped at random there). `bic-podnet` is the version in PODNet's code, from which the CwD
paper's CIFAR100 rows may come. It evaluates without the correction: its number is the record's `uncorrected`. (Its fit,
50 steps of L-BFGS on accumulating gradients, may end far from the minimum. Here both versions reach the minimum.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.methods.base import Method, MethodOptions, both_phases, register_method, trainable
from phasezero.methods.lwf import softened_cross_entropy
from phasezero.methods.stage import Batch, Loss, PhaseImages, Stage
from phasezero.nets import BiasCorrectedHead, GrowingHead, IncrementalModel
from phasezero.schedule import Schedule
from phasezero.validation import BELOW_ONE, EPOCHS, MOMENTUM, POSITIVE, RATE, WEIGHT, option


def sigmoid_distillation(logits: Tensor, old_logits: Tensor, temperature: float) -> Tensor:
    """Return the loss of PODNet's code: binary cross-entropy between the softened sigmoids of new and old model."""
    wanted = (old_logits / temperature).sigmoid()
    return F.binary_cross_entropy_with_logits(logits / temperature, wanted)


def correction_loss(logits: Tensor, labels: Tensor, pair: Tensor, decay: float) -> Tensor:
    """Return Eq. 5 plus a weight decay of beta, which the authors' code has and the paper does not mention (FACIL)."""
    return F.cross_entropy(logits, labels) + decay * pair[1].square() / 2


def split_held_out(images: PhaseImages, share: float, aside: float) -> tuple[list[Tensor], list[Tensor]]:
    """Return the images to train on, at least one per class, and those to hold out, class by class.

    Of an old class the first exemplars are held out: `Bic.exemplars` puts the images there that were held out when the
    class was new. Of a new class random images are held out, and the share `aside` of its images is not trained on.
    """
    shuffle = images.generator("held-out")
    new = [indices[torch.randperm(len(indices), generator=shuffle)] for indices in images.new]
    classes = [*images.kept, *new]
    count = max(0, min(max(1, round(share * images.quota)), min(images.quota, *map(len, classes)) - 1))
    aside_too = [min(max(count, round(aside * len(own))), len(own) - 1) for own in new]
    unused = [count] * len(images.kept) + aside_too
    return [own[first:] for own, first in zip(classes, unused, strict=True)], [own[:count] for own in classes]


_IMAGENET = both_phases(epochs=100, lr=0.025, milestones=(30, 60, 80, 90), weight_decay=1e-4, batch_size=64, shift=-1)


@register_method("bic", "BiC (CVPR 2019): corrects the bias towards new classes")
class Bic(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "bic"
        # Share of the exemplars that is held out to fit the correction, 2 of 20: FACIL, PODNet's and PyCIL's code.
        held_out: float = option(0.1, **POSITIVE, most=BELOW_ONE)
        # Held-out share of new classes; PODNet's code: 0.1.
        set_aside: float = option(0.0, least=0, most=BELOW_ONE, before=0.0)
        head_bias: bool = option(True, before=True)  # whether the head has biases; PODNet's code: false
        temperature: float = option(2.0, **POSITIVE, later=True)  # T of distillation: FACIL, PODNet's and PyCIL's code
        distillation: Literal["softmax", "sigmoid"] = option("softmax", later=True)  # its form; PODNet's code: sigmoid
        # true: (1 - lambda) * cross-entropy + lambda * distillation. false: their sum.
        balanced_losses: bool = option(True, later=True)
        # Correct all earlier phases; false: the newest only, as PODNet's code.
        keep_pairs: bool = option(True, later=True)
        bias_epochs: int = option(200, **EPOCHS, later=True)  # epochs of the fit: FACIL
        bias_lr: float = option(0.1, **RATE, later=True)  # learning rate of the fit: FACIL, that of the main stage
        bias_momentum: float = option(0.9, **MOMENTUM, later=True)  # momentum of the fit: FACIL
        bias_settles: bool = option(True, later=True, before=False)  # ours: the fit converges; false: FACIL's
        beta_decay: float = option(0.1, **WEIGHT, later=True)  # decay of beta in the fit: FACIL, from the authors' code

    label = "BiC"
    later_cost = {"cpu": 2.3}

    published = {
        "*": {"network.last_relu": True},
        "glyphs": {"method.bias_epochs": 30},  # ours: the loss has stopped falling by then
    }
    variants = {
        "podnet": {  # options/bic/*.yaml of PODNet's code
            "*": {"method.distillation": "sigmoid", "method.set_aside": 0.1}
            | dict.fromkeys(["method.balanced_losses", "method.keep_pairs", "method.head_bias"], False),
            "cifar100": both_phases(epochs=250, milestones=(100, 150, 200), weight_decay=2e-4, shift=-1),
            "imagenet100": _IMAGENET,
            "imagenet": _IMAGENET,
        }
    }
    memory_in_phase_zero = True  # held-out images are a share of the exemplars
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return BiasCorrectedHead(feature_size, self.options.head_bias, keep_pairs=self.options.keep_pairs)

    def begin(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        shares = self.options.held_out, self.options.set_aside
        self.training_images, self.held_out_images = split_held_out(images, *shares)

    def exemplars(self, images: PhaseImages) -> list[Tensor]:
        """Return the held-out images, so that later phases hold out the same, followed by herding's choice."""
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
        """Return a schedule with batches of equal size and a rate that falls to zero.

        FACIL's rate is constant. Where 130 images make a batch of 128 and a batch of 2, its fit follows those two
        images and misses the only minimum of the loss, at times by far.
        """
        options, size = self.options, schedule.batch_size
        steps = Schedule(options.bias_epochs, options.bias_lr, momentum=options.bias_momentum, weight_decay=0)
        if not options.bias_settles:
            return replace(steps, milestones=(), batch_size=size)
        return replace(steps, shape="cosine", batch_size=math.ceil(images / math.ceil(images / size)))

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
