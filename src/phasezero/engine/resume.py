"""Resumable training: finished phases are saved and restored instead of trained again."""

from __future__ import annotations

import contextlib
import itertools
import time
from dataclasses import dataclass
from pathlib import Path

from phasezero.engine.checkpoint import Trained, load_checkpoint, phase_checkpoint, save_checkpoint
from phasezero.engine.deadline import Deadline, OutOfTimeError
from phasezero.engine.store import PhaseZeroStore, phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.records.run import PhaseRecord

LARGE_STATE = 64 * 2**20
"""Bytes of a model above which a phase is saved only if the last save was SAVE_EVERY seconds ago. A ridge classifier
has half a gigabyte, and its phases take a fraction of a second on a GPU."""
SAVE_EVERY = 30.0
TEACHER_TAKES = 2  # time per image relative to phase 0: a generous guess for most methods


@dataclass(frozen=True)
class Saving:
    """What is saved of a run, and until when it may train."""

    checkpoint: Path | None = None
    """Each finished phase is saved here, and a run that finds a checkpoint continues from it."""
    store: Path | None = None
    """A folder of finished phase-0 states, shared between runs that have the same phase 0."""
    keep_phases: bool = False
    """Whether the state after each phase is also kept, in its own file next to the checkpoint."""
    deadline: Deadline | None = None
    """The run stops (OutOfTimeError) after a phase if the next phase would not be finished in time."""
    phases: int | None = None
    """How many phases to train; None for all."""


def train_phases(trainer: Trainer, saving: Saving) -> Trained:
    """Train all phases, starting from the checkpoint, from a stored phase 0 or from scratch."""
    clock, checkpoint = time.perf_counter(), saving.checkpoint
    store = PhaseZeroStore(saving.store) if saving.store is not None else None
    phases: list[PhaseRecord] = []
    reused, key, last_save = False, "", time.monotonic()

    def save(seconds: float) -> None:
        """Save the last finished phase; raise OutOfTimeError if the next phase would not be finished in time."""
        nonlocal last_save
        more, deadline = len(phases) < len(trainer.stream.phases), saving.deadline
        stops = more and deadline is not None and not deadline.allows(_next_phase(trainer, phases[-1]))
        size = sum(tensor.nbytes for tensor in trainer.model.state_dict().values())
        due = size <= LARGE_STATE or time.monotonic() - last_save >= SAVE_EVERY
        if checkpoint is not None and (due or stops or not more or saving.keep_phases):
            # The checkpoint comes last: a run killed between the two writes trains this phase again, and keeps it.
            kept = [phase_checkpoint(checkpoint, len(phases) - 1)] if saving.keep_phases else []
            for path in (*kept, checkpoint):
                save_checkpoint(path, trainer, Trained(phases, seconds, reused))
            last_save = time.monotonic()
        if stops:
            run = f"{trainer.config.name} seed {trainer.config.seed}"
            raise OutOfTimeError(f"{run}: {len(phases)} phases are finished")

    if checkpoint is not None and checkpoint.exists():
        saved = load_checkpoint(checkpoint, trainer.config, trainer)
        trainer.restore(len(saved.phases), saved.model, saved.exemplars)
        phases, clock, reused = list(saved.phases), clock - saved.seconds, saved.reused_phase_zero
    with contextlib.ExitStack() as claim:
        if store is not None and not phases:
            key = phase_zero_key(trainer)
            claim.enter_context(store.claim(key, lambda: trainer.activity.begin(trainer.stream.phases[0], "waiting")))
            clock = time.perf_counter()  # waiting for another run's phase 0 is not computing
            found = store.find(key, trainer)
            if found is not None:
                claim.close()
                # Another method or memory rule than the writer's has other exemplars and another classifier.
                phases, reused = [trainer.reuse_phase_zero(found.model, found.phases[0]).record], True
                trainer.callback.on_phase_reused(phases[0])
                save(0.0)
        left = None if saving.phases is None else saving.phases - len(phases)
        for result in itertools.islice(trainer.run(), left):
            phases.append(result.record)
            seconds = time.perf_counter() - clock
            if store is not None and key and len(phases) == 1:
                store.keep(key, trainer, phases[0], seconds)
                claim.close()
            save(seconds)
    return Trained(phases, time.perf_counter() - clock, reused)


def _next_phase(trainer: Trainer, last: PhaseRecord) -> float:
    """Estimate the seconds of the next phase from those of the last phase and the images of both."""
    images, place = trainer.setup.images, last["phase"]
    teacher = 1 if place else TEACHER_TAKES
    return last["seconds"]["total"] * teacher * images[place + 1] / max(images[place], 1)
