"""The trainer: the only training loop, over phases, stages and epochs, followed by memory and evaluation."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit
from phasezero.data.loader import ImageSource
from phasezero.data.sources import make_source
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import Activity, Callback, PhaseResult
from phasezero.engine.device import Device
from phasezero.engine.evaluate import Predictions, exemplar_means, pooled_features, predict, predict_from_features
from phasezero.engine.setup import Setup, check, prepared_for
from phasezero.engine.stage import PendingNumber, StagePass, check_collapse, check_divergence
from phasezero.engine.streams import CAPTURE_LOCK
from phasezero.errors import UserError
from phasezero.initial import STRATEGIES, OracleProvider, Strategies
from phasezero.memory import ExemplarMemory, MemoryRule
from phasezero.methods import METHODS, Method, Stage
from phasezero.nets import NETWORKS, Backbone, IncrementalModel, Pretrained, load_backbone
from phasezero.records.metrics import confusion_matrix
from phasezero.records.run import PhaseRecord, class_hash, phase_record
from phasezero.seeding import derive_seed, generator, seeded_globally


class Trainer:
    """Train a run phase by phase; hold its model, its teacher and its exemplars in between."""

    def __init__(
        self,
        config: RunConfig,
        data: ImageData,
        callback: Callback | None = None,
        provider: OracleProvider | None = None,
        setup: Setup | None = None,
        pretrained: Pretrained | None = None,
    ) -> None:
        """Prepare a run; `setup` is the result of `check` on this configuration and data, if available.

        `pretrained` is a loaded backbone. Without it the configuration says which weights to load, if any.
        """
        if pretrained is None and config.network.weights:
            pretrained = load_backbone(config.network.weights).for_size(config.network.image_size)
        self.config, self.pretrained = config, pretrained
        self.data = data = data if pretrained is None else prepared_for(data, pretrained)
        self.callback, self.provider = callback or Callback(), provider
        self.setup = setup or check(config, data)
        self.stream, self.device = self.setup.stream, self.setup.device
        self.view = replace(data.preparation.view, brightness=config.training.brightness)
        self.train, self.train_by_class = self._make_source(data.train)
        self.test, self.test_by_class = self._make_source(data.test)
        self.activity = Activity(self.callback)
        self.train.watch = self.test.watch = self.activity.add

        self.method = METHODS[config.method.name](config.method)
        self.memory = ExemplarMemory(MemoryRule.parse(config.protocol.memory), config.protocol.selection)
        backbone = pretrained.network if pretrained is not None else None
        self.model = self.device.place(build_model(config, self.method, len(data.preparation.mean), backbone))
        self.teacher: IncrementalModel | None = None
        self.phases_done, self.capture_seconds = 0, 0.0
        self._hashes: list[str] = []
        self._frozen_features: list[Tensor] = []

    def _make_source(self, split: ImageSplit) -> tuple[ImageSource, list[Tensor]]:
        """Return the source of a split's batches, and the images of each class of the stream, as indices."""
        labels = torch.from_numpy(self.stream.positions(len(self.data.class_ids))[split.labels])
        source = make_source(split, labels, self.data.preparation, self.device.torch, self.setup.photos)
        by_class = labels.argsort(stable=True)[int((labels < 0).sum()) :]
        counts = torch.bincount(labels[labels >= 0], minlength=len(self.stream.order)).tolist()
        return source, list(by_class.split(counts))

    def contents(self, classes: Sequence[int]) -> list[str]:
        """Return the ids of classes and the hashes of their training and test images."""
        images = [split.fingerprint(classes) for split in (self.data.train, self.data.test)]
        return [*(self.data.class_ids[index] for index in classes), *images]

    def images_hash(self, phases: int) -> str:
        """Return a hash of the classes of the first phases and their images; later classes may still change."""
        for phase in self.stream.phases[len(self._hashes) : phases]:
            # Exemplars are indices: a missing image elsewhere would shift them.
            numbers = [str(own.tolist()) for own in self.train_by_class[phase.old : phase.seen]]
            contents = self.contents(self.stream.order[phase.old : phase.seen])
            self._hashes.append(class_hash([*self._hashes[-1:], *contents, *numbers]))
        return self._hashes[phases - 1]

    def grow(self, phase: Phase) -> None:
        """Extend the model by the phase's classes."""
        self.method.grow(self.model, phase, generator(self.config.seed, "head", phase.index))

    def restore(self, phases_done: int, model: Mapping[str, Tensor], exemplars: Sequence[Tensor]) -> None:
        """Restore the state after a finished phase; `run` then continues with the next phase."""
        for phase in self.stream.phases[:phases_done]:
            self.grow(phase)
        self.model.load_state_dict(model)
        self.continue_from(phases_done, self.model, exemplars)

    def continue_from(self, phases_done: int, model: IncrementalModel, exemplars: Sequence[Tensor]) -> None:
        """Continue with the model and the exemplars of finished phases."""
        self.model, self.memory.by_class = model, list(exemplars)
        if self.method.needs_teacher:
            self.teacher = self.model.teacher_copy()
        self.phases_done = phases_done

    def run(self) -> Iterator[PhaseResult]:
        """Train the phases that are left and yield the result of each."""
        self.callback.on_run_start(len(self.stream.phases), sum(self.setup.images[self.phases_done :]))
        for phase in self.stream.phases[self.phases_done :]:
            with self.device.settings():
                result = self._run_phase(phase)
            self.phases_done = phase.index + 1
            self.callback.on_phase_end(result)
            yield result

    def _run_phase(self, phase: Phase) -> PhaseResult:
        return self._evaluate(phase, self.train_phase(phase))

    def train_phase(self, phase: Phase) -> PhaseTraining:
        """Train a phase and choose its exemplars, without a test."""
        clock, self.capture_seconds = _Clock(self.device), 0.0
        if self.device.torch.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device.torch)
        images = _PhaseImages(self, phase)
        with CAPTURE_LOCK:
            self.grow(phase)
            self.method.begin(self.model, phase, images)
        clock.lap("grow")

        schedule = self.config.training.later if phase.index else self.config.training.first
        losses: dict[str, list[float]] = {}
        train_images = 0
        strategies = self.strategies(phase)  # without the lock, because it may train an oracle
        for stage in self.method.stages(self.model, phase, schedule):
            with CAPTURE_LOCK:
                indices = stage.images(images)
            if not len(indices):  # such as a balanced set without exemplars
                continue
            train_images = train_images or len(indices)
            losses |= self._run_stage(stage, phase, images, indices, strategies, is_main=not losses)
            clock.lap(stage.name)
        clock.laps.setdefault("train", 0.0)  # a frozen backbone
        self._finish_phase(phase, images)
        clock.lap("select")
        return PhaseTraining(clock, losses, train_images or sum(map(len, images.new)))

    def reuse_phase_zero(self, trained: Mapping[str, Tensor], record: PhaseRecord) -> PhaseResult:
        """Continue from another run's trained phase 0: choose exemplars and evaluate, as after training."""
        phase, clock = self.stream.phases[0], _Clock(self.device)
        clock.laps = {name: record["seconds"].get(name, 0.0) for name in ("grow", *record["loss"])}
        images = _PhaseImages(self, phase)
        with self.device.settings():
            self.grow(phase)
            self.method.begin(self.model, phase, images)
            load_trained(self.model, trained)
            self._finish_phase(phase, images)
            clock.lap("select")
            result = self._evaluate(phase, PhaseTraining(clock, record["loss"], record["train_images"]))
        self.phases_done = 1
        return result

    def _finish_phase(self, phase: Phase, images: _PhaseImages) -> None:
        """Choose the exemplars of a phase whose stages are trained, and copy the teacher of the next phase."""
        with CAPTURE_LOCK:
            one_of_each = torch.stack([own[0] for own in images.new])
            check_collapse(self.train_features(one_of_each), f"phase {phase.index}")
            self.method.finish(self.model, phase, images)
            self.memory.by_class = list(self.method.exemplars(images))
            if self.method.needs_teacher:
                self.teacher = self.model.teacher_copy()

    def _evaluate(self, phase: Phase, training: PhaseTraining) -> PhaseResult:
        """Test the model and build the result of a phase."""
        clock = training.clock
        self.activity.begin(phase, "test")
        with CAPTURE_LOCK:
            truth, by = predictions = self._test(phase)
            clock.lap("evaluate")
        self.activity.end()
        record = phase_record(
            phase_sizes=self.stream.sizes[: phase.index + 1],
            confusions={name: confusion_matrix(truth, found, phase.seen) for name, found in by.items()},
            train_images=training.images,
            memory_per_class=self.memory.counts(),
            loss=training.losses,
            seconds={**clock.laps, "total": sum(clock.laps.values())},
        )
        if self.model.head.statistics:
            kept = [getattr(self.model.head, name) for name in self.model.head.statistics]
            record["statistics"] = {
                "numbers": sum(tensor.numel() for tensor in kept),
                "bytes": sum(tensor.numel() * tensor.element_size() for tensor in kept),
            }
        if self.device.torch.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device.torch)
            record["gpu"] = {"peak_memory_mib": peak / 2**20, "capture_seconds": self.capture_seconds}
        return PhaseResult(phase, predictions, record)

    def _run_stage(
        self,
        stage: Stage,
        phase: Phase,
        images: _PhaseImages,
        indices: Tensor,
        strategies: Strategies | None,
        is_main: bool,
    ) -> dict[str, list[float]]:
        """Train the stages; return the mean loss of each epoch, by stage. Only images of the main stage are counted."""
        with CAPTURE_LOCK:
            passes = [self.make_pass(stage, indices, strategies)]
            if (level := stage.each_epoch) is not None:
                passes.append(self.make_pass(level, level.images(images)))
        mean_losses: dict[str, list[float]] = {stage_pass.stage.name: [] for stage_pass in passes}
        epochs, images_counted = stage.schedule.epochs, len(indices) if is_main else 0
        on_cpu = self.device.torch.type == "cpu"

        def start(epoch: int) -> list[PendingNumber]:
            return [run_epoch(stage_pass, epoch) for stage_pass in passes]

        def run_epoch(stage_pass: StagePass, epoch: int) -> PendingNumber:
            name, counts = stage_pass.stage.name, is_main and stage_pass is passes[0]

            def report(loss: float, images: int) -> None:
                self.callback.on_batch_end(phase, name, epoch, epochs, loss, images if counts else 0)

            rng = generator(self.config.seed, "batches", phase.index, name, epoch)
            return stage_pass.epoch(epoch, rng, report if on_cpu else None)

        self.activity.end()
        # A GPU never waits: there the losses of an epoch are read once the next epoch is queued.
        started, ahead = deque[list[PendingNumber]](), 0 if on_cpu else 1
        for epoch in range(epochs):
            for following in range(epoch + len(started), min(epoch + ahead + 1, epochs)):
                started.append(start(following))
            means = [float(loss) for loss in started.popleft()]
            for stage_pass, mean in zip(passes, means, strict=True):
                where = f"phase {phase.index}, stage {stage_pass.stage.name!r}, epoch {epoch}"
                check_divergence(mean, self.config.engine.loss_limit, where, stage_pass.stage)
                mean_losses[stage_pass.stage.name].append(mean)
            self.callback.on_epoch_end(phase, stage.name, epoch, epochs, means[0], images_counted)
        for stage_pass in passes:
            self.capture_seconds += stage_pass.program.capture_seconds
            stage_pass.close()
        return mean_losses

    def make_pass(self, stage: Stage, indices: Tensor, strategies: Strategies | None = None) -> StagePass:
        """Return the stage, ready to run on these images."""
        return StagePass(stage, self.model, self.teacher, self.train, indices, self.device, self.view, strategies)

    def strategies(self, phase: Phase) -> Strategies | None:
        """Return the configured phase-0 strategies; None in later phases."""
        if phase.index or not self.config.initial:
            return None
        parts = [STRATEGIES[options.name](options, phase, self.provider) for options in self.config.initial]
        rng = generator(self.config.seed, "strategies", phase.index)
        return Strategies(parts, self.model.head.feature_size, rng, self.device.torch)

    def predict(self, source: ImageSource, indices: Tensor) -> Predictions:
        """Classify images of a source by every classifier of the run."""
        return predict(self.model, source, indices, self.config.engine.test_batch_size, self._exemplar_means())

    def _exemplar_means(self) -> Tensor | None:
        counts = self.memory.counts()
        return exemplar_means(self.train_features(self.memory.indices()), counts) if all(counts) else None

    def _test(self, phase: Phase) -> Predictions:
        """Classify the test images of all classes seen. A frozen backbone sees each image once."""
        indices = torch.cat(self.test_by_class[: phase.seen])
        if self.method.trains_later:
            return self.predict(self.test, indices)
        for earlier in self.stream.phases[len(self._frozen_features) : phase.index + 1]:
            own = torch.cat(self.test_by_class[earlier.old : earlier.seen])
            size = self.config.engine.test_batch_size
            self._frozen_features.append(pooled_features(self.model, self.test, own, size))
        features = torch.cat(self._frozen_features)
        return predict_from_features(self.model, self.test, indices, features, self._exemplar_means())

    def train_features(self, indices: Tensor) -> Tensor:
        """Return features [n, d] of training images."""
        return pooled_features(self.model, self.train, indices, self.config.engine.test_batch_size)


def build_model(config: RunConfig, method: Method, channels: int, backbone: Backbone | None = None) -> IncrementalModel:
    """Return the model of a configuration, without classes; a given backbone keeps its weights."""
    with seeded_globally(derive_seed(config.seed, "network")):
        network = config.network
        backbone = backbone or NETWORKS[network.name](channels=channels, last_relu=network.last_relu)
        model = IncrementalModel(backbone, method.make_head(backbone.feature_size))
    model.set_backbone_lr(config.network.backbone_lr)
    model.keep_maps = method.needs_maps
    return model


def trained_state(model: IncrementalModel) -> dict[str, Tensor]:
    """Return the state of a model as training leaves it, without statistics that are computed afterwards."""
    computed = {f"head.{name}" for name in model.head.statistics}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in computed}


def load_trained(model: IncrementalModel, state: Mapping[str, Tensor]) -> None:
    """Load what `trained_state` returned, of this method or of another with the same phase 0."""
    if state.keys() != trained_state(model).keys():
        raise UserError("the stored phase 0 has other tensors than this model; remove it from the store")
    model.load_state_dict(state, strict=False)


@dataclass(frozen=True)
class PhaseTraining:
    """The training of a phase: its clock, the mean loss of each epoch by stage, and the number of images."""

    clock: _Clock
    losses: dict[str, list[float]]
    images: int


class _PhaseImages:
    """The images of a phase as methods see them (methods.stage.PhaseImages)."""

    def __init__(self, trainer: Trainer, phase: Phase) -> None:
        self.trainer, self.phase = trainer, phase
        self.new: Sequence[Tensor] = trainer.train_by_class[phase.old : phase.seen]
        self.kept: Sequence[Tensor] = list(trainer.memory.by_class)
        self.quota = trainer.memory.rule.quota(phase.seen)

    def all_seen(self) -> Sequence[Tensor]:
        return self.trainer.train_by_class[: self.phase.seen]

    def choose_exemplars(self) -> Sequence[Tensor]:
        if self.quota:
            self.trainer.activity.begin(self.phase, "exemplars")
        return self.trainer.memory.choose(self.kept, self.new, self.trainer.train_features, self.generator("exemplars"))

    def class_features(self, position: int) -> Tensor:
        self.trainer.activity.begin(self.phase, "features")
        return self.trainer.train_features(self.trainer.train_by_class[position])

    def generator(self, purpose: str) -> torch.Generator:
        return generator(self.trainer.config.seed, purpose, self.phase.index)


class _Clock:
    """Measure seconds by name; each lap waits for the device."""

    def __init__(self, device: Device) -> None:
        self.device, self.last = device, time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        self.device.synchronize()
        before, self.last = self.last, time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + self.last - before
