"""How long, how fast, in what batches: the numbers of one stage of training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from phasezero.bounds import refuse_outside


@dataclass(frozen=True)
class Schedule:
    """SGD with momentum; the defaults are the paper's for CIFAR100 (Sec. 4)."""

    epochs: int = 160
    lr: float = 0.1
    shape: Literal["step", "cosine"] = "step"
    milestones: tuple[int, ...] = (80, 120)
    decay: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4  # on everything: BatchNorm, the scale and the class weights too
    batch_size: int = 128
    shift: int = 0  # epoch e runs at the rate of e + shift: -1 in PODNet's code, +1 in AANets' code

    def __post_init__(self) -> None:
        for name in ("epochs", "lr", "decay", "momentum", "weight_decay", "batch_size"):
            refuse_outside(f"schedule.{name}", getattr(self, name))

    def lr_at(self, epoch: int) -> float:
        """Epochs count from 0. Step: the rate drops from the epoch named by a milestone on; cosine: to 0."""
        epoch = max(epoch + self.shift, 0)
        if self.shape == "cosine":
            return self.lr * (1 + math.cos(math.pi * min(epoch / max(self.epochs, 1), 1))) / 2
        return self.lr * self.decay ** sum(epoch >= milestone for milestone in self.milestones)

    def steps(self, images: int) -> int:
        return self.epochs * math.ceil(images / self.batch_size)

    def stretched(self, epochs: int) -> Schedule:
        """The same shape over another number of epochs: drops keep their place in proportion. But none comes to lie
        before the first epoch, and a schedule that is early does not skip the only one."""
        refuse_outside("schedule.epochs", epochs)
        shift = min(self.shift, max(epochs - 1, 0))
        first = 1 + max(shift, 0)  # where a drop may lie
        before = max(self.epochs, 1)
        milestones = tuple(max(round(each * epochs / before), min(each, first)) for each in self.milestones)
        return replace(self, epochs=epochs, milestones=milestones, shift=shift)
