"""Training that survives: phases are kept as they finish, and found again instead of computed again."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import make_stream
from phasezero.engine.checkpoint import load_checkpoint, save_checkpoint
from phasezero.engine.deadline import Deadline, OutOfTimeError
from phasezero.engine.listener import Listener, OracleEpochs
from phasezero.engine.store import PhaseZeroStore, phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.engine.workload import images_by_phase
from phasezero.errors import UserError
from phasezero.nets import IncrementalModel
from phasezero.results.record import PhaseRecord

TEACHER_TAKES = 2  # times as long as in phase 0, and that is on the safe side for most methods


@dataclass(frozen=True)
class Trained:
    phases: list[PhaseRecord]
    seconds: float
    """Of computing, whenever it happened; a phase 0 out of the store counts nothing."""
    reused_phase_zero: bool


def phase_checkpoint(checkpoint: Path, phase: int | str) -> Path:
    """Where the state after one phase stays, beside the checkpoint that the next phase overwrites."""
    return checkpoint.with_name(f"{checkpoint.stem}-phase{phase}{checkpoint.suffix}")


def train_phases(
    trainer: Trainer,
    data: ImageData,
    checkpoint: Path | None = None,
    store: PhaseZeroStore | None = None,
    keep_phases: bool = False,
    deadline: Deadline | None = None,
) -> Trained:
    """All phases of a trainer: from its checkpoint on, or from a stored phase 0 on, or from the start.

    `keep_phases` keeps the state after each phase, not only the last, for those who want to look at it later.
    OutOfTimeError is raised after a phase, a stored one too (its checkpoint written), when the next would likely end
    after `deadline`.
    """
    config, clock = trainer.config, time.perf_counter()
    phases: list[PhaseRecord] = []
    reused, key = False, ""

    def keep(seconds: float) -> None:
        if checkpoint is not None:
            # The one to go on from comes last: what is killed between the two does this phase again, and keeps it.
            paths = [*([phase_checkpoint(checkpoint, len(phases) - 1)] if keep_phases else []), checkpoint]
            for path in paths:
                save_checkpoint(path, config, trainer, phases, seconds, reused)

    def stop_if_late() -> None:
        more = len(phases) < len(trainer.stream.phases)
        if more and deadline is not None and not deadline.allows(_next_phase(trainer, phases[-1])):
            raise OutOfTimeError(f"{config.name} seed {config.seed}: {len(phases)} phases are finished")

    if checkpoint is not None and checkpoint.exists():
        saved = load_checkpoint(checkpoint, config, trainer)
        trainer.restore(len(saved.phases), saved.model, saved.exemplars)
        phases, clock, reused = list(saved.phases), clock - saved.seconds, saved.reused_phase_zero
    with contextlib.ExitStack() as claim:
        if store is not None and not phases:
            key = phase_zero_key(config, data, trainer)
            claim.enter_context(store.claim(key))
            clock = time.perf_counter()  # having waited for another run's phase 0 is not computing
            found = store.find(key, trainer)
            if found is not None:
                claim.close()
                trainer.restore(1, found.model, found.exemplars)
                phases, reused = list(found.phases), True
                if trainer.listener:
                    trainer.listener.reused(phases[0])
                keep(0.0)
                stop_if_late()  # it may have waited long for the run that made it
        for result in trainer.run():
            phases.append(result.to_record(trainer.stream.sizes[: result.phase.index + 1]))
            seconds = time.perf_counter() - clock
            if store is not None and key and len(phases) == 1:
                store.keep(key, config, trainer, phases[0], seconds)
                claim.close()
            keep(seconds)
            stop_if_late()
    return Trained(phases, time.perf_counter() - clock, reused)


def _next_phase(trainer: Trainer, last: PhaseRecord) -> float:
    """Seconds of the phase to come, going by those of the last one and the images of both."""
    images = images_by_phase(trainer.config, trainer.stream, [len(one) for one in trainer.train_by_class])
    place = last["phase"]
    teacher = 1 if place else TEACHER_TAKES
    return last["seconds"]["total"] * teacher * images[place + 1] / max(images[place], 1)


class OracleWorkshop:
    """The mimic term's oracle: the same method's phase 0, with all classes of the stream at once and no term.

    It comes from a checkpoint where one is named, else from the store, else it is trained on the spot (and kept
    in the store, if there is one).
    """

    def __init__(
        self,
        config: RunConfig,
        data: ImageData,
        listener: Listener | None = None,
        store: PhaseZeroStore | None = None,
    ) -> None:
        self.config, self.data, self.listener, self.store = config, data, listener, store

    def oracle(self, path: str) -> IncrementalModel:
        protocol = self.config.protocol
        classes = sum(protocol.phase_sizes) or len(self.data.class_ids)
        if not isinstance(protocol.class_order, str):
            classes = min(classes, len(protocol.class_order))
        # With the run's own memory rule, though it needs none: so it is the very phase 0 of a run of all classes,
        # and the two share one entry of the store.
        all_at_once = replace(protocol, phase_sizes=(classes,))
        config = replace(self.config, name=f"oracle/{protocol.data}", protocol=all_at_once, initial=())
        trainer = Trainer(config, self.data, OracleEpochs(self.listener) if self.listener else None)
        if not path:
            train_phases(trainer, self.data, store=self.store)
            return trainer.model.teacher_copy()

        saved = load_checkpoint(Path(path))
        if (
            seen := saved.phases[-1]["seen_classes"]
        ) < classes - 1:  # the authors' own oracle lacked one class
            raise UserError(f"oracle {path} has seen {seen} classes, the run has {classes}")
        self._refuse_strangers(path, RunConfig.from_dict(saved.config), seen)
        # Its head may have grown in other steps than ours; features are all that is asked of an oracle.
        prefix = "backbone."
        features = {
            name.removeprefix(prefix): t for name, t in saved.model.items() if name.startswith(prefix)
        }
        try:
            trainer.model.backbone.load_state_dict(features)
        except RuntimeError:
            raise UserError(f"oracle {path} is not of the network {config.network.name!r}") from None
        trainer.model.head.grow(classes, torch.Generator())
        return trainer.model.teacher_copy()

    def _refuse_strangers(self, path: str, other: RunConfig, seen: int) -> None:
        """Shapes would fit an oracle of other classes, too, or of a network that ends in a ReLU."""
        if other.network != self.config.network:
            raise UserError(f"oracle {path} is not of the network {self.config.network.name!r} as it is here")
        mine, its = self.config.protocol, other.protocol
        if its.data != mine.data:
            raise UserError(f"oracle {path} was trained on {its.data!r}, the run is on {mine.data!r}")
        count = len(self.data.class_ids)
        order, other_order = (
            make_stream(count, one.class_order, one.base, one.step, one.phase_sizes).order
            for one in (mine, its)
        )
        missing = set(order) - set(other_order[:seen])
        if len(missing) > 1:
            names = ", ".join(self.data.class_names[index] for index in sorted(missing)[:3])
            raise UserError(f"oracle {path} has not seen {len(missing)} of the run's classes ({names}, ...)")
