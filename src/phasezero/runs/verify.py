"""Train a phase of a finished run again and compare it with its record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.engine.callbacks import Callback
from phasezero.engine.checkpoint import load_checkpoint, phase_checkpoint
from phasezero.engine.device import conditions, environment
from phasezero.engine.oracle import TrainedOracle
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.records.run import Record, read_record
from phasezero.runs.session import CHECKPOINT


@dataclass(frozen=True)
class Verification:
    """A phase of a record and the same phase trained again."""

    phase: int
    conditions: list[str]
    """What is different here: versions, device, precision, threads."""
    differences: list[str]
    """Where the two phases differ."""
    points: float
    """The difference of their accuracies, new minus recorded, in points."""


def verify_run(
    folder: Path,
    phase: int = 0,
    *,
    root: Path | None = None,
    data: ImageData | None = None,
    callback: Callback | None = None,
) -> Verification:
    """Train a phase of a finished run again, from the kept state of the phase before, and compare."""
    record = read_record(folder)
    phases = len(record["phases"])
    if not 0 <= phase < phases:
        raise UserError(f"{folder}: there is no phase {phase}; the run has phases 0 to {phases - 1}")
    config = RunConfig.from_record(record["config"])
    data = data or load_data(config.protocol.data, root)
    trainer = Trainer(config, data, callback, TrainedOracle(config, data, callback))
    if phase:
        kept = phase_checkpoint(folder / CHECKPOINT, phase - 1)
        if not kept.exists():
            raise UserError(
                f"{folder}: the state after phase {phase - 1} was not kept; verify phase 0, or a run that "
                "was made with --keep-phases"
            )
        state = load_checkpoint(kept, config, trainer)
        trainer.restore(phase, state.model, state.exemplars)
    again: dict[str, Any] = {**next(trainer.run()).record}
    before: dict[str, Any] = {**record["phases"][phase]}
    apart = list(_differences(before, again))
    points = again["accuracy"]["head"] - before["accuracy"]["head"]
    return Verification(phase, _changes(record, trainer), apart, points)


def _changes(record: Record, trainer: Trainer) -> list[str]:
    there, here = conditions(record["environment"]), conditions(environment(trainer.device, trainer.setup.photos))
    return [f"{name}: {there[name]} then, {here[name]} now" for name in here if there[name] != here[name]]


def _differences(before: Any, again: Any, where: str = "") -> Iterator[str]:
    """Yield where two phases differ, except for times and memory."""
    if isinstance(before, dict) and isinstance(again, dict):
        for key in {**before, **again}:
            if where or key not in ("seconds", "gpu"):
                yield from _differences(before.get(key), again.get(key), f"{where}.{key}".lstrip("."))
    elif before != again:
        short = not isinstance(before, list) and not isinstance(again, list)
        yield f"{where}: {before} then, {again} now" if short else where
