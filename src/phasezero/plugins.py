"""Plug-ins: external code that registers methods, phase-0 strategies, data sets and networks.

A plug-in is a Python file (`phasezero --plugin FILE`, `load_plugin`) or an installed package with an entry point of the
group `phasezero.plugins`. When it is imported, it calls `register_method` and the like.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from phasezero.errors import UserError
from phasezero.validation import user_path

GROUP = "phasezero.plugins"

_files: dict[Path, str] = {}
_installed: dict[str, str] | None = None
"""The sha256 of the source of each plug-in, computed when it was loaded."""


def load_plugin(path: str | Path) -> None:
    """Import a Python file as a plug-in; a file that was imported before is not imported again.

    >>> import pathlib, tempfile
    >>> from phasezero import load_plugin
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name) / "mine.py"
    >>> _ = file.write_text("from phasezero import register_method")
    >>> load_plugin(file)
    """
    file = user_path(path).resolve()
    if file in _files:
        return
    if not file.is_file() or file.suffix != ".py":
        raise UserError(f"--plugin {path}: a Python file is expected")
    spec = importlib.util.spec_from_file_location(f"phasezero_plugin_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise _failed(f"--plugin {path}", error) from error
    _files[file] = _digest(file)


def load_installed() -> None:
    """Import the installed plug-ins, once per process."""
    global _installed
    if _installed is None:
        _installed = {}  # before the imports, which may use a registry
        for point in installed():
            try:
                found = point.load()
            except Exception as error:
                raise _failed(f"installed plug-in {point.name!r} ({point.value})", error) from error
            module = found if isinstance(found, ModuleType) else sys.modules[point.module]
            _installed[point.name] = _digest(Path(module.__file__)) if module.__file__ else ""


def installed() -> list[EntryPoint]:
    """Return the entry points of installed plug-ins, without importing them."""
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def plugin_files() -> list[Path]:
    """Return the files that `load_plugin` has imported, for worker processes to import."""
    return list(_files)


def loaded_plugins() -> dict[str, str]:
    """Return the sha256 of the source of every loaded plug-in, by name. Records keep it."""
    load_installed()  # unpickling in a worker process may have imported one already
    return {path.name: digest for path, digest in _files.items()} | (_installed or {})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _failed(what: str, error: Exception) -> UserError:
    """Name the line where a plug-in's own code failed, for its developer."""
    if isinstance(error, UserError):
        return UserError(f"{what}: {error}")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return UserError(f"{what} failed: {type(error).__name__}: {error} ({frame.filename}, line {frame.lineno})")
