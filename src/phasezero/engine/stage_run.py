"""A stage under way: its epochs, the losses of each epoch, and its state between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from phasezero.engine.device import Device
from phasezero.engine.stage import PendingNumber, StagePass, check_divergence

OnEpoch = Callable[[int, float], None]


class StageRun:
    """Run the epochs of a stage and of the stage that follows each of its epochs, if any.

    `tick` is called after each step. Then `facts` and `tensors` describe the state from which `restore` continues.
    """

    def __init__(
        self,
        passes: Sequence[StagePass],
        make_generator: Callable[[str, int], torch.Generator],
        device: Device,
        loss_limit: float,
        where: str,
        tick: Callable[[], None],
        on_epoch: OnEpoch,
    ) -> None:
        self.passes, self.make_generator, self.where = passes, make_generator, where
        self.loss_limit, self.tick, self.on_epoch = loss_limit, tick, on_epoch
        self.epochs = passes[0].stage.schedule.epochs
        self.epoch = self.part = self.step = 0
        self.losses: dict[str, list[float]] = {one.stage.name: [] for one in passes}
        self.queued: list[PendingNumber | float] = []
        """The mean losses of the parts of this epoch that were queued."""
        self.unread: list[list[PendingNumber | float]] = []
        # On a GPU the losses of an epoch are read once the next epoch is queued, so the device never waits.
        self.late = int(device.torch.type == "cuda")

    def run(self) -> dict[str, list[float]]:
        """Train the epochs that are left; return the mean loss of each epoch, by stage."""
        while self.epoch < self.epochs:
            while self.part < len(self.passes):
                own = self.passes[self.part]
                rng = self.make_generator(own.stage.name, self.epoch)
                loss = own.epoch(self.epoch, rng, self.step, self._stepped)
                self.queued.append(loss)
                self.part, self.step = self.part + 1, 0
            self.unread.append(self.queued)
            self.epoch, self.part, self.queued = self.epoch + 1, 0, []
            self.read(self.late)
        self.read()
        return self.losses

    def _stepped(self, done: int) -> None:
        self.step = done
        self.tick()

    def read(self, left: int = 0) -> None:
        """Read and check the losses of queued epochs, except for the `left` newest."""
        while len(self.unread) > left:
            means = [float(loss) for loss in self.unread.pop(0)]
            epoch = len(self.losses[self.passes[0].stage.name])
            for own, mean in zip(self.passes, means, strict=True):
                where = f"{self.where}, stage {own.stage.name!r}, epoch {epoch}"
                check_divergence(mean, self.loss_limit, where, own.stage)
                self.losses[own.stage.name].append(mean)
            self.on_epoch(epoch, means[0])

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
