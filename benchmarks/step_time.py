"""Milliseconds of one training step on a CUDA device, by precision and engine, on random images.

    python benchmarks/step_time.py [--steps 200] [--profile] > step_time.json

ResNet-18 for 32x32 images, batch 128, 50 classes in phase 0 with CwD, and phase 1 with its teacher: what most of a
CIFAR100 run is made of. `--profile` adds the kernels that take most of the time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
import torch

from phasezero.data.images import ImageData, ImageSplit, Preparation
from phasezero.engine.passes import StagePass
from phasezero.engine.trainer import Trainer
from phasezero.presets import preset
from phasezero.seeding import generator

CASES = [
    ("fp32", "eager"),
    ("tf32", "captured"),
    ("bf16", "eager"),
    ("bf16", "captured"),
    ("fp16", "captured"),
    ("bf16", "compiled"),
    ("fp16", "compiled"),
    ("tf32", "compiled"),
]


def random_data() -> ImageData:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 500)
    train = ImageSplit(rng.integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8), labels)
    test = ImageSplit(rng.integers(0, 256, (1_000, 32, 32, 3), dtype=np.uint8), labels[::50].copy())
    names = tuple(map(str, range(100)))
    preparation = Preparation((0.5,) * 3, (0.25,) * 3, crop="pad", size=32, padding=4)
    return ImageData("random", names, names, train, test, preparation)


def make_pass(data: ImageData, precision: str, engine: str, phase_index: int) -> StagePass:
    settings = {"engine.precision": precision, "engine.engine": engine}
    trainer = Trainer(preset("lucir+cwd/cifar100/b50s10").override(settings), data)
    for phase in trainer.stream.phases[: phase_index + 1]:
        if phase.index:
            trainer.teacher = trainer.model.teacher_copy()
            if engine == "compiled":
                trainer.teacher.compile_backbone(128)
        trainer.method.grow(trainer.model, phase, generator(0, "head", phase.index))
    stage = trainer.method.stages(trainer.model, phase, trainer.config.training.first)[0]
    return trainer._make_pass(stage, phase, torch.cat(trainer.train_by_class[: phase.seen]))


def measure(one: StagePass, steps: int) -> dict[str, float]:
    clock = time.perf_counter()
    tickets = [
        ticket
        for ticket in one.source.train_batches(one.indices, 128, torch.Generator().manual_seed(0))
        if ticket[0].shape[1] == 128
    ]
    one.model.train()
    with one._gradients():
        for ticket in tickets[:10]:
            one.step(ticket)
        torch.cuda.synchronize()
        ready = time.perf_counter() - clock
        clock = time.perf_counter()
        for number in range(steps):
            one.step(tickets[number % len(tickets)])
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - clock) / steps
    return {"ms": 1e3 * seconds, "images_per_second": 128 / seconds, "ready_after_seconds": ready}


def profile(one: StagePass) -> str:
    tickets = list(one.source.train_batches(one.indices, 128, torch.Generator().manual_seed(0)))[:20]
    with torch.profiler.profile() as seen:
        for ticket in tickets:
            one.step(ticket)
        torch.cuda.synchronize()
    table: str = seen.key_averages().table(
        sort_by="self_cuda_time_total", row_limit=45, max_name_column_width=90
    )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    data = random_data()
    results = []
    for precision, engine in CASES:
        for phase_index in (0, 1):
            one = make_pass(data, precision, engine, phase_index)
            slow = precision == "fp32" or engine == "eager"
            found = measure(one, options.steps // 5 if slow else options.steps)
            results.append({"precision": precision, "engine": engine, "phase": phase_index, **found})
            print(results[-1], file=sys.stderr, flush=True)
            if options.profile and (precision, phase_index) == ("bf16", 0) and engine != "eager":
                print(profile(one), file=sys.stderr)
    device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(json.dumps({"format": "phasezero-step-time-1", **device, "results": results}, indent=1))


if __name__ == "__main__":
    main()
