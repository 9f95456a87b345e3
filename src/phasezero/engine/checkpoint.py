"""A finished phase on disk: model, exemplars and the record so far, in one safetensors file, written whole or not.

A run that was stopped goes on after its last finished phase, to the same record as if it had never stopped:
random numbers are derived from names (seeding.py), so there is no generator to save, and each phase starts
with fresh momentum, so there is no optimiser either.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.results.record import PhaseRecord, with_younger_settings

FORMAT = "phasezero-checkpoint-2"


@dataclass(frozen=True)
class Checkpoint:
    model: dict[str, Tensor]
    exemplars: list[Tensor]
    phases: list[PhaseRecord]
    seconds: float
    """Of computing, up to here."""
    reused_phase_zero: bool
    """Whether phase 0 came out of a store: its seconds are then not among them."""
    config: dict[str, Any]
    """Of the run that wrote it."""


def save_checkpoint(
    path: Path,
    config: RunConfig,
    trainer: Trainer,
    phases: Sequence[PhaseRecord],
    seconds: float,
    reused_phase_zero: bool = False,
) -> None:
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in trainer.model.state_dict().items()}
    tensors |= {f"exemplars.{position}": kept for position, kept in enumerate(trainer.memory.by_class)}
    facts = {
        "config": config.to_dict(),
        "phases": list(phases),
        "seconds": seconds,
        "reused_phase_zero": reused_phase_zero,
        "images": trainer.images_hash(len(phases)),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, temporary, metadata={"format": FORMAT, "facts": json.dumps(facts)})
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_checkpoint(
    path: Path, config: RunConfig | None = None, trainer: Trainer | None = None
) -> Checkpoint:
    """The checkpoint, if it is one (of this configuration and this trainer's images, where given); else UserError."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise UserError(f"checkpoint {path} cannot be read: {error}") from None
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this phasezero")
    try:
        facts = json.loads(metadata["facts"])
        classes = facts["phases"][-1]["seen_classes"]
        exemplars = [tensors[f"exemplars.{position}"] for position in range(classes)]
        seconds = float(facts["seconds"])
        made_with = with_younger_settings(facts["config"])
    except (ValueError, TypeError, LookupError):
        raise UserError(f"checkpoint {path} is damaged: its facts are not complete") from None
    known = facts.get("images")
    if trainer is not None and known and known != trainer.images_hash(len(facts["phases"])):
        # Exemplars are kept as numbers of images: with other images they would be others.
        raise UserError(f"checkpoint {path} is of other images than those there now; choose another --out")
    if config is not None:
        _refuse_other(path, made_with, config)
    model = {
        name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")
    }
    reused = bool(facts.get("reused_phase_zero"))
    return Checkpoint(model, exemplars, facts["phases"], seconds, reused, made_with)


def _refuse_other(path: Path, made_with: dict[str, Any], config: RunConfig) -> None:
    if made_with != config.to_dict():
        key = _first_difference(made_with, config.to_dict())
        raise UserError(f"checkpoint {path} is of another configuration ({key}); choose another --out")


def refuse_other_run(path: Path, config: RunConfig) -> None:
    """Raises UserError where a checkpoint is there that is damaged or of another configuration. Reads no tensor."""
    if path.exists():
        refuse_damaged(path)
        _refuse_other(path, with_younger_settings(_facts(path).get("config", {})), config)


def refuse_damaged(path: Path) -> None:
    if not _facts(path):
        raise UserError(
            f"checkpoint {path} cannot be read: no checkpoint of phasezero, or damaged; remove it"
        )


def finished_phases(path: Path, config: RunConfig) -> int:
    """How many phases of this configuration a checkpoint holds; 0 where there is none. Reads no tensor."""
    facts = _facts(path)
    same = facts and with_younger_settings(facts.get("config", {})) == config.to_dict()
    return len(facts["phases"]) if same else 0


def _facts(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself; empty where there is none to be read."""
    try:
        with safe_open(path, framework="pt") as file:
            facts: dict[str, Any] = json.loads((file.metadata() or {}).get("facts", "{}"))
            return facts
    except (OSError, SafetensorError, ValueError):
        return {}


def _first_difference(found: Any, wanted: Any, where: str = "") -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in (*wanted, *found):
            if found.get(key) != wanted.get(key):
                return _first_difference(found.get(key), wanted.get(key), f"{where}.{key}".lstrip("."))
    return f"{where} is {found!r} there, {wanted!r} here"
