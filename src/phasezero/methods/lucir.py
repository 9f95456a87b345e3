"""LUCIR: Learning a Unified Classifier Incrementally via Rebalancing (Hou et al., CVPR 2019).

A cosine head, features that may not turn away from the old model's (less-forget), and a margin between an
old class and its most similar new ones. The defaults are those of the published CwD code, which the paper's
CIFAR100 and ImageNet100 rows come from; it leaves out two steps of the original, here as switches:
imprinted class weights and class-balanced fine-tuning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    balanced_exemplars,
    trainable,
)
from phasezero.nets import IncrementalModel
from phasezero.schedule import Schedule


def less_forget(features: Tensor, old_features: Tensor) -> Tensor:
    """Eq. 6: one minus the cosine between the new and the old model's features, mean over the batch."""
    return (1 - F.cosine_similarity(features, old_features, dim=1)).mean()


def margin_ranking(cosines: Tensor, labels: Tensor, old_classes: int, top_k: int, margin: float) -> Tensor:
    """Eq. 8: for samples of old classes, the own class's cosine exceeds the K highest new-class ones by m.

    Mean over (old sample, k); zero when the batch has no old sample.
    """
    is_old = (labels < old_classes).to(cosines.dtype)
    own = cosines.gather(1, labels[:, None])
    rivals = cosines[:, old_classes:].topk(top_k, dim=1).values
    hinge = F.relu(margin - (own - rivals)).mean(1)
    return (hinge * is_old).sum() / is_old.sum().clamp_min(1)


def imprint(head_weights: Tensor, class_features: list[Tensor]) -> Tensor:
    """Class weights from data: the mean unit feature of each class, as long as the old weights are on average."""
    directions = [F.normalize(F.normalize(features, dim=1).mean(0), dim=0) for features in class_features]
    length: Tensor = torch.linalg.vector_norm(head_weights, dim=1).mean()
    return torch.stack(directions) * length


@METHODS.register("lucir")
class Lucir(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "lucir"
        lambda_base: float = 5.0  # sec. 4.1
        margin: float = 0.5  # m, sec. 4.1
        top_k: int = 2  # K, sec. 4.1; never more than the phase has new classes
        ranking_weight: float = 1.0
        imprint: bool = False  # the original does, the published CwD code does not
        balanced_epochs: int = 0  # the original: 20, on ImageNet only (cbf scripts)
        balanced_lr: float = 0.01
        balanced_milestones: tuple[int, ...] = (10,)

    published = {
        "imagenet100": {"method.lambda_base": 10.0},
        # The paper's author: class-balanced fine-tuning is worth 3 points on ImageNet. The rest is LUCIR's own.
        "imagenet": {"method.lambda_base": 10.0, "method.imprint": True, "method.balanced_epochs": 20},
    }
    variants = {
        # LUCIR's own scripts: a narrow ResNet-32 on CIFAR100, and imprinted class weights.
        "original": {"cifar100": {"network.name": "resnet32", "method.imprint": True}},
    }
    options: Options

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        model.head.grow(phase.new, rng)
        model.head.freeze_old()

    def begin(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        if self.options.imprint and phase.index:
            *old_blocks, new_block = model.head.blocks
            features = [images.class_features(position) for position in range(phase.old, phase.seen)]
            new_block.data.copy_(imprint(torch.cat(old_blocks), features))

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        loss = self.make_loss(phase)
        stages = [Stage("train", schedule, loss, trainable(model))]
        if phase.index and self.options.balanced_epochs:
            balanced = Schedule(
                epochs=self.options.balanced_epochs,
                lr=self.options.balanced_lr,
                milestones=self.options.balanced_milestones,
                momentum=schedule.momentum,
                weight_decay=schedule.weight_decay,
                batch_size=schedule.batch_size,
            )
            # Old and new class weights only, BatchNorm in evaluation mode (the original's ft_flag 2).
            weights = list(model.head.blocks)
            stages.append(
                Stage("balance", balanced, loss, weights, balanced_exemplars, batch_statistics=False)
            )
        return stages

    def phase_zero(self) -> object:
        return "cross-entropy on a cosine head"

    def make_loss(self, phase: Phase) -> Loss:
        if phase.index == 0:
            return super().make_loss(phase)
        options = self.options
        weight = options.lambda_base * math.sqrt(phase.old / phase.new)  # Eq. 7
        top_k = min(options.top_k, phase.new)

        def loss(batch: Batch) -> Tensor:
            assert batch.teacher is not None
            ranking = margin_ranking(
                batch.output.similarities, batch.labels, phase.old, top_k, options.margin
            )
            return (
                F.cross_entropy(batch.output.logits, batch.labels)
                + weight * less_forget(batch.output.features, batch.teacher.features)
                + options.ranking_weight * ranking
            )

        return loss
