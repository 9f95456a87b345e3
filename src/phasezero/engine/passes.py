"""A stage at work: its step, its images, one epoch at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.loader import ImageSource, Ticket
from phasezero.engine.device import COMPILATION_PAYS, Device
from phasezero.engine.step import CapturedStep, StepProgram, make_step
from phasezero.methods.base import Loss, Stage
from phasezero.nets import IncrementalModel

# Steps of a stage after which cuDNN's search for algorithms has paid. BiC's fit has 400, of another size each phase.
SEARCH_PAYS = 1_000
COLLAPSED = 1e-3  # largest distance of unit features from their mean; near 1 in a network that has learned


class DivergenceError(RuntimeError):
    """Training produced a loss that is not a number, or far beyond reason, or a network that sees no difference."""


class Reading:
    """A number on its way from the device. Asking for it waits for what it depends on, but not, as float() of a
    tensor would, for all that was queued after it."""

    def __init__(self, value: Tensor) -> None:
        self.value, self.arrival = value, None
        if value.is_cuda:
            self.value = torch.empty((), dtype=value.dtype, pin_memory=True)
            self.value.copy_(value, non_blocking=True)
            self.arrival = torch.cuda.Event(blocking=True)
            self.arrival.record(torch.cuda.current_stream(value.device))

    def __float__(self) -> float:
        if self.arrival is not None:
            self.arrival.synchronize()
        return float(self.value)


class StagePass:
    """One stage, ready to run epochs. `loss` is the stage's own with whatever the phase adds to it."""

    def __init__(
        self,
        stage: Stage,
        loss: Loss,
        model: IncrementalModel,
        teacher: IncrementalModel | None,
        source: ImageSource,
        indices: Tensor,
        device: Device,
        brightness: float = 0.0,
    ) -> None:
        self.stage, self.model, self.source, self.indices = stage, model, source, indices
        self.brightness = brightness
        watched = teacher if stage.needs_teacher else None
        self.program = StepProgram(model, watched, loss, stage, source, device.torch)
        self.step = make_step(self.program, device.engine)
        steps = stage.schedule.steps(len(indices))
        if steps >= SEARCH_PAYS:  # for whole batches: an epoch has one smaller last one
            self.program.searched_size = stage.schedule.batch_size
        if device.engine == "compiled":
            self.compile_networks(watched)
            # The loss is another one in each phase, so only a long stage has it compiled.
            if steps >= COMPILATION_PAYS:
                self.program.compile_judge(stage.schedule.batch_size)

    def compile_networks(self, teacher: IncrementalModel | None) -> None:
        """For this stage's batch size; but a stage that leaves the network still is short, and its size may be
        another in each phase."""
        if not self.stage.batch_statistics:
            return
        for one in (self.model, teacher):
            if one is not None:
                one.compiled_sizes.add(self.stage.schedule.batch_size)

    def epoch(self, epoch: int, rng: torch.Generator) -> Reading:
        """Trains one epoch (on a GPU: has it begun); the mean loss over its images."""
        self.model.train(self.stage.batch_statistics)
        self.program.learning_rate.fill_(self.stage.schedule.lr_at(epoch))
        self.program.loss_sum.zero_()
        with self._gradients():
            for ticket in self._batches(rng):
                self.step(ticket)
        return Reading(self.program.loss_sum / len(self.indices))

    def _batches(self, rng: torch.Generator) -> Iterator[Ticket]:
        batch_size = self.stage.schedule.batch_size
        if self.stage.augment:
            return self.source.train_batches(self.indices, batch_size, rng, self.brightness)
        shuffled = self.indices[torch.randperm(len(self.indices), generator=rng)]
        return self.source.test_batches(shuffled, batch_size)

    @contextmanager
    def _gradients(self) -> Iterator[None]:
        """Gradients for the stage's parameters alone, for as long as it runs."""
        wanted = {id(parameter) for parameter in (*self.stage.parameters, *self.stage.accumulate)}
        before = [(parameter, parameter.requires_grad) for parameter in self.model.parameters()]
        for parameter, _ in before:
            parameter.requires_grad_(id(parameter) in wanted)
        try:
            yield
        finally:
            for parameter, needed in before:
                parameter.requires_grad_(needed)

    @property
    def capture_seconds(self) -> float:
        return self.step.capture_seconds if isinstance(self.step, CapturedStep) else 0.0

    def close(self) -> None:
        """Lets go of the gradients, but for those that go on accumulating."""
        for parameter in self.program.fresh:
            parameter.grad = None


def refuse_divergence(loss: float, limit: float, where: str, stage: Stage) -> None:
    if math.isfinite(loss) and loss <= limit:
        return
    raise DivergenceError(
        f"training diverged: the mean loss of {where} is {loss:g}; lower the learning rate "
        f"(it is {stage.schedule.lr:g}) or a term's weight, or try --precision fp32"
    )


def refuse_collapse(features: Tensor, where: str) -> None:
    """Of images of different classes. Equal features have no correlation, so a heavy CwD can lead there; and the last
    step of all may break a network whose losses, each of them taken before a step, were sound."""
    if not features.isfinite().all():
        raise DivergenceError(
            f"training diverged: after {where} the features are not finite numbers; lower the learning rate or a "
            "term's weight, or try --precision fp32"
        )
    unit = F.normalize(features, dim=1)
    if len(unit) > 1 and float(torch.linalg.vector_norm(unit - unit.mean(0), dim=1).max()) < COLLAPSED:
        raise DivergenceError(
            f"training collapsed: after {where} all images have the same features; lower the weight of the "
            "phase-0 terms or the learning rate"
        )
