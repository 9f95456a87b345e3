"""The trainer: the only loop. Phases, their stages, their epochs, their batches; then memory and evaluation."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.loader import ImageSource, make_source
from phasezero.data.stream import ClassStream, Phase, make_stream
from phasezero.engine.device import Device
from phasezero.engine.evaluate import Predictions, evaluate, exemplar_means, pooled_features
from phasezero.engine.step import StepProgram, make_step, only_these_train
from phasezero.errors import UserError
from phasezero.initial import TERMS
from phasezero.memory import ExemplarMemory, MemoryRule
from phasezero.methods import METHODS, Batch, Stage
from phasezero.methods.base import Loss
from phasezero.nets import NETWORKS, IncrementalModel
from phasezero.seeding import derive_seed, generator


class DivergenceError(RuntimeError):
    """Training produced a loss that is not a number, or far beyond reason."""


class Listener(Protocol):
    """Somebody who watches a run (a progress bar, a log)."""

    def started(self, phases: int, total_images: int) -> None:
        """The run begins: so many phases, so many images to train on in all, epochs counted."""

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        """An epoch over so many images has ended."""

    def phase(self, result: PhaseResult) -> None:
        """A phase has been trained and evaluated."""


@dataclass(frozen=True)
class PhaseResult:
    """What a phase left behind: predictions on the test images of all seen classes, and how it went."""

    phase: Phase
    train_images: int
    predictions: Predictions
    memory: list[int]
    """Exemplars kept of each seen class."""
    loss: dict[str, list[float]]
    """The mean loss of each epoch, by stage."""
    seconds: dict[str, float]


def check(config: RunConfig, data: ImageData) -> tuple[ClassStream, Device]:
    """Whether this configuration can run on this data, found out before anything is computed."""
    protocol = config.protocol
    stream = make_stream(
        len(data.class_ids), protocol.class_order, protocol.base, protocol.step, protocol.phase_sizes
    )
    rule = MemoryRule.parse(protocol.memory)
    if rule.kind == "per_class":
        images = np.bincount(data.train.labels, minlength=len(data.class_ids))[list(stream.order)]
        fewest = int(images.argmin())
        if rule.count > images[fewest]:
            raise UserError(
                f"memory {protocol.memory}: class {data.class_names[stream.order[fewest]]!r} has only "
                f"{images[fewest]} training images; keep at most per_class:{images[fewest]}, or use total:M"
            )
    return stream, Device.choose(config.engine)


class Trainer:
    def __init__(self, config: RunConfig, data: ImageData, listener: Listener | None = None) -> None:
        self.config = config
        self.listener = listener
        self.stream, self.device = check(config, data)
        protocol = config.protocol

        # Labels become positions in the stream; images of classes that never come are never drawn.
        positions = self.stream.positions(len(data.class_ids))
        train_labels = torch.from_numpy(positions[data.train.labels])
        test_labels = torch.from_numpy(positions[data.test.labels])
        self.train_by_class = _indices_by_class(train_labels, len(self.stream.order))
        self.test_by_class = _indices_by_class(test_labels, len(self.stream.order))
        self.train: ImageSource = make_source(data.train, train_labels, data.preparation, self.device.torch)
        self.test: ImageSource = make_source(data.test, test_labels, data.preparation, self.device.torch)

        self.method = METHODS[config.method.name](config.method)
        self.memory = ExemplarMemory(MemoryRule.parse(protocol.memory), protocol.selection)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(config.seed, "network"))
            channels = len(data.preparation.mean)
            backbone = NETWORKS[config.network.name](channels=channels, last_relu=config.network.last_relu)
            model = IncrementalModel(backbone, self.method.make_head(backbone.feature_size))
        self.model = self.device.place(model)
        self.teacher: IncrementalModel | None = None

    # ---- the loop -------------------------------------------------------------------------------------

    def run(self) -> list[PhaseResult]:
        if self.listener:
            self.listener.started(len(self.stream.phases), self._total_images())
        results = []
        with self.device.settings():
            for phase in self.stream.phases:
                result = self._run_phase(phase)
                results.append(result)
                if self.listener:
                    self.listener.phase(result)
        return results

    def _run_phase(self, phase: Phase) -> PhaseResult:
        clock = _Clock(self.device)
        seed = self.config.seed
        self.method.grow(self.model, phase, self, generator(seed, "head", phase.index))
        clock.lap("grow")

        new_classes = self.train_by_class[phase.old : phase.seen]
        phase_indices = torch.cat([*new_classes, self.memory.indices()])
        kept = list(self.memory.by_class)
        schedule = self.config.training.later if phase.index else self.config.training.first
        losses = {}
        for stage in self.method.stages(self.model, phase, schedule):
            if stage.data == "exemplars":
                self._select(phase, kept)
            indices = phase_indices if stage.data == "phase" else self.memory.indices()
            losses[stage.name] = self._run_stage(stage, phase, indices)
            clock.lap(stage.name)

        self._select(phase, kept)
        clock.lap("select")
        self.teacher = self.model.teacher_copy()
        predictions = self._evaluate(phase)
        clock.lap("evaluate")
        return PhaseResult(
            phase, len(phase_indices), predictions, self.memory.counts(), losses, clock.seconds()
        )

    def _run_stage(self, stage: Stage, phase: Phase, indices: Tensor) -> list[float]:
        schedule = stage.schedule
        gradients_before = only_these_train(self.model, list(stage.parameters))
        self.model.train(stage.batch_statistics)
        if self.device.engine == "compiled":
            self.model.compile_backbone(schedule.batch_size)
        loss = self._with_initial_terms(stage.loss, phase)
        program = StepProgram(self.model, self.teacher, loss, stage, self.train, self.device.torch)
        step = make_step(program, self.device.engine)
        mean_losses = []
        for epoch in range(schedule.epochs):
            program.learning_rate.fill_(schedule.lr_at(epoch))
            program.loss_sum.zero_()
            rng = generator(self.config.seed, "batches", phase.index, stage.name, epoch)
            for ticket in self.train.train_batches(indices, schedule.batch_size, rng):
                step(ticket)
            mean_loss = float(program.loss_sum) / len(indices)  # the epoch's only wait for the device
            self._refuse_divergence(mean_loss, phase, stage, epoch)
            mean_losses.append(mean_loss)
            if self.listener:
                self.listener.epoch(phase, stage.name, epoch, schedule.epochs, mean_loss, len(indices))
        for parameter, wanted in gradients_before:
            parameter.requires_grad_(wanted)
            parameter.grad = None
        return mean_losses

    def _with_initial_terms(self, loss: Loss, phase: Phase) -> Loss:
        """Phase 0: the method's loss plus each configured term."""
        if phase.index:
            return loss
        terms = [TERMS[options.name](options, phase) for options in self.config.initial]

        def total(batch: Batch) -> Tensor:
            return loss(batch) + sum(term.options.weight * term(batch) for term in terms)

        return total if terms else loss

    def _refuse_divergence(self, loss: float, phase: Phase, stage: Stage, epoch: int) -> None:
        if math.isfinite(loss) and loss <= self.config.engine.loss_limit:
            return
        raise DivergenceError(
            f"training diverged: the mean loss of phase {phase.index}, stage {stage.name!r}, epoch {epoch} is "
            f"{loss:g}; lower the learning rate (training.{'later' if phase.index else 'first'}.lr is "
            f"{stage.schedule.lr:g}) or a term's weight, or try --precision fp32"
        )

    def _total_images(self) -> int:
        """All images that the main stages will train on, for the progress display."""
        total, seen = 0, 0
        for phase in self.stream.phases:
            new = sum(len(indices) for indices in self.train_by_class[phase.old : phase.seen])
            kept = sum(min(self.memory.rule.quota(seen), len(i)) for i in self.train_by_class[:seen])
            schedule = self.config.training.later if phase.index else self.config.training.first
            total += schedule.epochs * (new + kept)
            seen = phase.seen
        return total

    # ---- memory and evaluation ------------------------------------------------------------------------

    def _select(self, phase: Phase, kept: list[Tensor]) -> None:
        """Exemplars of this phase's classes, chosen with the current features; old classes only shrink."""
        self.memory.by_class = list(kept)
        new_classes = self.train_by_class[phase.old : phase.seen]
        rng = generator(self.config.seed, "exemplars", phase.index)
        self.memory.update(new_classes, self._train_features, rng)

    def class_features(self, position: int) -> Tensor:
        return self._train_features(self.train_by_class[position])

    def _train_features(self, indices: Tensor) -> Tensor:
        return pooled_features(self.model, self.train, indices, self.config.engine.test_batch_size)

    def _evaluate(self, phase: Phase) -> Predictions:
        counts = self.memory.counts()
        means = exemplar_means(self._train_features(self.memory.indices()), counts) if all(counts) else None
        indices = torch.cat(self.test_by_class[: phase.seen])
        return evaluate(self.model, self.test, indices, self.config.engine.test_batch_size, means)


class _Clock:
    """Seconds by name, the device's queue emptied at each lap."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.laps: dict[str, float] = {}
        self.start = self.last = time.perf_counter()

    def lap(self, name: str) -> None:
        self.device.synchronize()
        now = time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + now - self.last
        self.last = now

    def seconds(self) -> dict[str, float]:
        return {**self.laps, "total": self.last - self.start}


def _indices_by_class(labels: Tensor, classes: int) -> list[Tensor]:
    order = labels.argsort(stable=True)
    counts = torch.bincount(labels[labels >= 0], minlength=classes).tolist()
    return list(order[int((labels < 0).sum()) :].split(counts))
