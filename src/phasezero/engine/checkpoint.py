"""A finished phase on disk: model, exemplars and the record so far in one safetensors file, written atomically.

A stopped run continues after its last finished phase, to the same record. Generators and optimisers are not saved,
because random numbers are derived from names (seeding.py) and each phase starts with fresh momentum.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from phasezero.config import RunConfig, complete, leaves
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.identity import differing
from phasezero.records.files import replacing
from phasezero.records.run import PhaseRecord

FORMAT = "phasezero-checkpoint-2"


@dataclass(frozen=True)
class Trained:
    """The finished phases of a run."""

    phases: list[PhaseRecord]
    seconds: float
    """Seconds of computation before and after stops."""
    reused_phase_zero: bool
    """Whether phase 0 came from a store; its seconds then do not count."""


@dataclass(frozen=True)
class Checkpoint(Trained):
    model: dict[str, Tensor]
    exemplars: list[Tensor]
    config: dict[str, Any]
    """The environment of the run that wrote it."""


def phase_checkpoint(checkpoint: Path, phase: int | str) -> Path:
    """Return the file that keeps the state after a phase, next to the checkpoint that the next phase overwrites."""
    return checkpoint.with_name(f"{checkpoint.stem}-phase{phase}{checkpoint.suffix}")


def save_checkpoint(path: Path, trainer: Trainer, trained: Trained, state: Mapping[str, Tensor] | None = None) -> None:
    """Write the state after the last finished phase; `state` replaces the model's state."""
    state = trainer.model.state_dict() if state is None else state
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in state.items()}
    tensors |= {f"exemplars.{position}": kept for position, kept in enumerate(trainer.memory.by_class)}
    images = trainer.images_hash(len(trained.phases))
    facts = {"config": trainer.config.to_dict(), **vars(trained), "images": images}
    # Not written by safetensors, which makes files private and raises its own error for a full disk.
    content = save(tensors, metadata={"format": FORMAT, "facts": json.dumps(facts)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load_checkpoint(path: Path, config: RunConfig | None = None, trainer: Trainer | None = None) -> Checkpoint:
    """Read a checkpoint; raise UserError unless it fits this configuration and the trainer's images (if given)."""
    facts = read_facts(path, config)
    _, tensors = _read(path, tensors=True)
    phases, known = facts["phases"], facts.get("images")
    if trainer is not None and known and known != trainer.images_hash(len(phases)):
        # Exemplars are indices, so with other images they would be other exemplars.
        raise UserError(f"checkpoint {path} was made from other images; choose another --out")
    try:
        exemplars = [tensors[f"exemplars.{position}"] for position in range(phases[-1]["seen_classes"])]
    except LookupError:
        raise UserError(f"checkpoint {path} is damaged: exemplars are missing") from None
    model = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
    reused = bool(facts.get("reused_phase_zero"))
    return Checkpoint(phases, facts["seconds"], reused, model, exemplars, facts["config"])


def _read(path: Path, *, tensors: bool) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata of a file and, if requested, its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys() if tensors else ()
            return file.metadata() or {}, {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(f"checkpoint {path} is damaged or not a checkpoint of phasezero; remove it ({error})") from None


def read_facts(path: Path, config: RunConfig | None = None) -> dict[str, Any]:
    """Return the metadata of a checkpoint; raise UserError for any other file and for another configuration."""
    metadata, _ = _read(path, tensors=False)
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this version of phasezero")
    try:
        facts: dict[str, Any] = json.loads(metadata["facts"])
        facts |= {"config": complete(facts["config"]), "seconds": float(facts["seconds"])}
        if not facts["phases"][-1]["seen_classes"] > 0:
            raise ValueError
    except (ValueError, TypeError, LookupError):
        raise UserError(f"checkpoint {path} is damaged: its metadata is incomplete") from None
    if config and (apart := differing([dict(leaves(settings)) for settings in (facts["config"], config.to_dict())])):
        key = next((key for key in apart if key != "name"), "name")  # follows from the other settings
        there, here = apart[key]
        raise UserError(
            f"checkpoint {path} has another configuration ({key} is {there!r} there, {here!r} here); "
            "choose another --out"
        )
    return facts


def finished_phases(path: Path, config: RunConfig) -> int:
    """Return how many phases of this configuration are in a checkpoint; 0 without a readable checkpoint."""
    try:
        return len(read_facts(path, config)["phases"])
    except UserError:
        return 0
