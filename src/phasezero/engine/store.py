"""The store of finished phase-0 states. The key of a state is a hash of everything that it depends on.

S=10, 5 and 2 share their phase 0, as do LUCIR and AANet, and an oracle is the phase 0 of all classes. An entry is a
checkpoint file and a note. An entry whose file does not match the note's sha256, whose note has another key, or whose
images have other indices, is never used.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from phasezero.config import RunConfig, leaves
from phasezero.engine.checkpoint import Checkpoint, Trained, load_checkpoint, save_checkpoint
from phasezero.engine.device import environment
from phasezero.engine.trainer import Trainer
from phasezero.engine.within import trained_state
from phasezero.errors import UserError
from phasezero.initial import STRATEGIES
from phasezero.memory import MemoryRule
from phasezero.methods import METHODS
from phasezero.nets import NETWORKS
from phasezero.records.files import read_file, remove_unfinished, write_whole
from phasezero.records.locks import locked
from phasezero.records.run import Environment, PhaseRecord

NOTE = "phasezero-stored-1"

NOT_READ = {"name", "method.variant", "engine.loss_limit"} | {
    f"protocol.{name}" for name in ("base", "step", "phase_sizes", "selection")
}
"""Fields that a finished phase 0 does not depend on, in addition to those declared with `later`."""
REPLACED = {"protocol.data", "protocol.class_order", "protocol.memory", "method.name", "network.weights"} | {
    f"engine.{name}" for name in ("device", "precision", "engine", "threads", "photos")
}
"""Fields that the key replaces by their results: classes, images, exemplars per class, weights, device, precision."""

CODE = (
    "data/*",
    "nets/*",
    "engine/*",
    "initial/combine",
    "memory",
    "schedule",
    "seeding",
    "records/metrics",
    "records/run",
)
"""Files of the package that every phase 0 uses."""
_PARSING = threading.Lock()  # where two threads parse at once, Python 3.11 may raise SystemError


def phase_zero_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a finished phase 0 may depend on: all except those known not to matter."""
    found = {key: value for key, value in leaves(_first_values(config)) if key not in NOT_READ | REPLACED}
    method = METHODS[config.method.name]
    quota = MemoryRule.parse(config.protocol.memory).quota(config.protocol.first_classes)
    memory = {"memory": quota} if method.memory_in_phase_zero else {}
    return {**found, "method": method.phase_zero_like or config.method.name, **memory}


def _first_values(value: Any) -> Any:
    """Return nested dataclasses as mappings, without the fields that only later phases read."""
    if is_dataclass(value):
        first = [field.name for field in fields(value) if not field.metadata.get("later")]
        return {name: _first_values(getattr(value, name)) for name in first}
    return [_first_values(entry) for entry in value] if isinstance(value, tuple) else value


def phase_zero_of(config: RunConfig) -> str:
    """Return a text that is equal for configurations that share their phase 0 on the same machine."""
    protocol = config.protocol
    own = [protocol.data, protocol.class_order, protocol.first_classes, config.network.weights]
    inputs = [*own, phase_zero_settings(config)]
    return json.dumps(inputs, sort_keys=True)


def phase_zero_key(trainer: Trainer, made_in: Environment | None = None) -> str:
    """Return a hash of all that a finished phase 0 depends on, including the machine (this or a record's)."""
    config, order = trainer.config, trainer.stream.order
    made_in = made_in or environment(trainer.device, trainer.setup.photos)
    inputs = {
        "code": code_hash(config),
        "torch": made_in["torch"],
        "data": trainer.data.name,
        "images": trainer.contents(order[: trainer.stream.phases[0].seen]),
        "preparation": asdict(trainer.data.preparation),
        "weights": trainer.pretrained.sha256 if trainer.pretrained is not None else "",
        "device": [made_in["device_name"], made_in["precision"], made_in["engine"], made_in.get("photos")],
        # Rounding depends on the number of threads.
        "threads": made_in["threads"] if made_in["device"] == "cpu" else 0,
        # What terms use beyond phase 0: the content of a file, or all classes of the stream.
        "ahead": [
            _digest(Path(term.file)) if term.file else trainer.contents(order)
            for term in config.initial
            if term.file or STRATEGIES[term.name].looks_ahead
        ],
        **phase_zero_settings(config),
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def code_hash(config: RunConfig) -> str:
    """Return a hash of the source code that phase 0 uses; comments and docstrings do not count.

    This is all of data, nets and engine, and the files of the method, the network and the terms, including plug-ins.
    The code that loads a data set is left out, since the key covers the images themselves.
    """
    method, network = METHODS[phase_zero_settings(config)["method"]], NETWORKS[config.network.name]
    terms = [STRATEGIES[term.name] for term in config.initial]
    used: list[Any] = [network, *(base for part in (method, *terms) for base in part.__mro__)]
    modules: set[str] = set()
    for part in used:
        _add_modules((part.func if isinstance(part, functools.partial) else part).__module__, modules)
    package = Path(__file__).parent.parent
    code = CODE if "phasezero" not in modules else ("**/*",)  # a plug-in that holds the whole package may use any of it
    paths = {path for part in code for path in package.glob(f"{part}.py")}
    for name in modules:
        source = getattr(sys.modules.get(name), "__file__", None)
        if source is None:  # in a notebook, where changes of the code cannot be detected
            return uuid.uuid4().hex
        paths.add(Path(source))
    with _PARSING:
        texts = sorted((path.name, _code_of(path)) for path in paths)
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def _add_modules(name: str, found: set[str]) -> None:
    """Add a module and the methods and terms that it imports; for a plug-in also all modules that are not installed."""
    package = name.partition(".")[0]
    if name in found or package == "torch" or package in sys.stdlib_module_names:
        return
    found.add(name)
    followed = ("phasezero.methods.", "phasezero.initial.") if package == "phasezero" else ("phasezero.", f"{package}.")
    for value in list(getattr(sys.modules.get(name), "__dict__", {}).values()):
        source = str(value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None))
        file = getattr(sys.modules.get(source), "__file__", None) or "site-packages"
        own = package != "phasezero" and not {"site-packages", "dist-packages"} & {*Path(file).parts}
        if own or f"{source}.".startswith(followed):
            _add_modules(source, found)


@functools.cache
def _code_of(path: Path) -> str:
    """Return a file's syntax tree as text, without docstrings; for a compiled module its sha256."""
    if path.suffix != ".py":
        return _digest(path)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return ast.dump(tree)


class Entry:
    """A stored state: a checkpoint file, a note, and a lock that is held while they are made."""

    def __init__(self, folder: Path, key: str) -> None:
        self.key, self.path = key, folder / f"{key}.safetensors"
        self.note_path, self.lock = folder / f"{key}.json", folder / f".{key}.lock"
        self.note: dict[str, Any] = {}
        """The run that made it, its seed and seconds, the key and the file's sha256. Empty if it cannot be read."""
        with contextlib.suppress(OSError, ValueError, RecursionError):  # UserError is a ValueError
            found = json.loads(read_file(self.note_path, "note"))
            self.note = found if isinstance(found, dict) else {}

    @property
    def sound(self) -> bool:
        """Tell whether the file is intact and belongs to this key."""
        mine = self.path.exists() and self.note.get("key") == self.key
        return mine and _digest(self.path) == self.note.get("sha256")


class PhaseZeroStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str, trainer: Trainer) -> Checkpoint | None:
        """Return the entry of a key; None if it is damaged, or if its images have other indices now."""
        entry = Entry(self.folder, key)
        if entry.sound:
            with contextlib.suppress(UserError):
                return load_checkpoint(entry.path, trainer=trainer)
        return None

    @contextlib.contextmanager
    def claim(self, key: str, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """Lock an entry while it is made: other runs that need the same entry say so, wait, and then find it."""
        with locked(Entry(self.folder, key).lock, "trains the same phase 0", say=say):
            yield

    def state_path(self, key: str) -> Path:
        """Return the file of the state within a phase 0 that is being made."""
        return self.folder / f"{key}-within.safetensors"

    def keep(self, key: str, trainer: Trainer, phase: PhaseRecord, seconds: float) -> None:
        """Save a finished phase 0."""
        config, entry = trainer.config, Entry(self.folder, key)
        remove_unfinished(self.folder, f"{key}*", abandoned=True)  # only the holder of the lock writes them
        done = Trained([phase], seconds, reused_phase_zero=False, parts=[])
        save_checkpoint(entry.path, trainer, done, trained_state(trainer.model))
        accuracy = phase["accuracy"]["head"]
        made_by = {"name": config.name, "seed": config.seed, "seconds": seconds, "accuracy": accuracy}
        note = {"format": NOTE, "key": key, **made_by, "sha256": _digest(entry.path)}
        write_whole(entry.note_path, json.dumps(note, indent=1) + "\n")

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, including damaged entries: a note without a file, a file without a note."""
        if not self.folder.is_dir():
            raise UserError(f"store {self.folder}: no such folder")
        found = [path for suffix in ("json", "safetensors") for path in self.folder.glob(f"*.{suffix}")]
        # Found by name: other files in the folder are not entries and are never removed.
        for key in sorted({path.stem for path in found if re.fullmatch("[0-9a-f]{64}", path.stem)}):
            yield Entry(self.folder, key)

    def clean(self, *, states: bool) -> None:
        """Remove temporary files, and with `states` also phase-0 states under way; a run that uses them keeps them."""
        patterns = [".*.tmp", "*-within*.safetensors"] if states else [".*.tmp"]
        for path in [path for pattern in patterns for path in self.folder.glob(pattern)]:
            if found := re.match(r"\.?([0-9a-f]{64})", path.name):
                with contextlib.suppress(UserError), locked(Entry(self.folder, found[1]).lock, "uses it", wait=0):
                    path.unlink(missing_ok=True)

    def remove(self, entry: Entry) -> None:
        for path in (entry.path, entry.note_path, entry.lock):
            path.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
