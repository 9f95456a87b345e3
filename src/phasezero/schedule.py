"""Schedules: epochs, learning rates and batch sizes of training stages."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from phasezero.validation import BATCH_SIZE, EPOCHS, MOMENTUM, RATE, SHARE, WEIGHT, Limited, check_number, option


@dataclass(frozen=True)
class Schedule(Limited):
    """SGD with momentum. The defaults are the paper's for CIFAR100 (Sec. 4).

    >>> from phasezero import Schedule
    >>> [Schedule(epochs=160).lr_at(epoch) for epoch in (0, 80)]
    [0.1, 0.010000000000000002]
    """

    epochs: int = option(160, **EPOCHS)  # passes over the training images
    lr: float = option(0.1, **RATE)  # learning rate at the start
    shape: Literal["step", "cosine"] = "step"  # drop at milestones, or follow a cosine to 0
    milestones: tuple[int, ...] = option((80, 120), **EPOCHS)  # epochs at which the rate drops; shape step only
    decay: float = option(0.1, **SHARE)  # factor of the rate at each milestone
    momentum: float = option(0.9, **MOMENTUM)  # momentum of SGD
    # L2 decay of all parameters, including BatchNorm, scale and class weights.
    weight_decay: float = option(5e-4, **WEIGHT)
    batch_size: int = option(128, **BATCH_SIZE)  # images of a training step
    shift: int = 0  # epoch e runs at the rate of e + shift: -1 in PODNet's code, +1 in AANets' code
    # Ours, for a few hundred images: a smaller batch size, if the last batch of an epoch would be less than half full.
    even_batches: bool = option(False, before=False)

    def lr_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch (from 0), which drops at each milestone or follows a cosine to 0."""
        epoch = max(epoch + self.shift, 0)
        if self.shape == "cosine":
            return self.lr * (1 + math.cos(math.pi * min(epoch / max(self.epochs, 1), 1))) / 2
        return self.lr * self.decay ** sum(epoch >= milestone for milestone in self.milestones)

    def steps(self, images: int) -> int:
        """Return the number of training steps for this number of images."""
        return self.epochs * math.ceil(images / self.batch_size)

    def for_images(self, images: int) -> Schedule:
        """Return the schedule for this number of images: with even batches, BatchNorm never sees a tiny last batch."""
        if not self.even_batches:
            return self
        sizes = range(self.batch_size, 1, -1)
        fitting = next((size for size in sizes if not 0 < 2 * (images % size) < size), self.batch_size)
        return replace(self, batch_size=fitting)

    def stretched(self, epochs: int) -> Schedule:
        """Return the schedule stretched to other epochs. The first epoch keeps its rate, milestones are scaled."""
        check_number("schedule.epochs", epochs, self.__dataclass_fields__["epochs"])
        shift = min(self.shift, max(epochs - 1, 0))
        first = 1 + max(shift, 0)  # the earliest possible milestone
        before = max(self.epochs, 1)
        milestones = tuple(max(round(each * epochs / before), min(each, first)) for each in self.milestones)
        return replace(self, epochs=epochs, milestones=milestones, shift=shift)


@dataclass(frozen=True)
class Training(Limited):
    """The schedules of phase 0 and of the later phases, and the brightness jitter of training images.

    >>> from phasezero import Schedule, Training
    >>> Training(Schedule(epochs=10), Schedule(epochs=6)).later.epochs
    6
    """

    first: Schedule = Schedule()  # phase 0
    later: Schedule = option(Schedule(), later=True)
    brightness: float = option(0.0, **SHARE)  # jitter; in the code of PODNet and AANets 63/255 = 0.247
