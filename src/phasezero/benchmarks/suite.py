"""Time the published implementation and ours side by side in one process, on random images."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from phasezero.benchmarks import published
from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit, Preparation, View
from phasezero.data.loader import BatchPlan
from phasezero.engine.device import Device, environment
from phasezero.engine.setup import check
from phasezero.engine.stage import StagePass
from phasezero.engine.streams import use_streams
from phasezero.engine.trainer import Trainer
from phasezero.initial.cwd import class_wise_decorrelation
from phasezero.memory import herd
from phasezero.nets import NETWORKS
from phasezero.presets import build_config

FORMAT = "phasezero-bench-1"
BATCH = 128
BASE, STEP = 50, 10  # classes of phase 0 and of phase 1
EXEMPLARS = 20  # of each old class
PLAIN_STEP, CWD_STEP = "step of phase 0, without CwD", "step of phase 0, with CwD"


@dataclass(frozen=True)
class Comparison:
    """Hold the seconds of both implementations for the same work; None if the published code has no such work."""

    name: str
    published: float | None
    ours: float
    facts: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return None if self.published is None else self.published / self.ours


class Suite:
    """Time the published implementation and ours. Each measurement takes about `seconds`."""

    def __init__(self, config: RunConfig, images_per_class: int, seconds: float) -> None:
        self.config, self.seconds = config, seconds
        self.data = random_images(images_per_class)
        self.device = Device.choose(config.engine, steps=10**9)  # as in a long run
        self.place, self.on_gpu = self.device.torch, self.device.torch.type == "cuda"
        # The rate of a large matrix product in the precision of training, in operations per second.
        half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.device.precision, torch.float32)
        matrix = torch.randn(*[8192 if self.on_gpu else 1024] * 2, device=self.place).to(half)
        self.matrix_rate = 2 * len(matrix) ** 3 / self._time(lambda: matrix @ matrix)

    def run(self) -> Iterator[Comparison]:
        yield self.cwd()
        yield self.step(PLAIN_STEP, phase=0, terms=False)
        yield self.step(CWD_STEP, phase=0)
        yield self.step("step of phase 1, with its teacher", phase=1)
        yield self.loading()
        yield self.herding()
        yield self.evaluation()
        for count in (2, 3, 4) if self.on_gpu else ():
            yield self.packed(count)

    def report(self, comparisons: Sequence[Comparison]) -> dict[str, Any]:
        steps = {result.name: result for result in comparisons}
        plain, with_cwd = steps[PLAIN_STEP], steps[CWD_STEP]
        # What CwD adds to a step, as a part of the step without it.
        cost = {way: getattr(with_cwd, way) / getattr(plain, way) - 1 for way in ("published", "ours")}
        return {
            "format": FORMAT,
            "network": self.config.network.name,
            "batch_size": BATCH,
            "classes": [BASE, STEP],
            "matrix_tflops": self.matrix_rate / 1e12,
            "cost_of_cwd": cost,
            "comparisons": [{**asdict(result), "ratio": result.ratio} for result in comparisons],
            "environment": environment(self.device),
        }

    def cwd(self) -> Comparison:
        """Compare forward and backward passes over 128 features of 512 numbers in 50 classes."""
        rng = torch.Generator().manual_seed(0)
        features = torch.randn(BATCH, 512, generator=rng).to(self.place).requires_grad_()
        labels = torch.randint(0, BASE, (BATCH,), generator=rng).to(self.place)
        ways = [published.decorrelation_loop, class_wise_decorrelation]
        theirs, ours = (self._time(lambda way=way: way(features, labels).backward()) for way in ways)  # type: ignore[misc]
        return Comparison("CwD alone, eager", theirs, ours)

    def step(self, name: str, phase: int, *, terms: bool = True) -> Comparison:
        """Compare training steps, without the time to load images."""
        classes, new = BASE + STEP * phase, STEP if phase else BASE
        eta = 0.5 if terms else 0.0
        step = published.PublishedStep(self.config.network.name, classes, new, self.place, eta)
        images, labels = next(self._published_batches())
        theirs = self._time(lambda: step(images, labels % classes))
        self._reset_peak()
        ours = self._time(self.stepper(phase, terms=terms))
        return Comparison(name, theirs, ours, self._throughput(ours, 1, phase))

    def loading(self) -> Comparison:
        """Compare the time for a batch of augmented images, on the device."""
        batches = self._published_batches()
        theirs = self._time(lambda: next(batches)[0].to(self.place))
        stage = self.make_pass(0)
        plans = full_batches(stage)
        return Comparison("augmented batch (one worker)", theirs, self._time(lambda: stage.source.prepare(next(plans))))

    def herding(self) -> Comparison:
        """Compare the choice of EXEMPLARS for each of 50 classes, from given features."""
        per_class = len(self.data.train) // (BASE + STEP)
        features = torch.randn(BASE, per_class, 512, generator=torch.Generator().manual_seed(0)).to(self.place)
        valid = torch.ones(BASE, per_class, dtype=torch.bool, device=self.place)
        published.herding_loop(features[0, :30], 2)  # warm-up
        clock = time.perf_counter()
        published.herding_loop(features[0], EXEMPLARS)
        theirs = BASE * (time.perf_counter() - clock)  # measured on one class
        ours = self._time(lambda: herd(features, valid, EXEMPLARS).cpu())
        return Comparison(f"herding {BASE} classes of {per_class}", theirs, ours)

    def evaluation(self) -> Comparison:
        """Compare the time for the features of all images of phase 0."""
        trainer = self.make_trainer(0)
        indices = torch.cat(trainer.train_by_class[:BASE])
        ours = self._time(lambda: trainer.train_features(indices))
        some = np.asarray(self.data.train.images)[: 8 * BATCH]
        backbone = NETWORKS[self.config.network.name]().to(self.place)
        part = self._time(lambda: published.feature_loop(backbone, some, BATCH, self.place))
        theirs = part * len(indices) / len(some)  # measured on a part
        facts = {"images_per_second": len(indices) / ours}
        return Comparison(f"features of {len(indices)} images", theirs, ours, facts)

    def packed(self, count: int) -> Comparison:
        """Measure the time in which several parallel runs, each on its own streams, train a step each."""
        self._reset_peak()
        runs = [self.stepper(0, number) for number in range(count)]
        ours = self._time(lambda: [run() for run in runs])
        return Comparison(f"{count} runs at once, phase 0", None, ours, self._throughput(ours, count, 0))

    def _published_batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return published.batches(np.asarray(self.data.train.images), self.data.train.labels, BATCH)

    def make_trainer(self, phase: int) -> Trainer:
        """Return a trainer that is about to train a phase."""
        setup = replace(check(self.config, self.data), device=self.device)
        trainer = Trainer(self.config, self.data, setup=setup)
        for each in trainer.stream.phases[: phase + 1]:
            if each.index:
                trainer.teacher = trainer.model.teacher_copy()
            trainer.grow(each)
        return trainer

    def make_pass(self, phase: int, *, terms: bool = True) -> StagePass:
        """Return the main stage of a phase, with as many images as in a run: what is compiled depends on them."""
        trainer = self.make_trainer(phase)
        current, by_class = trainer.stream.phases[phase], trainer.train_by_class
        schedule = self.config.training.later if phase else self.config.training.first
        stage = trainer.method.stages(trainer.model, current, schedule)[0]
        strategies = trainer.strategies(current) if terms else None
        kept = [indices[:EXEMPLARS] for indices in by_class[: current.old]]
        return trainer.make_pass(stage, torch.cat([*kept, *by_class[current.old : current.seen]]), strategies)

    def stepper(self, phase: int, number: int = 0, *, terms: bool = True) -> Callable[[], None]:
        """Return a function that trains one step, on the streams of that number."""
        stage = self.make_pass(phase, terms=terms)
        plans = full_batches(stage)
        stage.model.train()

        def step() -> None:
            if self.on_gpu:
                use_streams(number, self.place)
            with stage.gradients(), self.device.settings():
                stage.step(next(plans))

        return step

    def _time(self, work: Callable[[], object]) -> float:
        """Return the seconds of a call, after two warm-up calls."""
        for _ in range(2):
            work()
        self._wait()
        calls, clock = 0, time.perf_counter()
        while time.perf_counter() - clock < self.seconds or calls < 3:
            for _ in range(max(1, calls // 10)):  # wait for the device less and less often
                work()
                calls += 1
            self._wait()
        return (time.perf_counter() - clock) / calls

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize(self.place)

    def _reset_peak(self) -> None:
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.place)

    def _throughput(self, seconds: float, runs: int, phase: int) -> dict[str, float]:
        flops = runs * self.step_flops(phase) / seconds
        facts = {"images_per_second": runs * BATCH / seconds, "tflops": flops / 1e12}
        facts["share_of_matrix_rate"] = flops / self.matrix_rate
        if self.on_gpu:
            facts["peak_memory_mib"] = torch.cuda.max_memory_allocated(self.place) / 2**20
        return facts

    @functools.cache  # noqa: B019 (one suite a process)
    def step_flops(self, phase: int) -> float:
        """Return the multiplications and additions of the networks' forward and backward passes."""
        trainer = self.make_trainer(phase)
        images = torch.zeros(2, 3, 32, 32, device=self.place)
        with FlopCounterMode(display=False) as counter:
            trainer.model(images).features.sum().backward()
            if trainer.teacher is not None:
                with torch.no_grad():
                    trainer.teacher(images)
        return float(counter.get_total_flops()) / len(images) * BATCH


def random_images(images_per_class: int) -> ImageData:
    """Return BASE + STEP classes of random pixels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(BASE + STEP), images_per_class)
    names = tuple(map(str, range(BASE + STEP)))
    train, test = (
        ImageSplit(rng.integers(0, 256, (len(some), 32, 32, 3), dtype=np.uint8), some)
        for some in (labels, labels[::images_per_class].copy())
    )
    preparation = Preparation((0.5,) * 3, (0.25,) * 3, size=32, view=View("pad", padding=4))
    return ImageData("random", names, names, train, test, preparation)


def full_batches(stage: StagePass) -> Iterator[BatchPlan]:
    """Yield the full batches of an epoch, again and again."""
    plans = stage.batches(torch.Generator().manual_seed(0))
    return itertools.cycle(plan for plan in plans if plan[0].shape[-1] == BATCH)


def bench_config(network: str, settings: dict[str, Any]) -> RunConfig:
    config = build_config("lucir", "cifar100", initial=["cwd"], base=BASE, step=STEP)
    return config.override({"network.name": network, "protocol.class_order": "natural", **settings})
