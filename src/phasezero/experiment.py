"""One run, from a configuration to its record."""

from __future__ import annotations

import datetime
import platform
import time
from pathlib import Path

import numpy as np
import torch

from phasezero._version import __version__
from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.engine.checkpoint import load_checkpoint, save_checkpoint
from phasezero.engine.device import Device
from phasezero.engine.evaluate import Labels
from phasezero.engine.trainer import Listener, PhaseResult, Trainer
from phasezero.results.metrics import Counts, confusion_matrix
from phasezero.results.record import (
    Environment,
    PhaseRecord,
    Record,
    Timing,
    data_record,
    phase_record,
    run_record,
)


def run(
    config: RunConfig,
    *,
    root: str | Path | None = None,
    data: ImageData | None = None,
    listener: Listener | None = None,
    checkpoint: Path | None = None,
) -> Record:
    """Trains all phases and returns the record. `data` spares loading what the caller has already.

    With a `checkpoint` file each finished phase is kept there, and a run that finds one goes on from it.
    """
    started, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    data = data or load_data(config.protocol.data, root)
    trainer = Trainer(config, data, listener)
    phases: list[PhaseRecord] = []
    if checkpoint is not None and checkpoint.exists():
        saved = load_checkpoint(checkpoint, config)
        phases, clock = list(saved.phases), clock - saved.seconds
        if len(phases) < len(trainer.stream.phases):
            trainer.restore(len(phases), saved.model, saved.exemplars)
    if len(phases) < len(trainer.stream.phases):
        for result in trainer.run():
            phases.append(_phase_record(result, trainer.stream.sizes[: result.phase.index + 1]))
            if checkpoint is not None:
                save_checkpoint(checkpoint, config, trainer, phases, time.perf_counter() - clock)
    order = trainer.stream.order
    return run_record(
        name=config.name or f"{config.label}/{config.protocol.data}",
        method=config.method.name,
        initial=[term.label for term in config.initial],
        seed=config.seed,
        config=config.to_dict(),
        data=data_record(
            name=data.name,
            class_ids=[data.class_ids[index] for index in order],
            class_names=[data.class_names[index] for index in order],
            class_order=trainer.stream.order_name,
            class_order_indices=order,
            train_images=sum(map(len, trainer.train_by_class)),
            test_images=sum(map(len, trainer.test_by_class)),
        ),
        phases=phases,
        timing=Timing(
            started=started.isoformat(timespec="seconds"), seconds_total=time.perf_counter() - clock
        ),
        environment=environment(trainer.device),
    )


def _phase_record(result: PhaseResult, sizes: tuple[int, ...]) -> PhaseRecord:
    answers = result.predictions

    def confusion(predicted: Labels) -> Counts:
        return confusion_matrix(answers.truth, predicted, result.phase.seen)

    return phase_record(
        phase_sizes=sizes,
        confusion=confusion(answers.head),
        nearest_mean_confusion=None if answers.nearest_mean is None else confusion(answers.nearest_mean),
        uncorrected_confusion=None if answers.uncorrected is None else confusion(answers.uncorrected),
        train_images=result.train_images,
        memory_per_class=result.memory,
        loss=result.loss,
        seconds=result.seconds,
    )


def environment(device: Device) -> Environment:
    on_gpu = device.torch.type == "cuda"
    return Environment(
        phasezero=__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        cuda=torch.version.cuda if on_gpu else None,
        cudnn=str(torch.backends.cudnn.version()) if on_gpu else None,
        platform=platform.platform(),
        device=device.torch.type,
        device_name=device.description,
        threads=torch.get_num_threads(),
        precision=device.precision,
        engine=device.engine,
    )
