"""AANets: Adaptive Aggregation Networks for Class-Incremental Learning (Liu et al., CVPR 2021), on LUCIR.

Phase 0 is LUCIR's. Then the network becomes two branches, a stable and a plastic one, mixed after each level
with weights a_l (nets/aggregated.py), and each epoch has two levels of its own: LUCIR's loss trains the
network, then cross-entropy on a balanced set trains the a_l alone (Eq. 7 and 8). At the published rate the
a_l move at all only because the authors' code never sets their gradient back: it adds up over the batches of
both levels and over phases, and so it does here. Unlike theirs, the balanced set is shuffled each epoch, and
its size follows the memory where theirs has 20 images for each new class whatever the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.methods.base import METHODS, Method, PhaseImages, Stage, both_phases
from phasezero.methods.lucir import Lucir
from phasezero.nets import IncrementalModel, NetworkFactory, ResNet
from phasezero.nets.aggregated import AggregatedResNet
from phasezero.schedule import Schedule


def balanced_draw(images: PhaseImages) -> Tensor:
    """The exemplars of old classes and as many images for each new one, the latter drawn from all new images
    together and with replacement: balanced between old and new, not from class to class."""
    new = torch.cat(list(images.new))
    for_each = max(1, *map(len, images.kept))
    draw = torch.randint(len(new), (for_each * len(images.new),), generator=images.generator("balanced"))
    return torch.cat([*images.kept, new[draw]])


_IMAGENET = {
    "method.lambda_base": 10.0,
    "method.weights_drops": (0.333, 0.667),
    "method.weights_batch_size": 50,
    "training.brightness": 63 / 255,  # the code's, on ImageNet alone
}


@METHODS.register("aanet")
class Aanet(Lucir):
    @dataclass(frozen=True)
    class Options(Lucir.Options):
        name: str = "aanet"
        imprint: bool = True  # with aggregated features
        weights_lr: float = 1e-8  # of the a_l: the code's fusion_lr; momentum and decay are the network's
        weights_drops: tuple[float, ...] = (0.5, 0.75)  # when it drops to a tenth, as parts of the epochs
        weights_batch_size: int = 100  # the code's test_batch_size
        accumulate: bool = True  # the gradients of the a_l; the code's iCaRL version sets them back

    # The code steps its scheduler before each epoch: everything happens an epoch early (79 and 119 on CIFAR100).
    # In phase 0 on CIFAR100 it does not here, so that one phase 0 serves LUCIR and AANets (but see "original").
    # ResNet-18 on CIFAR100 as the CwD paper says; 20 exemplars a class as both papers say.
    published = {
        "cifar100": {"network.name": "resnet18-cifar", "training.later.shift": 1},
        "imagenet100": {
            **_IMAGENET,
            **both_phases(lr=0.05, shape="cosine", weight_decay=5e-4, shift=1),
        },
        # AANets' author: LUCIR's numbers. No class-balanced fine-tuning, as the CwD paper says of this row.
        "imagenet": _IMAGENET,
    }
    variants = {
        "original": {"cifar100": {"network.name": "resnet32", **both_phases(shift=1)}},
        # The commands in the authors' README for CIFAR100: without dynamic_budget 2,000 exemplars in all, shared
        # by the classes seen (rounded up there, down here).
        "total": {"cifar100": {"protocol.memory": "total:2000"}},
    }
    network_makers = NetworkFactory  # it mixes the stages of two ResNets
    options: Options

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        super().grow(model, phase, rng)
        if phase.index == 1:
            assert isinstance(model.backbone, ResNet)
            model.backbone = AggregatedResNet(model.backbone)

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        train, *others = super().stages(model, phase, schedule)
        if not phase.index:
            return [train, *others]
        assert isinstance(model.backbone, AggregatedResNet)
        weights = model.backbone.weights
        # Gradients add up in place, so that the sum lives in the model and survives a stop between phases.
        weights.grad = model.backbone.gradient_sum if self.options.accumulate else None
        accumulated = [weights] if self.options.accumulate else []
        second_level = Stage(
            "aggregate",
            replace(
                schedule,
                lr=self.options.weights_lr,
                shape="step",
                milestones=tuple(int(part * schedule.epochs) for part in self.options.weights_drops),
                decay=0.1,
                batch_size=self.options.weights_batch_size,
            ),
            Method.make_loss(self, phase),  # cross-entropy alone
            [weights],
            balanced_draw,
            batch_statistics=False,
            needs_teacher=False,
            accumulate=accumulated,
        )
        return [replace(train, accumulate=accumulated, each_epoch=second_level), *others]
