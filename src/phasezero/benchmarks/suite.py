"""Side by side in one process: the published way and ours, stage by stage, on random images."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from phasezero.benchmarks import published
from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit, Preparation
from phasezero.engine.device import Device, environment
from phasezero.engine.lanes import enter_lane
from phasezero.engine.passes import StagePass
from phasezero.engine.trainer import Trainer
from phasezero.initial.cwd import class_wise_decorrelation
from phasezero.memory import herd
from phasezero.nets import NETWORKS
from phasezero.presets import build_config
from phasezero.seeding import generator

FORMAT = "phasezero-bench-1"
BATCH = 128
BASE, STEP = 50, 10  # classes of phase 0 and of phase 1
EXEMPLARS = 20  # of each old class
PLAIN_STEP, CWD_STEP = "step of phase 0, without CwD", "step of phase 0, with CwD"


@dataclass(frozen=True)
class Comparison:
    """Seconds for the same piece of work; None where the published way has no such piece."""

    name: str
    published: float | None
    ours: float
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return None if self.published is None else self.published / self.ours


class Suite:
    def __init__(self, config: RunConfig, images_per_class: int, seconds: float) -> None:
        """Each measurement takes about `seconds`."""
        self.config, self.seconds = config, seconds
        self.data = random_images(images_per_class)
        self.device = Device.choose(config.engine, steps=10**9)  # as in a long run
        self.matrix_rate = self._matrix_rate()

    def run(self) -> Iterator[Comparison]:
        yield self.cwd()
        yield self.step(PLAIN_STEP, phase=0, terms=False)
        yield self.step(CWD_STEP, phase=0)
        yield self.step("step of phase 1, with its teacher", phase=1)
        yield self.loading()
        yield self.herding()
        yield self.evaluation()
        if self.device.torch.type == "cuda":
            for count in (2, 3, 4):
                yield self.packed(count)

    def report(self, comparisons: Sequence[Comparison]) -> dict[str, Any]:
        steps = {one.name: one for one in comparisons}
        plain, with_cwd = steps[PLAIN_STEP], steps[CWD_STEP]
        assert plain.published is not None
        assert with_cwd.published is not None
        return {
            "format": FORMAT,
            "network": self.config.network.name,
            "batch_size": BATCH,
            "classes": [BASE, STEP],
            "matrix_tflops": self.matrix_rate / 1e12,
            # What it adds to a step, as a part of the step without it.
            "cost_of_cwd": {
                "published": with_cwd.published / plain.published - 1,
                "ours": with_cwd.ours / plain.ours - 1,
            },
            "comparisons": [{**asdict(one), "ratio": one.ratio} for one in comparisons],
            "environment": environment(self.device),
        }

    # ---- the pieces ---------------------------------------------------------------------------------------

    def cwd(self) -> Comparison:
        """Forward and backward, 128 features of 512 numbers in 50 classes."""
        rng = torch.Generator().manual_seed(0)
        features = torch.randn(BATCH, 512, generator=rng).to(self.device.torch).requires_grad_()
        labels = torch.randint(0, BASE, (BATCH,), generator=rng).to(self.device.torch)
        ways = [published.decorrelation_loop, class_wise_decorrelation]
        theirs, ours = (self._time(lambda way=way: way(features, labels).backward()) for way in ways)  # type: ignore[misc]
        return Comparison("CwD alone, eager", theirs, ours)

    def step(self, name: str, phase: int, *, terms: bool = True) -> Comparison:
        classes = BASE + STEP * phase
        theirs = self._published_step(classes, STEP if phase else classes, eta=0.5 if terms else 0.0)
        self._reset_peak()
        ours = self._time(self._stepper(phase, terms=terms))
        return Comparison(name, theirs, ours, self._throughput(ours, 1, phase))

    def loading(self) -> Comparison:
        """One batch of augmented images, on the device."""
        batches = self._published_batches()
        theirs = self._time(lambda: next(batches)[0].to(self.device.torch))
        one = self._pass(0)
        tickets = itertools.cycle(full_batches(one))
        return Comparison(
            "augmented batch (one worker)", theirs, self._time(lambda: one.source.prepare(next(tickets)))
        )

    def herding(self) -> Comparison:
        """EXEMPLARS for each of 50 classes, from features that are there."""
        per_class = len(self.data.train.labels) // (BASE + STEP)
        rng = torch.Generator().manual_seed(0)
        features = torch.randn(BASE, per_class, 512, generator=rng).to(self.device.torch)
        valid = torch.ones(BASE, per_class, dtype=torch.bool, device=self.device.torch)
        published.herding_loop(features[0, :30], 2)  # whatever the device does first
        clock = time.perf_counter()
        published.herding_loop(features[0], EXEMPLARS)
        theirs = BASE * (time.perf_counter() - clock)  # one class, times their number
        ours = self._time(lambda: herd(features, valid, EXEMPLARS).cpu())
        return Comparison(f"herding {BASE} classes of {per_class}", theirs, ours)

    def evaluation(self) -> Comparison:
        trainer, _ = self._trainer(0)
        indices = torch.cat(trainer.train_by_class[:BASE])
        ours = self._time(lambda: trainer.train_features(indices))
        images = self.data.train.images
        assert isinstance(images, np.ndarray)
        some = images[: 8 * BATCH]
        backbone = NETWORKS[self.config.network.name]().to(self.device.torch)
        part = self._time(lambda: published.feature_loop(backbone, some, BATCH, self.device.torch))
        theirs = part * len(indices) / len(some)  # a part, times their number
        facts = {"images_per_second": len(indices) / ours}
        return Comparison(f"features of {len(indices)} images", theirs, ours, facts)

    def packed(self, count: int) -> Comparison:
        """Steps of several runs at once, each on a lane of its own; the time of one step of all."""
        self._reset_peak()
        runs = [self._stepper(0, number) for number in range(count)]
        ours = self._time(lambda: [run() for run in runs])
        return Comparison(f"{count} runs at once, phase 0", None, ours, self._throughput(ours, count, 0))

    # ---- how ----------------------------------------------------------------------------------------------

    def _published_step(self, classes: int, new: int, eta: float) -> float:
        step = published.PublishedStep(self.config.network.name, classes, new, self.device.torch, eta)
        images, labels = next(self._published_batches())
        return self._time(lambda: step(images, labels % classes))

    def _published_batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        train = self.data.train
        assert isinstance(train.images, np.ndarray)
        return published.batches(train.images, train.labels, BATCH, workers=0)

    def _trainer(self, phase_index: int) -> tuple[Trainer, Any]:
        trainer = Trainer(self.config, self.data)
        trainer.device = self.device
        for phase in trainer.stream.phases[: phase_index + 1]:
            if phase.index:
                trainer.teacher = trainer.model.teacher_copy()
            trainer.method.grow(trainer.model, phase, generator(0, "head", phase.index))
        return trainer, trainer.stream.phases[phase_index]

    def _pass(self, phase_index: int, *, terms: bool = True) -> StagePass:
        trainer, phase = self._trainer(phase_index)
        schedule = trainer.config.training.later if phase_index else trainer.config.training.first
        stage = trainer.method.stages(trainer.model, phase, schedule)[0]
        loss = trainer._with_initial_terms(stage.loss, phase) if terms else stage.loss
        # As many images as in a run: what is compiled goes by their number.
        by_class = trainer.train_by_class
        kept = [indices[:EXEMPLARS] for indices in by_class[: phase.old]]
        return trainer._make_pass(stage, loss, torch.cat([*kept, *by_class[phase.old : phase.seen]]))

    def _stepper(self, phase_index: int, number: int = 0, *, terms: bool = True) -> Callable[[], None]:
        """A function that trains one step, on a lane of its own where there are several."""
        one = self._pass(phase_index, terms=terms)
        tickets = itertools.cycle(full_batches(one))

        def step() -> None:
            if self.device.torch.type == "cuda":
                enter_lane(number, self.device.torch)
            with one._gradients(), self.device.settings():
                one.step(next(tickets))

        one.model.train()
        return step

    def _time(self, work: Callable[[], object]) -> float:
        """Seconds a call, after two that do not count."""
        for _ in range(2):
            work()
        self._wait()
        calls, clock = 0, time.perf_counter()
        while time.perf_counter() - clock < self.seconds or calls < 3:
            for _ in range(max(1, calls // 10)):  # the device is waited for ever more rarely
                work()
                calls += 1
            self._wait()
        return (time.perf_counter() - clock) / calls

    def _wait(self) -> None:
        if self.device.torch.type == "cuda":
            torch.cuda.synchronize(self.device.torch)

    def _reset_peak(self) -> None:
        if self.device.torch.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device.torch)

    def _throughput(self, seconds: float, runs: int, phase: int) -> dict[str, float]:
        flops = runs * self._step_flops(phase) / seconds
        facts = {
            "images_per_second": runs * BATCH / seconds,
            "tflops": flops / 1e12,
            "share_of_matrix_rate": flops / self.matrix_rate,
        }
        if self.device.torch.type == "cuda":
            facts["peak_memory_mib"] = torch.cuda.max_memory_allocated(self.device.torch) / 2**20
        return facts

    @functools.cache  # noqa: B019 (one suite a process)
    def _step_flops(self, phase: int) -> float:
        """Multiplications and additions of the networks' forward and backward passes."""
        trainer, _ = self._trainer(phase)
        images = torch.zeros(2, 3, 32, 32, device=self.device.torch)
        with FlopCounterMode(display=False) as counter:
            trainer.model(images).features.sum().backward()
            if trainer.teacher is not None:
                with torch.no_grad():
                    trainer.teacher(images)
        return float(counter.get_total_flops()) / len(images) * BATCH

    def _matrix_rate(self) -> float:
        """Floating-point operations a second of one large matrix product in the precision of training."""
        on_gpu = self.device.torch.type == "cuda"
        size = 8192 if on_gpu else 1024
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.device.precision, torch.float32)
        matrix = torch.randn(size, size, device=self.device.torch).to(half)
        return 2 * size**3 / self._time(lambda: matrix @ matrix)


def random_images(images_per_class: int) -> ImageData:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(BASE + STEP), images_per_class)
    names = tuple(map(str, range(BASE + STEP)))
    splits = [
        ImageSplit(rng.integers(0, 256, (len(some), 32, 32, 3), dtype=np.uint8), some)
        for some in (labels, labels[::images_per_class].copy())
    ]
    preparation = Preparation((0.5,) * 3, (0.25,) * 3, crop="pad", size=32, padding=4)
    return ImageData("random", names, names, splits[0], splits[1], preparation)


def full_batches(one: StagePass) -> list[tuple[torch.Tensor, ...]]:
    tickets = one.source.train_batches(one.indices, BATCH, torch.Generator().manual_seed(0))
    return [ticket for ticket in tickets if ticket[0].shape[1] == BATCH]


def bench_config(network: str, settings: dict[str, Any]) -> RunConfig:
    config = build_config("lucir", "cifar100", initial=["cwd"], base=BASE, step=STEP)
    return config.override({"network.name": network, "protocol.class_order": "natural", **settings})
