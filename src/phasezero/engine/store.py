"""Finished phase-0 states, kept by content: what went into one is hashed, and the hash is its name.

S=10, 5 and 2 share their phase 0, as do LUCIR and AANet, and an oracle is the phase 0 of all classes. An entry
is a checkpoint file with a note beside it; one whose file does not match the note's digest, whose note is of
another key, or whose images have other numbers, is never used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from phasezero.engine.device import environment
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.initial import TERMS
from phasezero.memory import MemoryRule
from phasezero.methods import METHODS
from phasezero.results.files import remove_unfinished, write_whole
from phasezero.results.record import Environment, PhaseRecord

NOTE = "phasezero-stored-1"


def phase_zero_key(
    config: RunConfig, data: ImageData, trainer: Trainer, made_in: Environment | None = None
) -> str:
    """A hash over everything that a finished phase 0 depends on, and nothing that only later phases see.

    That includes versions and device: the trainer's, or those a record says it was `made_in`.
    """
    first = trainer.stream.order[: trainer.stream.phases[0].seen]
    made_in = made_in or environment(trainer.device, trainer.photos)
    photos = made_in.get("photos")
    inputs = {
        "phasezero": made_in["phasezero"],
        "torch": made_in["torch"],
        "data": data.name,
        "classes": [data.class_ids[index] for index in first],
        "images": [split.fingerprint(first) for split in (data.train, data.test)],
        "preparation": asdict(data.preparation),
        "device": [made_in["device_name"], made_in["precision"], made_in["engine"]],
        # How sums are rounded goes by thread.
        **({"threads": made_in["threads"]} if made_in["device"] == "cpu" else {}),
        # Views sampled on the device differ slightly from those of files, whose keys stay as they were.
        **({"photos": photos} if photos == "resident" else {}),
        **phase_zero_settings(config, len(first)),
        **_looked_ahead(config, data, trainer.stream.order),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def phase_zero_settings(config: RunConfig, classes: int) -> dict[str, Any]:
    """The part of it that a configuration says, for a phase 0 of so many classes."""
    return {
        "network": asdict(config.network),
        "method": METHODS[config.method.name](config.method).phase_zero(),
        "initial": [asdict(term) for term in config.initial],
        "training": [asdict(config.training.first), config.training.brightness],
        "memory": [MemoryRule.parse(config.protocol.memory).quota(classes), config.protocol.selection],
        "seed": config.seed,
    }


def _looked_ahead(config: RunConfig, data: ImageData, order: tuple[int, ...]) -> dict[str, Any]:
    """What terms know beyond phase 0: a file's content, or all classes of the stream."""
    ahead = [term for term in config.initial if TERMS[term.name].looks_ahead]
    files = [_digest(Path(term.file)) for term in ahead if term.file and Path(term.file).is_file()]
    if len(files) == len(ahead):
        return {"files": files} if files else {}
    return {
        "files": files,
        "all classes": [data.class_ids[index] for index in order],
        "all images": [split.fingerprint(order) for split in (data.train, data.test)],
    }


@dataclass(frozen=True)
class Entry:
    key: str
    path: Path
    note: dict[str, Any]
    """Who made it: the run's name and seed, seconds, its key, the file's digest. Empty where it cannot be read."""

    @property
    def sound(self) -> bool:
        """Whether the file is what was written, and under this key."""
        mine = self.path.exists() and self.note.get("key") == self.key
        return mine and _digest(self.path) == self.note.get("sha256")


class PhaseZeroStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str, trainer: Trainer) -> Checkpoint | None:
        """The entry of that key; None where there is none, or none to be trusted.

        Nor is one whose images have other numbers in the trainer's data, because those of later classes changed:
        exemplars are kept as numbers. It is made anew then, under the same key.
        """
        entry = self._entry(key)
        if not entry.sound:
            return None
        try:
            return load_checkpoint(entry.path, trainer=trainer)
        except UserError:
            return None

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[None]:
        """Held by the run that makes an entry: others that want the same one wait, and then find it."""
        if fcntl is None:  # Windows: nobody waits, and a phase 0 may be trained twice
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._lock(key).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # given up with the file, even by a process that dies
            yield

    def _lock(self, key: str) -> Path:
        return self.folder / f".{key}.lock"

    def keep(self, key: str, config: RunConfig, trainer: Trainer, phase: PhaseRecord, seconds: float) -> None:
        path = self.folder / f"{key}.safetensors"
        remove_unfinished(self.folder, f"{key}.*")
        save_checkpoint(path, config, trainer, [phase], seconds)
        accuracy = phase["accuracy"]["head"]
        made_by = {"name": config.name, "seed": config.seed, "seconds": seconds, "accuracy": accuracy}
        note = {"format": NOTE, "key": key, **made_by, "sha256": _digest(path)}
        write_whole(self.folder / f"{key}.json", json.dumps(note, indent=1) + "\n")

    def entries(self) -> Iterator[Entry]:
        """All there are, those that are not to be trusted too: a note without a file, a file without a note."""
        if not self.folder.is_dir():
            raise UserError(f"store {self.folder}: there is no such folder")
        found = [path for suffix in ("json", "safetensors") for path in self.folder.glob(f"*.{suffix}")]
        # By their names: whatever else lies in the folder is somebody's, and is neither damaged nor pruned.
        for key in sorted({path.stem for path in found if re.fullmatch("[0-9a-f]{64}", path.stem)}):
            yield self._entry(key)

    def remove(self, entry: Entry) -> None:
        entry.path.unlink(missing_ok=True)
        self._lock(entry.key).unlink(missing_ok=True)
        (self.folder / f"{entry.key}.json").unlink(missing_ok=True)

    def _entry(self, key: str) -> Entry:
        facts: Any = {}
        with contextlib.suppress(OSError, ValueError):
            facts = json.loads((self.folder / f"{key}.json").read_text())
        return Entry(key, self.folder / f"{key}.safetensors", facts if isinstance(facts, dict) else {})


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
