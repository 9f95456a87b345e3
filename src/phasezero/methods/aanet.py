"""AANets: Adaptive Aggregation Networks for Class-Incremental Learning (Liu et al., CVPR 2021), on LUCIR.

Phase 0 is LUCIR's. Then the network becomes two branches, a stable and a plastic branch, which are mixed after each
level with weights a_l (nets/aggregated.py). Each epoch has two parts: LUCIR's loss trains the network, then
cross-entropy on a balanced set trains the a_l alone (Eq. 7 and 8). At the published learning rate the a_l move only
because the authors' code never resets their gradient: it accumulates over the batches of both parts and over phases.
The same happens here. Unlike theirs, the balanced set is shuffled in each epoch and its size follows the memory; theirs
has 20 images for each new class, whatever the memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.methods.base import Method, both_phases, register_method
from phasezero.methods.lucir import Lucir
from phasezero.methods.stage import PhaseImages, Stage
from phasezero.nets import IncrementalModel, ResNet
from phasezero.nets.aggregated import AggregatedResNet
from phasezero.schedule import Schedule
from phasezero.validation import BATCH_SIZE, RATE, SHARE, option


def balanced_draw(images: PhaseImages) -> Tensor:
    """Return the exemplars of old classes and as many images per new class, drawn from all new images together."""
    new = torch.cat(list(images.new))
    for_each = max(1, *map(len, images.kept))
    draw = torch.randint(len(new), (for_each * len(images.new),), generator=images.generator("balanced"))
    return torch.cat([*images.kept, new[draw]])


_IMAGENET = {
    "method.lambda_base": 10.0,
    "method.weights_drops": (0.333, 0.667),
    "method.weights_batch_size": 50,
    "training.brightness": 63 / 255,  # the authors' code, on ImageNet only
}


@register_method("aanet", "AANets on LUCIR (CVPR 2021): stable and plastic branch")
class Aanet(Lucir):
    @dataclass(frozen=True)
    class Options(Lucir.Options):
        name: str = "aanet"
        imprint: bool = option(True, later=True)  # imprint new class weights, from aggregated features
        # Learning rate of the branch weights a_l: the code's fusion_lr. Momentum and weight decay are the network's.
        weights_lr: float = option(1e-8, **RATE, later=True)
        # When this rate drops to a tenth, as shares of the epochs.
        weights_drops: tuple[float, ...] = option((0.5, 0.75), **SHARE, later=True)
        # Batch size for the a_l: the code's test_batch_size.
        weights_batch_size: int = option(100, **BATCH_SIZE, later=True)
        # Never reset the gradients of the a_l; the code's iCaRL version resets them.
        accumulate: bool = option(True, later=True)

    label, paper_row = "AANet", "aanet(lucir)"
    later_cost = {"cpu": 4.1, "cuda": 2.6}
    phase_zero_like = "lucir"
    network = ResNet  # AANets mix the stages of two ResNets

    # The code steps its scheduler before each epoch, so the rate drops an epoch early (79 and 119 on CIFAR100). Phase 0
    # on CIFAR100 does not do so here: LUCIR and AANets then share one phase 0 (but see the variant "original").
    # ResNet-18 on CIFAR100, as the CwD paper says. 20 exemplars per class, as both papers say.
    published = {
        "cifar100": {"network.name": "resnet18-cifar", "training.later.shift": 1},
        "imagenet100": {**_IMAGENET, **both_phases(lr=0.05, shape="cosine", weight_decay=5e-4, shift=1)},
        # LUCIR's numbers, as AANets' author says. No class-balanced fine-tuning, as the CwD paper says of this row.
        "imagenet": _IMAGENET,
    }
    variants = {
        "original": {"cifar100": {"network.name": "resnet32", **both_phases(shift=1)}},
        # The commands for CIFAR100 in the authors' README lack dynamic_budget: the classes seen share 2,000 exemplars
        # (the number per class is rounded up there, down here).
        "total": {"cifar100": {"protocol.memory": "total:2000"}},
    }
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
        # The gradients are summed in place: the sum is part of the model and survives a stop between phases.
        weights.grad = model.backbone.gradient_sum if self.options.accumulate else None
        accumulated = [weights] if self.options.accumulate else []
        lr, size = self.options.weights_lr, self.options.weights_batch_size
        drops = tuple(int(part * schedule.epochs) for part in self.options.weights_drops)
        steps = replace(schedule, lr=lr, shape="step", milestones=drops, decay=0.1, batch_size=size)
        loss = Method.make_loss(self, phase)  # cross-entropy alone
        second_level = Stage("aggregate", steps, loss, [weights], balanced_draw, batch_statistics=False)
        second_level = replace(second_level, needs_teacher=False, accumulate=accumulated)
        return [replace(train, accumulate=accumulated, each_epoch=second_level), *others]
