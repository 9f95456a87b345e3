"""The trainer: the only loop. Phases, their stages, the stages' epochs; then memory and evaluation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.loader import ImageSource
from phasezero.data.sources import Photos, choose_photos, make_source
from phasezero.data.stream import ClassStream, Phase, make_stream
from phasezero.engine.device import Device
from phasezero.engine.evaluate import Predictions, evaluate, exemplar_means, pooled_features
from phasezero.engine.lanes import DEVICE_CALM
from phasezero.engine.listener import Listener
from phasezero.engine.outcome import PhaseResult
from phasezero.engine.passes import Reading, StagePass, refuse_collapse, refuse_divergence
from phasezero.engine.workload import images_by_phase
from phasezero.errors import UserError
from phasezero.initial import TERMS, Workshop
from phasezero.memory import ExemplarMemory, MemoryRule
from phasezero.methods import METHODS, Batch, Stage
from phasezero.methods.base import Loss
from phasezero.nets import NETWORKS, IncrementalModel
from phasezero.results.record import Gpu, class_hash
from phasezero.seeding import derive_seed, generator, seeded_globally


def check(config: RunConfig, data: ImageData) -> tuple[ClassStream, Device, Photos | None]:
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
    elif rule.count > (there := int(np.isin(data.train.labels, stream.order).sum())):
        raise UserError(
            f"memory {protocol.memory}: there are only {there} training images; keep at most total:{there}"
        )
    _refuse_network(config)
    for term in config.initial:
        if term.file and not Path(term.file).is_file():
            raise UserError(f"initial {term.name}: there is no file {term.file}")
    device = Device.choose(config.engine, _steps_of_phase_zero(config, data, stream))
    return stream, device, choose_photos(config.engine.photos, data, device.torch)


def _refuse_network(config: RunConfig) -> None:
    name, makers = config.network.name, METHODS[config.method.name].network_makers
    if not isinstance(NETWORKS[name], makers):
        fitting = [one for one in NETWORKS if isinstance(NETWORKS[one], makers)]
        raise UserError(
            f"method {config.method.name!r} does not work with network.name={name}; choose {', '.join(fitting)}"
        )


class Trainer:
    """One run's state between phases: the model, its teacher, the exemplars."""

    def __init__(
        self,
        config: RunConfig,
        data: ImageData,
        listener: Listener | None = None,
        workshop: Workshop | None = None,
    ) -> None:
        self.config = config
        self.data = data
        self.listener = listener
        self.workshop = workshop
        self.stream, self.device, self.photos = check(config, data)
        protocol = config.protocol

        # Labels become positions in the stream; images of classes that never come are never drawn.
        positions = self.stream.positions(len(data.class_ids))
        train_labels = torch.from_numpy(positions[data.train.labels])
        test_labels = torch.from_numpy(positions[data.test.labels])
        self.train_by_class = _indices_by_class(train_labels, len(self.stream.order))
        self.test_by_class = _indices_by_class(test_labels, len(self.stream.order))
        how = data.preparation, self.device.torch, self.photos
        self.train: ImageSource = make_source(data.train, train_labels, *how)
        self.test: ImageSource = make_source(data.test, test_labels, *how)

        self.method = METHODS[config.method.name](config.method)
        self.memory = ExemplarMemory(MemoryRule.parse(protocol.memory), protocol.selection)
        with seeded_globally(derive_seed(config.seed, "network")):
            channels = len(data.preparation.mean)
            backbone = NETWORKS[config.network.name](channels=channels, last_relu=config.network.last_relu)
            model = IncrementalModel(backbone, self.method.make_head(backbone.feature_size))
        model.keep_maps = self.method.needs_maps
        self.model = self.device.place(model)
        self.teacher: IncrementalModel | None = None
        self.phases_done = 0
        self.capture_seconds = 0.0
        self._hashes: list[str] = []

    def images_hash(self, phases: int) -> str:
        """Of the classes of the first phases, in their order, and their images; those to come may still change."""
        for phase in self.stream.phases[len(self._hashes) : phases]:
            classes = self.stream.order[phase.old : phase.seen]
            ids = [self.data.class_ids[index] for index in classes]
            images = [split.fingerprint(classes) for split in (self.data.train, self.data.test)]
            # Exemplars are kept as numbers of images: an image less elsewhere would make them others.
            numbers = [str(own.tolist()) for own in self.train_by_class[phase.old : phase.seen]]
            self._hashes.append(class_hash([*self._hashes[-1:], *ids, *images, *numbers]))
        return self._hashes[phases - 1]

    def restore(self, phases_done: int, model: Mapping[str, Tensor], exemplars: Sequence[Tensor]) -> None:
        """Puts back what a finished phase left: `run` then goes on with the next."""
        for phase in self.stream.phases[:phases_done]:
            self.method.grow(self.model, phase, generator(self.config.seed, "head", phase.index))
        self.model.load_state_dict(model)
        self.memory.by_class = list(exemplars)
        if self.method.needs_teacher:
            self.teacher = self.model.teacher_copy()
        self.phases_done = phases_done

    def run(self) -> Iterator[PhaseResult]:
        """The phases that are left, one result after the other."""
        if self.listener:
            images = images_by_phase(self.config, self.stream, [len(one) for one in self.train_by_class])
            self.listener.started(len(self.stream.phases), sum(images[self.phases_done :]))
        for phase in self.stream.phases[self.phases_done :]:
            with self.device.settings():
                result = self._run_phase(phase)
            if self.listener:
                self.listener.phase(result)
            yield result

    def _run_phase(self, phase: Phase) -> PhaseResult:
        clock, self.capture_seconds = _Clock(self.device), 0.0
        if self.device.torch.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device.torch)
        images = _PhaseView(self, phase)
        with DEVICE_CALM:
            self.method.grow(self.model, phase, generator(self.config.seed, "head", phase.index))
            self.method.begin(self.model, phase, images)
        clock.lap("grow")

        schedule = self.config.training.later if phase.index else self.config.training.first
        losses: dict[str, list[float]] = {}
        train_images = 0
        for stage in self.method.stages(self.model, phase, schedule):
            with DEVICE_CALM:
                indices = stage.images(images)
            if not len(indices):  # a balanced set without exemplars, say
                continue
            train_images = train_images or len(indices)
            losses |= self._run_stage(stage, phase, images, indices, announced=not losses)
            clock.lap(stage.name)

        with DEVICE_CALM:
            one_of_each = torch.stack([own[0] for own in images.new])
            refuse_collapse(self.train_features(one_of_each), f"phase {phase.index}")
            self.memory.by_class = list(self.method.exemplars(images))
            clock.lap("select")
            if self.method.needs_teacher:
                self.teacher = self.model.teacher_copy()
            predictions = self._evaluate(phase)
            clock.lap("evaluate")
        facts = (phase, train_images, predictions, self.memory.counts(), losses, clock.seconds())
        return PhaseResult(*facts, gpu=self._gpu_facts())

    def _gpu_facts(self) -> Gpu | None:
        if self.device.torch.type != "cuda":
            return None
        peak = torch.cuda.max_memory_allocated(self.device.torch)
        return Gpu(peak_memory_mib=peak / 2**20, capture_seconds=self.capture_seconds)

    def _run_stage(
        self, stage: Stage, phase: Phase, images: _PhaseView, indices: Tensor, announced: bool
    ) -> dict[str, list[float]]:
        """The mean loss of each epoch; of a second level within it, too. Images count for what was `announced`."""
        loss = self._with_initial_terms(stage.loss, phase)  # may train an oracle, so not in the device's calm
        with DEVICE_CALM:
            passes = [self._make_pass(stage, loss, indices)]
            if (level := stage.each_epoch) is not None:
                passes.append(self._make_pass(level, level.loss, level.images(images)))
        mean_losses: dict[str, list[float]] = {one.stage.name: [] for one in passes}
        under_way: list[Reading] = []
        for epoch in range(stage.schedule.epochs + 1):
            begun = []
            if epoch < stage.schedule.epochs:
                for one in passes:
                    rng = generator(self.config.seed, "batches", phase.index, one.stage.name, epoch)
                    begun.append(one.epoch(epoch, rng))
            # An epoch's losses are read when the next one's work is on its way: the device never waits.
            if under_way:
                means = [float(loss) for loss in under_way]
                for one, mean in zip(passes, means, strict=True):
                    where = f"phase {phase.index}, stage {one.stage.name!r}, epoch {epoch - 1}"
                    refuse_divergence(mean, self.config.engine.loss_limit, where, one.stage)
                    mean_losses[one.stage.name].append(mean)
                if self.listener:
                    epochs, counted = stage.schedule.epochs, len(indices) if announced else 0
                    self.listener.epoch(phase, stage.name, epoch - 1, epochs, means[0], counted)
            under_way = begun
        for one in passes:
            self.capture_seconds += one.capture_seconds
            one.close()
        return mean_losses

    def _make_pass(self, stage: Stage, loss: Loss, indices: Tensor) -> StagePass:
        brightness = self.config.training.brightness
        return StagePass(stage, loss, self.model, self.teacher, self.train, indices, self.device, brightness)

    def _with_initial_terms(self, loss: Loss, phase: Phase) -> Loss:
        """Phase 0: the method's loss plus each configured term."""
        if phase.index:
            return loss
        terms = [TERMS[options.name](options, phase, self.workshop) for options in self.config.initial]
        # As tensors: a number would be part of the compiled code, and each coefficient would compile anew.
        weighted = [(torch.tensor(term.options.weight, device=self.device.torch), term) for term in terms]

        def total(batch: Batch) -> Tensor:
            return loss(batch) + sum(weight * term(batch) for weight, term in weighted)

        return total if terms else loss

    def _evaluate(self, phase: Phase) -> Predictions:
        counts = self.memory.counts()
        means = exemplar_means(self.train_features(self.memory.indices()), counts) if all(counts) else None
        indices = torch.cat(self.test_by_class[: phase.seen])
        return evaluate(self.model, self.test, indices, self.config.engine.test_batch_size, means)

    def train_features(self, indices: Tensor) -> Tensor:
        return pooled_features(self.model, self.train, indices, self.config.engine.test_batch_size)


def _steps_of_phase_zero(config: RunConfig, data: ImageData, stream: ClassStream) -> int:
    images = int(np.isin(data.train.labels, stream.order[: stream.phases[0].seen]).sum())
    return config.training.first.steps(images)


class _PhaseView:
    """A phase's images, as methods may see them (methods.base.PhaseImages)."""

    def __init__(self, trainer: Trainer, phase: Phase) -> None:
        self.trainer, self.phase = trainer, phase
        self.new: Sequence[Tensor] = trainer.train_by_class[phase.old : phase.seen]
        self.kept: Sequence[Tensor] = list(trainer.memory.by_class)
        self.quota = trainer.memory.rule.quota(phase.seen)

    def all_seen(self) -> Sequence[Tensor]:
        return self.trainer.train_by_class[: self.phase.seen]

    def choose_exemplars(self) -> Sequence[Tensor]:
        return self.trainer.memory.choose(
            self.kept, self.new, self.trainer.train_features, self.generator("exemplars")
        )

    def class_features(self, position: int) -> Tensor:
        return self.trainer.train_features(self.trainer.train_by_class[position])

    def generator(self, purpose: str) -> torch.Generator:
        return generator(self.trainer.config.seed, purpose, self.phase.index)


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
