"""A finished phase on disk: model, exemplars and the record so far in a sealed file, written atomically.

A stopped run continues after its last finished phase, to the same record. Generators and optimisers are not saved,
because random numbers are derived from names (seeding.py) and each phase starts with fresh momentum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from phasezero.config import RunConfig, complete, leaves
from phasezero.engine.device import environment
from phasezero.engine.sealed import DamagedError, read_sealed, write_sealed
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.identity import differing
from phasezero.records.run import Environment, Part, PhaseRecord

FORMAT = "phasezero-checkpoint-3"


@dataclass(frozen=True)
class Trained:
    """The finished phases of a run."""

    phases: list[PhaseRecord]
    seconds: float
    """Seconds of computation before and after stops."""
    reused_phase_zero: bool
    """Whether phase 0 came from a store; its seconds then do not count."""
    parts: list[Part]
    """Earlier parts of the run, which were made under other conditions."""


@dataclass(frozen=True)
class Checkpoint(Trained):
    model: dict[str, Tensor]
    exemplars: list[Tensor]
    config: dict[str, Any]
    environment: Environment
    """The environment of the run that wrote it."""


def phase_checkpoint(checkpoint: Path, phase: int | str) -> Path:
    """Return the file that keeps the state after a phase, next to the checkpoint that the next phase overwrites."""
    return checkpoint.with_name(f"{checkpoint.stem}-phase{phase}{checkpoint.suffix}")


def state_file(checkpoint: Path) -> Path:
    """Return the file of the state within a phase."""
    return checkpoint.with_name(f"{checkpoint.stem}-within{checkpoint.suffix}")


def previous_file(path: Path) -> Path:
    """Return the file that keeps the state before the last save."""
    return path.with_name(f"{path.stem}-previous{path.suffix}")


def save_checkpoint(
    path: Path,
    trainer: Trainer,
    trained: Trained,
    state: Mapping[str, Tensor] | None = None,
    previous: Path | None = None,
) -> None:
    """Write the state after the last finished phase; `state` replaces the model's, `previous` keeps the old file."""
    state = trainer.model.state_dict() if state is None else state
    tensors = {f"model.{name}": tensor for name, tensor in state.items()}
    tensors |= {f"exemplars.{position}": kept for position, kept in enumerate(trainer.memory.by_class)}
    write_sealed(path, FORMAT, facts_of(trainer, len(trained.phases)) | vars(trained), tensors, previous)


def facts_of(trainer: Trainer, phases: int) -> dict[str, Any]:
    """Return what a state on disk says of its run: configuration, environment, and the images of these phases."""
    return {
        "config": trainer.config.to_dict(),
        "environment": environment(trainer.device, trainer.setup.photos),
        "images": [phases, trainer.images_hash(phases)],
    }


def load_checkpoint(path: Path, config: RunConfig | None = None, trainer: Trainer | None = None) -> Checkpoint:
    """Read a checkpoint; raise UserError unless it fits this configuration and the trainer's images (if given)."""
    facts, tensors = read_state(path, FORMAT, "checkpoint", config, trainer)
    try:
        phases, made_in = facts["phases"], cast(Environment, facts["environment"])
        exemplars = [tensors[f"exemplars.{position}"] for position in range(phases[-1]["seen_classes"])]
        model = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
        trained = phases, facts["seconds"], facts["reused_phase_zero"], facts["parts"]
    except LookupError as error:
        raise DamagedError(f"checkpoint {path} is incomplete ({error}); remove it") from None
    return Checkpoint(*trained, model, exemplars, facts["config"], made_in)


def read_state(
    path: Path, form: str, what: str, config: RunConfig | None = None, trainer: Trainer | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return facts and tensors; raise UserError unless they fit the configuration and the trainer's images."""
    facts, tensors = read_sealed(path, form, what)
    try:
        facts |= {"config": complete(facts["config"])}
        phases, images = facts["images"]
    except (LookupError, TypeError, ValueError) as error:
        raise DamagedError(f"{what} {path} is incomplete ({error}); remove it") from None
    if config and (apart := differing([dict(leaves(settings)) for settings in (facts["config"], config.to_dict())])):
        key = next((key for key in apart if key != "name"), "name")  # follows from the other settings
        there, here = apart[key]
        raise UserError(
            f"{what} {path} has another configuration ({key} is {there!r} there, {here!r} here); choose another --out"
        )
    if trainer is not None and images != trainer.images_hash(phases):
        # Exemplars are indices, so with other images they would be other exemplars.
        raise UserError(f"{what} {path} was made from other images; choose another --out")
    return facts, tensors


def read_facts(path: Path, config: RunConfig | None = None) -> dict[str, Any]:
    """Return the facts of a checkpoint; raise UserError for any other file and for another configuration."""
    return read_state(path, FORMAT, "checkpoint", config)[0]


def newest_facts(path: Path, config: RunConfig) -> dict[str, Any] | None:
    """Return the facts of a checkpoint, or of the checkpoint before if it is damaged; None if there is none."""
    damage = None
    for candidate in (path, previous_file(path)):
        if candidate.exists():
            try:
                return read_facts(candidate, config)
            except DamagedError as error:
                damage = damage or error
    if damage is not None:
        raise damage
    return None


def finished_phases(path: Path, config: RunConfig) -> int:
    """Return how many phases of this configuration are in a checkpoint; 0 without a readable checkpoint."""
    try:
        return len((newest_facts(path, config) or {"phases": ()})["phases"])
    except UserError:
        return 0
