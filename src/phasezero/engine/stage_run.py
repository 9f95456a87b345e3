"""A stage under way: its epochs, the losses of each epoch, and its state between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import Callback, Pause
from phasezero.engine.device import Device
from phasezero.engine.stage import PendingNumber, StagePass, check_divergence
from phasezero.seeding import generator


class StageRun:
    """Run the epochs of a stage and of the stage that follows each of its epochs, if any.

    `tick` is called after each step. Then `facts` and `tensors` describe the state from which `restore` continues.
    `counts` says that the images count towards those of the run.
    """

    def __init__(
        self,
        passes: Sequence[StagePass],
        phase: Phase,
        config: RunConfig,
        device: Device,
        callback: Callback,
        tick: Callable[[], None],
        *,
        counts: bool,
    ) -> None:
        self.passes, self.phase, self.seed, self.limit = passes, phase, config.seed, config.engine.loss_limit
        self.callback, self.tick, self.counts, self.pause = callback, tick, counts, Pause()
        self.main = passes[0].stage
        self.epoch = self.part = self.step = 0
        self.losses: dict[str, list[float]] = {own.stage.name: [] for own in passes}
        self.queued: list[PendingNumber | float] = []
        """The mean losses of the parts of this epoch that were queued."""
        self.unread: list[list[PendingNumber | float]] = []
        # A GPU never waits: there the losses of an epoch are read once the next epoch is queued.
        self.on_cpu = device.torch.type == "cpu"

    def train(self) -> dict[str, list[float]]:
        """Train the epochs that are left; return the mean loss of each epoch, by stage."""
        while self.epoch < self.main.schedule.epochs:
            while self.part < len(self.passes):
                own = self.passes[self.part]
                rng = generator(self.seed, "batches", self.phase.index, own.stage.name, self.epoch)
                loss = own.epoch(self.epoch, rng, self.step, self._stepped)
                self.queued.append(loss)
                self.part, self.step = self.part + 1, 0
            self.unread.append(self.queued)
            self.epoch, self.part, self.queued = self.epoch + 1, 0, []
            self.read(left=0 if self.on_cpu else 1)
        self.read()
        return self.losses

    def _stepped(self, steps: int) -> None:
        """Note the steps of this epoch so far; report them a few times a second, but do not make a GPU wait."""
        self.step = steps
        if self.on_cpu and self.pause.over():
            own = self.passes[self.part]
            images = min(steps * own.stage.schedule.batch_size, len(own.indices))
            loss, counted = float(own.program.loss_sum) / images, images if self.counts and not self.part else 0
            epochs = self.main.schedule.epochs
            self.callback.on_batch_end(self.phase, own.stage.name, self.epoch, epochs, loss, counted)
        self.tick()

    def read(self, left: int = 0) -> None:
        """Read, check and report the losses of queued epochs, except for the `left` newest."""
        while len(self.unread) > left:
            means, epoch = [float(loss) for loss in self.unread.pop(0)], len(self.losses[self.main.name])
            for own, mean in zip(self.passes, means, strict=True):
                where = f"phase {self.phase.index}, stage {own.stage.name!r}, epoch {epoch}"
                check_divergence(mean, self.limit, where, own.stage)
                self.losses[own.stage.name].append(mean)
            images, epochs = len(self.passes[0].indices) if self.counts else 0, self.main.schedule.epochs
            self.callback.on_epoch_end(self.phase, self.main.name, epoch, epochs, means[0], images)

    def is_finite(self) -> bool:
        """Tell whether the losses of the epoch under way are finite so far."""
        return all(bool(own.program.loss_sum.isfinite()) for own in self.passes)

    def facts(self) -> dict[str, Any]:
        """Return the position in the stage, and its losses so far."""
        self.read()
        place = {"epoch": self.epoch, "part": self.part, "step": self.step}
        return {**place, "queued": [float(loss) for loss in self.queued], "losses": self.losses}

    def tensors(self) -> dict[str, Tensor]:
        """Return what belongs to the stage: its images, and all that a step changes besides the model."""
        found = {}
        for place, own in enumerate(self.passes):
            found[f"images.{place}"] = own.indices
            # Copies, because AANets' sums of gradients are a buffer of the model, too, and a file holds a tensor once.
            found |= {f"pass.{place}.{n}": tensor.clone() for n, tensor in enumerate(own.program.own_state())}
        return found

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `facts` and `tensors` returned."""
        self.epoch, self.part, self.step = facts["epoch"], facts["part"], facts["step"]
        self.queued, self.losses = list(facts["queued"]), {name: list(own) for name, own in facts["losses"].items()}
        with torch.no_grad():
            for place, own in enumerate(self.passes):
                for n, tensor in enumerate(own.program.own_state()):
                    tensor.copy_(tensors[f"pass.{place}.{n}"])
