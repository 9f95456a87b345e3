"""A finished phase on disk: model, exemplars and the record so far, in one safetensors file, written whole or not.

A run that was stopped goes on after its last finished phase, to the same record as if it had never stopped:
random numbers are derived from names (seeding.py), so there is no generator to save, and each phase starts
with fresh momentum, so there is no optimiser either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.results.files import replacing
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
    # Written by ourselves: safetensors hides its files from others, and calls a full disk its own error.
    content = save(tensors, metadata={"format": FORMAT, "facts": json.dumps(facts)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load_checkpoint(
    path: Path, config: RunConfig | None = None, trainer: Trainer | None = None
) -> Checkpoint:
    """The checkpoint, if it is one (of this configuration and this trainer's images, where given); else UserError."""
    facts = read_facts(path)
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    phases, known = facts["phases"], facts.get("images")
    if trainer is not None and known and known != trainer.images_hash(len(phases)):
        # Exemplars are kept as numbers of images: with other images they would be others.
        raise UserError(f"checkpoint {path} is of other images than those there now; choose another --out")
    if config is not None:
        _refuse_other(path, facts, config)
    try:
        exemplars = [tensors[f"exemplars.{position}"] for position in range(phases[-1]["seen_classes"])]
    except LookupError:
        raise UserError(f"checkpoint {path} is damaged: exemplars are missing") from None
    prefix = "model."
    model = {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
    reused = bool(facts.get("reused_phase_zero"))
    return Checkpoint(model, exemplars, phases, facts["seconds"], reused, facts["config"])


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"checkpoint {path} cannot be read: no checkpoint of phasezero, or damaged; remove it ({error})"
        ) from None


def read_facts(path: Path) -> dict[str, Any]:
    """What a checkpoint says of itself; UserError where it is none. Reads no tensor."""
    with _opened(path) as file:
        metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this phasezero")
    try:
        facts: dict[str, Any] = json.loads(metadata["facts"])
        whole = {"config": with_younger_settings(facts["config"]), "seconds": float(facts["seconds"])}
        if not facts["phases"][-1]["seen_classes"] > 0:
            raise ValueError
    except (ValueError, TypeError, LookupError):
        raise UserError(f"checkpoint {path} is damaged: its facts are not complete") from None
    return facts | whole


def refuse_other_run(path: Path, config: RunConfig) -> None:
    """Raises UserError where a checkpoint is there that is damaged or of another configuration."""
    if path.exists():
        _refuse_other(path, read_facts(path), config)


def _refuse_other(path: Path, facts: dict[str, Any], config: RunConfig) -> None:
    if facts["config"] != config.to_dict():
        key = _first_difference(facts["config"], config.to_dict())
        raise UserError(f"checkpoint {path} is of another configuration ({key}); choose another --out")


def finished_phases(path: Path, config: RunConfig) -> int:
    """How many phases of this configuration a checkpoint holds; 0 where there is none to be read."""
    try:
        facts = read_facts(path)
    except UserError:
        return 0
    return len(facts["phases"]) if facts["config"] == config.to_dict() else 0


def _first_difference(found: Any, wanted: Any, where: str = "") -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in (*wanted, *found):
            if found.get(key) != wanted.get(key):
                return _first_difference(found.get(key), wanted.get(key), f"{where}.{key}".lstrip("."))
    return f"{where} is {found!r} there, {wanted!r} here"
