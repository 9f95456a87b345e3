"""Run a stage, epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.images import View
from phasezero.data.loader import BatchPlan, ImageSource
from phasezero.engine.device import COMPILATION_PAYS, Device
from phasezero.engine.step import CapturedStep, StepProgram
from phasezero.errors import DivergenceError
from phasezero.initial import Strategies
from phasezero.methods.stage import Stage
from phasezero.nets import IncrementalModel
from phasezero.nets.model import compiled

# Steps of a stage after which cuDNN's search pays off. BiC's fit has 400, with another batch size in each phase.
SEARCH_PAYS = 1_000
COLLAPSED = 1e-3  # largest distance of unit features from their mean; near 1 in a network that has learned


class PendingNumber:
    """A number that is being copied from the device. Unlike float(tensor), reading it does not wait for later work."""

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
    """A stage that is ready to run epochs, with the phase-0 strategies that apply to it."""

    def __init__(
        self,
        stage: Stage,
        model: IncrementalModel,
        teacher: IncrementalModel | None,
        source: ImageSource,
        indices: Tensor,
        device: Device,
        view: View,
        strategies: Strategies | None = None,
    ) -> None:
        self.strategies = strategies
        stage = replace(stage, schedule=stage.schedule.for_images(len(indices)))
        if strategies is not None:
            parameters = [*stage.parameters, *strategies.parameters]
            stage = replace(stage, loss=strategies.around(stage.loss), parameters=parameters)
        self.stage, self.model, self.source, self.indices, self.view = stage, model, source, indices, view
        watched = teacher if stage.needs_teacher else None
        self.program = StepProgram(model, watched, stage, source, device.torch, strategies)
        self.step = self.program.run if device.engine == "eager" else CapturedStep(self.program)
        size, steps = stage.schedule.batch_size, stage.schedule.steps(len(indices))
        if steps >= SEARCH_PAYS:  # for full batches: only the last batch of an epoch is smaller
            self.program.searched_size = size
        if device.engine == "compiled":
            # A stage that does not train the network is short, and its batch size may change from phase to phase.
            for network in (model, watched) if stage.batch_statistics else ():
                if network is not None:
                    network.compiled_sizes.add(size * (strategies.copies if strategies is not None else 1))
            # The loss changes from phase to phase, so it is compiled only for a long stage.
            if steps >= COMPILATION_PAYS:
                self.program.compiled_loss, self.program.compiled_size = compiled(self.program.compute_loss), size

    def epoch(
        self, epoch: int, rng: torch.Generator, first: int = 0, watch: Callable[[int], None] = lambda _: None
    ) -> PendingNumber:
        """Train one epoch (on a GPU: queue it) and return the mean loss over its images.

        `first` counts the steps that were trained before a stop. `watch` is called with the steps done after each.
        """
        self.model.train(self.stage.batch_statistics)
        self.program.set_learning_rate(self.stage.schedule.lr_at(epoch))
        if not first:
            self.program.loss_sum.zero_()
        with self.gradients():
            for done, plan in enumerate(self.batches(rng, first), first + 1):
                self.step(plan)
                watch(done)
        return PendingNumber(self.program.loss_sum / len(self.indices))

    def batches(self, rng: torch.Generator, first: int = 0) -> Iterator[BatchPlan]:
        """Yield the batch plans of an epoch from the `first` on; the random numbers of strategies come last."""
        batch_size, count = self.stage.schedule.batch_size, len(self.indices)
        if self.stage.augment:
            plans = self.source.train_batches(self.indices, batch_size, rng, self.view, first)
        else:
            plans = self.source.test_batches(self.indices[torch.randperm(count, generator=rng)], batch_size, first)
        if self.strategies is None:
            return plans
        numbers = self.source.slices(batch_size, self.strategies.draw(count, rng), first=first)
        return ((*plan, *own) for plan, own in zip(plans, numbers, strict=True))

    @contextmanager
    def gradients(self) -> Iterator[None]:
        """Enable gradients only for the stage's parameters, while it runs."""
        wanted = {id(parameter) for parameter in (*self.stage.parameters, *self.stage.accumulate)}
        before = [(parameter, parameter.requires_grad) for parameter in self.model.parameters()]
        for parameter, _ in before:
            parameter.requires_grad_(id(parameter) in wanted)
        try:
            yield
        finally:
            for parameter, needed in before:
                parameter.requires_grad_(needed)

    def close(self) -> None:
        """Free the gradients, except those that continue to accumulate."""
        for parameter in self.program.fresh:
            parameter.grad = None


def check_divergence(loss: float, limit: float, where: str, stage: Stage) -> None:
    """Raise DivergenceError for a mean loss that is not a number, or beyond the limit."""
    if not (math.isfinite(loss) and loss <= limit):
        raise DivergenceError(
            f"training diverged: the mean loss of {where} is {loss:g}; lower the learning rate "
            f"(it is {stage.schedule.lr:g}) or a term's weight, or try --precision fp32"
        )


def check_collapse(features: Tensor, where: str) -> None:
    """Raise DivergenceError if images of different classes have equal features, or features are not finite.

    A large CwD weight can cause this (equal features have no correlation), and so can the last step, unseen by a loss.
    """
    if not features.isfinite().all():
        raise DivergenceError(
            f"training diverged: after {where} the features are not finite numbers; lower the learning rate or a "
            "term's weight, or try --precision fp32"
        )
    unit = F.normalize(features, dim=1)
    if len(unit) > 1 and float(torch.linalg.vector_norm(unit - unit.mean(0), dim=1).max()) < COLLAPSED:
        raise DivergenceError(
            f"training collapsed: after {where} all images have the same features; lower the weight of the "
            "phase-0 strategies or the learning rate"
        )
