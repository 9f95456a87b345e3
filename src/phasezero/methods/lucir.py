"""LUCIR: Learning a Unified Classifier Incrementally via Rebalancing (Hou et al., CVPR 2019).

It has a cosine head, a loss that keeps the direction of features (less-forget), and a margin between an old class and
the new classes most similar to it. The defaults are those of the published CwD code, which the paper's CIFAR100 and
ImageNet100 rows come from. That code leaves out two steps of the original, which are options here: imprinted class
weights and class-balanced fine-tuning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.methods.base import Method, MethodOptions, register_method, trainable
from phasezero.methods.stage import Batch, Loss, PhaseImages, Stage, balanced_exemplars
from phasezero.nets import IncrementalModel
from phasezero.schedule import Schedule
from phasezero.validation import COUNT, EPOCHS, RATE, WEIGHT, option


def less_forget(features: Tensor, old_features: Tensor) -> Tensor:
    """Return Eq. 6: one minus the cosine between the new and the old model's features, mean over the batch.

    >>> import torch
    >>> from phasezero import less_forget
    >>> less_forget(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]]))
    tensor(1.)
    """
    return (1 - F.cosine_similarity(features, old_features, dim=1)).mean()


def margin_ranking(cosines: Tensor, labels: Tensor, old_classes: int, top_k: int, margin: float) -> Tensor:
    """Return Eq. 8: the cosine of a sample's own old class should exceed its K largest new-class cosines by a margin.

    The mean is over (old sample, k). It is zero when the batch has no sample of an old class.

    >>> import torch
    >>> from phasezero import margin_ranking
    >>> margin_ranking(torch.tensor([[0.75, 0.5]]), torch.tensor([0]), old_classes=1, top_k=1, margin=0.5)
    tensor(0.2500)
    """
    is_old = (labels < old_classes).to(cosines.dtype)
    own = cosines.gather(1, labels[:, None])
    rivals = cosines[:, old_classes:].topk(top_k, dim=1).values
    hinge = F.relu(margin - (own - rivals)).mean(1)
    return (hinge * is_old).sum() / is_old.sum().clamp_min(1)


def imprint(head_weights: Tensor, class_features: list[Tensor]) -> Tensor:
    """Return class weights: each class's mean unit feature, scaled to the mean length of the old weights."""
    directions = [F.normalize(F.normalize(features, dim=1).mean(0), dim=0) for features in class_features]
    length: Tensor = torch.linalg.vector_norm(head_weights, dim=1).mean()
    return torch.stack(directions) * length


@register_method("lucir", "LUCIR (CVPR 2019): cosine head, less-forget, margin")
class Lucir(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "lucir"
        lambda_base: float = option(5.0, **WEIGHT, later=True)  # weight of less-forget, sec. 4.1
        margin: float = option(0.5, **WEIGHT, later=True)  # m of margin ranking, sec. 4.1
        top_k: int = option(2, **COUNT, later=True)  # K of margin ranking, sec. 4.1; at most the new classes
        ranking_weight: float = option(1.0, **WEIGHT, later=True)  # weight of margin ranking
        # Imprint the weights of new classes. LUCIR's own code does, the published CwD code does not.
        imprint: bool = option(False, later=True)
        # Epochs of class-balanced fine-tuning. LUCIR's own code: 20, on ImageNet only (cbf scripts).
        balanced_epochs: int = option(0, **EPOCHS, later=True)
        balanced_lr: float = option(0.01, **RATE, later=True)  # learning rate of this fine-tuning
        balanced_milestones: tuple[int, ...] = option((10,), **EPOCHS, later=True)  # epochs at which it drops

    label = "LUCIR"
    published = {
        "imagenet100": {"method.lambda_base": 10.0},
        # Class-balanced fine-tuning is worth 3 points on ImageNet, the CwD paper's author says. The rest is LUCIR's.
        "imagenet": {"method.lambda_base": 10.0, "method.imprint": True, "method.balanced_epochs": 20},
    }
    variants = {
        # LUCIR's own scripts: a narrow ResNet-32 on CIFAR100 and imprinted class weights.
        "original": {"cifar100": {"network.name": "resnet32", "method.imprint": True}}
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
        own, loss = self.options, self.make_loss(phase)
        stages = [Stage("train", schedule, loss, trainable(model))]
        if phase.index and own.balanced_epochs:
            epochs, lr, drops = own.balanced_epochs, own.balanced_lr, own.balanced_milestones
            balanced = replace(schedule, epochs=epochs, lr=lr, shape="step", milestones=drops, decay=0.1, shift=0)
            # Only old and new class weights, with BatchNorm in evaluation mode (ft_flag 2 of the original).
            weights = list(model.head.blocks)
            stages.append(Stage("balance", balanced, loss, weights, balanced_exemplars, batch_statistics=False))
        return stages

    def make_loss(self, phase: Phase) -> Loss:
        if phase.index == 0:
            return super().make_loss(phase)
        options = self.options
        weight = options.lambda_base * math.sqrt(phase.old / phase.new)  # Eq. 7
        top_k = min(options.top_k, phase.new)

        def loss(batch: Batch) -> Tensor:
            assert batch.teacher is not None
            ranking = margin_ranking(batch.output.similarities, batch.labels, phase.old, top_k, options.margin)
            return (
                F.cross_entropy(batch.output.logits, batch.labels)
                + weight * less_forget(batch.output.features, batch.teacher.features)
                + options.ranking_weight * ranking
            )

        return loss
