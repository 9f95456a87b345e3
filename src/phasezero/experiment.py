"""One run, from a configuration to its record."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

from phasezero._start import STARTED
from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.engine.deadline import Deadline
from phasezero.engine.device import environment
from phasezero.engine.listener import Listener
from phasezero.engine.persist import OracleWorkshop, train_phases
from phasezero.engine.store import PhaseZeroStore
from phasezero.engine.trainer import Trainer
from phasezero.results.record import (
    Record,
    Timing,
    data_record,
    run_record,
)


def run(
    config: RunConfig,
    *,
    root: str | Path | None = None,
    data: ImageData | None = None,
    listener: Listener | None = None,
    checkpoint: Path | None = None,
    store: Path | None = None,
    keep_phases: bool = False,
    deadline: Deadline | None = None,
) -> Record:
    """Trains all phases and returns the record. `data` spares loading what the caller has already.

    With a `checkpoint` file each finished phase is kept there, and a run that finds one goes on from it
    (`keep_phases`: and the states after all phases stay beside it, in files of their own). With a
    `store` folder, finished phase-0 states are kept and shared between runs that have the same phase 0. With a
    `deadline` a run stops (OutOfTimeError) after a phase when another like it would not be finished in time.
    """
    started = datetime.datetime.now(datetime.UTC)
    clock = time.perf_counter()
    data = data or load_data(config.protocol.data, root)
    shelf = PhaseZeroStore(store) if store is not None else None
    trainer = Trainer(config, data, listener, OracleWorkshop(config, data, listener, shelf))
    preparing = time.perf_counter() - clock
    trained = train_phases(trainer, data, checkpoint, shelf, keep_phases, deadline)
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
        phases=trained.phases,
        timing=Timing(
            started=started.isoformat(timespec="seconds"),
            seconds_total=preparing + trained.seconds,
            since_start=time.perf_counter() - STARTED,
            reused_phase_zero=trained.reused_phase_zero,
        ),
        environment=environment(trainer.device, trainer.photos),
    )
