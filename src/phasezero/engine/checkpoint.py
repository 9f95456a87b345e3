"""A finished phase on disk: model, exemplars and the record so far, in one safetensors file, written whole or not.

A stopped run continues after its last finished phase, to the same record. Neither generators nor optimisers are saved:
random numbers are derived from names (seeding.py), and each phase starts with fresh momentum.
"""

from __future__ import annotations

import json
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
    """Of computing, in all sessions."""
    reused_phase_zero: bool
    """Whether phase 0 came from a store: its seconds are then not counted."""


@dataclass(frozen=True)
class Checkpoint(Trained):
    model: dict[str, Tensor]
    exemplars: list[Tensor]
    config: dict[str, Any]
    """Of the run that wrote it."""


def phase_checkpoint(checkpoint: Path, phase: int | str) -> Path:
    """Return where the state after one phase stays, beside the checkpoint that the next phase overwrites."""
    return checkpoint.with_name(f"{checkpoint.stem}-phase{phase}{checkpoint.suffix}")


def save_checkpoint(path: Path, trainer: Trainer, trained: Trained) -> None:
    """Write the state after the last finished phase."""
    tensors = {f"model.{name}": tensor.contiguous() for name, tensor in trainer.model.state_dict().items()}
    tensors |= {f"exemplars.{position}": kept for position, kept in enumerate(trainer.memory.by_class)}
    images = trainer.images_hash(len(trained.phases))
    facts = {"config": trainer.config.to_dict(), **vars(trained), "images": images}
    # Written by ourselves: safetensors hides its files from others, and calls a full disk its own error.
    content = save(tensors, metadata={"format": FORMAT, "facts": json.dumps(facts)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def load_checkpoint(path: Path, config: RunConfig | None = None, trainer: Trainer | None = None) -> Checkpoint:
    """Read a checkpoint; raise UserError unless it is of this configuration and this trainer's images (where given)."""
    facts = read_facts(path, config)
    _, tensors = _read(path, tensors=True)
    phases, known = facts["phases"], facts.get("images")
    if trainer is not None and known and known != trainer.images_hash(len(phases)):
        # Exemplars are kept as indices: with other images they would be other exemplars.
        raise UserError(f"checkpoint {path} was made from other images than those there now; choose another --out")
    try:
        exemplars = [tensors[f"exemplars.{position}"] for position in range(phases[-1]["seen_classes"])]
    except LookupError:
        raise UserError(f"checkpoint {path} is damaged: exemplars are missing") from None
    model = {name.removeprefix("model."): one for name, one in tensors.items() if name.startswith("model.")}
    reused = bool(facts.get("reused_phase_zero"))
    return Checkpoint(phases, facts["seconds"], reused, model, exemplars, facts["config"])


def _read(path: Path, *, tensors: bool) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata of a file and, where they are asked for, its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys() if tensors else ()
            return file.metadata() or {}, {name: file.get_tensor(name) for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"checkpoint {path} cannot be read: not a checkpoint of phasezero, or damaged; remove it ({error})"
        ) from None


def read_facts(path: Path, config: RunConfig | None = None) -> dict[str, Any]:
    """Return the facts of a checkpoint; raise UserError for any other file and for another configuration."""
    metadata, _ = _read(path, tensors=False)
    if metadata.get("format") != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this phasezero")
    try:
        facts: dict[str, Any] = json.loads(metadata["facts"])
        facts |= {"config": complete(facts["config"]), "seconds": float(facts["seconds"])}
        if not facts["phases"][-1]["seen_classes"] > 0:
            raise ValueError
    except (ValueError, TypeError, LookupError):
        raise UserError(f"checkpoint {path} is damaged: its facts are not complete") from None
    if config and (apart := differing([dict(leaves(one)) for one in (facts["config"], config.to_dict())])):
        key = next((key for key in apart if key != "name"), "name")  # which follows from the other settings
        there, here = apart[key]
        raise UserError(
            f"checkpoint {path} is of another configuration ({key} is {there!r} there, {here!r} here); "
            "choose another --out"
        )
    return facts


def finished_phases(path: Path, config: RunConfig) -> int:
    """Return how many phases of this configuration a checkpoint holds; 0 where no such checkpoint can be read."""
    try:
        return len(read_facts(path, config)["phases"])
    except UserError:
        return 0
