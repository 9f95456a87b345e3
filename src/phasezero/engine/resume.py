"""Resumable training: finished phases, and the state within a phase, are saved and restored.

Next to a checkpoint of finished phases, the state within the phase under way is saved at intervals. Both keep the file
before, until the new file is complete. A run continues from the newest file that is sound, to the same record.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from phasezero.engine import interrupt
from phasezero.engine.checkpoint import (
    Trained,
    facts_of,
    load_checkpoint,
    phase_checkpoint,
    previous_file,
    read_state,
    save_checkpoint,
    state_file,
)
from phasezero.engine.deadline import Deadline, OutOfTimeError
from phasezero.engine.device import conditions, environment
from phasezero.engine.sealed import DamagedError, write_sealed
from phasezero.engine.store import PhaseZeroStore, phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.engine.within import SavedState
from phasezero.errors import UserError
from phasezero.records.run import Environment, Part, PhaseRecord

FORMAT = "phasezero-state-1"
LARGE_STATE = 64 * 2**20
"""Bytes of a model above which a phase is saved only if the last save was SAVE_EVERY seconds ago, or the next phase
takes as long. A ridge classifier has half a gigabyte, and its phases take a fraction of a second on a GPU."""
SAVE_EVERY = 30.0
SHARE = 0.01
"""The largest share of the time that saving the state within a phase may take."""
TEACHER_TAKES = 2  # time per image relative to phase 0: a generous guess for most methods

State = TypeVar("State")


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
    every: float = 60.0
    """Seconds after which the state within a phase is saved again, next to the checkpoint."""
    allow_changes: bool = False
    """Whether a run may continue with another version, device, precision or number of threads."""


def train_phases(trainer: Trainer, saving: Saving) -> Trained:
    """Train all phases, starting from the newest saved state, from a stored phase 0 or from scratch."""
    return _Resumable(trainer, saving).train()


class _Resumable:
    """Train a run and save its states. It is the trainer's keeper of the state within a phase."""

    def __init__(self, trainer: Trainer, saving: Saving) -> None:
        self.trainer, self.saving, self.say = trainer, saving, trainer.callback.on_note
        self.phases: list[PhaseRecord] = []
        self.parts: list[Part] = []
        self.reused = False
        self.clock, self.last_save = time.perf_counter(), time.monotonic()
        self.next_state = self.last_save + saving.every
        self.phases_saved = 0  # as many phases as the checkpoint on disk has
        self.state_path = None if saving.checkpoint is None else state_file(saving.checkpoint)
        trainer.keeper = self

    @property
    def trained(self) -> Trained:
        return Trained(self.phases, time.perf_counter() - self.clock, self.reused, self.parts)

    def train(self) -> Trained:
        trainer, saving = self.trainer, self.saving
        if saving.checkpoint is not None:
            self._continue(saving.checkpoint)
        with contextlib.ExitStack() as claim:
            store = PhaseZeroStore(saving.store) if saving.store is not None and not self.phases else None
            key = self._claim_phase_zero(store, claim) if store is not None else ""
            left = None if saving.phases is None else saving.phases - len(self.phases)
            for result in itertools.islice(trainer.run(), left):
                self.phases.append(result.record)
                self._save()
                if store is not None and key and len(self.phases) == 1:
                    try:
                        store.keep(key, trainer, self.phases[0], self.trained.seconds)
                    except OSError as error:  # the run has its own checkpoint
                        self.say(f"the store {store.folder} cannot be written ({error.strerror}); the run continues")
                    self._forget(store.state_path(key))
                    self.state_path = None if saving.checkpoint is None else state_file(saving.checkpoint)
                    claim.close()
                self._check_time()
        return self.trained

    def _continue(self, checkpoint: Path) -> None:
        """Continue from the newest sound checkpoint, and from the newest state within the phase after it."""
        trainer, made_in = self.trainer, None
        for saved in self._sound(checkpoint, lambda path: load_checkpoint(path, trainer.config, trainer)):
            trainer.restore(len(saved.phases), saved.model, saved.exemplars)
            self.phases, self.reused, self.parts = list(saved.phases), saved.reused_phase_zero, list(saved.parts)
            self.clock -= saved.seconds
            self.phases_saved, made_in = len(self.phases), saved.environment
            break
        for facts, tensors in self._sound(
            state_file(checkpoint), lambda path: read_state(path, FORMAT, "state", trainer.config, trainer)
        ):
            if facts["phase"] == len(self.phases):
                trainer.saved_state = SavedState(facts, tensors)
                self.clock, self.parts = time.perf_counter() - facts["seconds"], list(facts["parts"])
                made_in = facts["environment"]
                break
        if made_in is not None:
            self._check_conditions(checkpoint, made_in)

    def _sound(self, path: Path, read: Callable[[Path], State]) -> Iterator[State]:
        """Yield the states on disk, newest first; raise UserError if all that exist are damaged."""
        found, damage = False, None
        for candidate in (path, previous_file(path)):
            if candidate.exists():
                try:
                    state = read(candidate)
                except DamagedError as error:
                    self.say(f"{error}")
                    damage = damage or error
                    continue
                found = True
                yield state
        if damage is not None and not found:
            raise damage

    def _check_conditions(self, checkpoint: Path, made_in: Environment) -> None:
        """Note that the run continues under other conditions; raise UserError if that was not asked for."""
        now = environment(self.trainer.device, self.trainer.setup.photos)
        there, here = conditions(made_in), conditions(now)
        if apart := [name for name in here if there[name] != here[name]]:
            changes = ", ".join(f"{name} {there[name]} there, {here[name]} here" for name in apart)
            if not self.saving.allow_changes:
                raise UserError(
                    f"the state in {checkpoint.parent} was made under other conditions ({changes}), so the numbers "
                    "would be those of neither; restore them, or pass --allow-changes (the record will say so)"
                )
            self.say(f"{self.trainer.config.name}: continues under other conditions ({changes})")
            self.parts.append(Part(phases=len(self.phases), environment=made_in))

    def _claim_phase_zero(self, store: PhaseZeroStore, claim: contextlib.ExitStack) -> str:
        """Take phase 0 from the store; otherwise return the key under which to keep it, and hold its lock."""
        trainer = self.trainer
        key, spent = phase_zero_key(trainer), time.perf_counter() - self.clock
        claim.enter_context(store.claim(key, self._waits))
        self.clock = time.perf_counter() - spent  # waiting for another run's phase 0 is not computing
        found = store.find(key, trainer)
        if found is None:
            self._continue_phase_zero(store.state_path(key))
            return key
        claim.close()
        self.clock = time.perf_counter()
        # Another method or memory rule than the writer's has other exemplars and another classifier.
        self.phases, self.reused = [trainer.reuse_phase_zero(found.model, found.phases[0]).record], True
        trainer.callback.on_phase_reused(self.phases[0])
        self._save()
        self._check_time()
        return ""

    def _continue_phase_zero(self, path: Path) -> None:
        """Continue phase 0 from its state in the store, which this or another run has left there."""
        self.state_path, here = path, conditions(environment(self.trainer.device, self.trainer.setup.photos))
        with contextlib.suppress(UserError):  # damaged: phase 0 is trained again
            for facts, tensors in self._sound(path, lambda file: read_state(file, FORMAT, "state", None, self.trainer)):
                if conditions(facts["environment"]) == here:
                    self.trainer.saved_state = SavedState(facts, tensors)
                    self.clock = time.perf_counter() - facts["seconds"]
                    break

    def _forget(self, path: Path) -> None:
        """Remove a state that is not needed any more."""
        for file in (path, previous_file(path)):
            file.unlink(missing_ok=True)

    def _waits(self, text: str) -> None:
        self.say(text)
        self.trainer.activity.begin(self.trainer.stream.phases[0], "waiting")

    @property
    def _is_last(self) -> bool:
        return len(self.phases) == len(self.trainer.stream.phases)

    def _save(self) -> None:
        """Save the last finished phase, unless its state is large and phases are short."""
        trainer, checkpoint, count = self.trainer, self.saving.checkpoint, len(self.phases)
        if checkpoint is None:
            return
        size = sum(tensor.nbytes for tensor in trainer.model.state_dict().values())
        next_phase = 0.0 if self._is_last else _next_phase(trainer, self.phases[-1])
        due = size <= LARGE_STATE or time.monotonic() - self.last_save + next_phase >= SAVE_EVERY
        if due or self._is_last or self._is_time_up() or self.saving.keep_phases:
            # The checkpoint comes last: a run killed between the two writes trains this phase again, and keeps it.
            if self.saving.keep_phases:
                save_checkpoint(phase_checkpoint(checkpoint, count - 1), trainer, self.trained)
            save_checkpoint(checkpoint, trainer, self.trained, previous=previous_file(checkpoint))
            self.phases_saved, self.last_save = count, time.monotonic()
            self._forget(state_file(checkpoint))
            if self._is_last:
                previous_file(checkpoint).unlink(missing_ok=True)

    def _is_time_up(self) -> bool:
        """Tell whether the next phase would not be finished in time."""
        deadline = self.saving.deadline
        if self._is_last or deadline is None:
            return False
        return not deadline.allows(_next_phase(self.trainer, self.phases[-1]))

    def _check_time(self) -> None:
        if self._is_time_up():
            config = self.trainer.config
            raise OutOfTimeError(f"{config.name} seed {config.seed}: {len(self.phases)} phases are finished")

    def due(self) -> bool:
        return interrupt.requested() or time.monotonic() >= self.next_state

    def keep(self, state: SavedState | None) -> None:
        began, path, phase = time.monotonic(), self.state_path, len(self.phases)
        if path is not None and state is not None and self.phases_saved == phase:
            trained = self.trained
            own = {"seconds": trained.seconds, "parts": trained.parts}
            facts = facts_of(self.trainer, phase + 1) | state.facts | own
            try:
                write_sealed(path, FORMAT, facts, state.tensors, previous_file(path))
            except OSError as error:  # the run goes on, because the space may come back
                self.say(f"{path}: the state of training cannot be saved ({error.strerror}); the run continues")
        now = time.monotonic()
        self.next_state = now + max(self.saving.every, (now - began) / SHARE)
        if interrupt.requested():
            raise interrupt.StoppedError


def _next_phase(trainer: Trainer, last: PhaseRecord) -> float:
    """Estimate the seconds of the next phase from those of the last phase and the images of both."""
    images, place = trainer.setup.images, last["phase"]
    teacher = 1 if place else TEACHER_TAKES
    return last["seconds"]["total"] * teacher * images[place + 1] / max(images[place], 1)
