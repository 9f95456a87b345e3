"""What was tried for a cell or claim that is off, told by hand in `notes.yaml` and printed beside it.

cells: {TABLE: {RUN: TEXT}}      # RUN: the preset that stands for the cell
claims: {CLAIM: TEXT}
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from phasezero.errors import UserError, unknown

FILE_NAME = "notes.yaml"


@dataclass(frozen=True)
class Notes:
    cells: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By table and run."""
    claims: Mapping[str, str] = field(default_factory=dict)


def read_notes(path: Path, cells: Mapping[str, Collection[str]], claims: Collection[str]) -> Notes:
    """The notes in a file, none where there is no file; a key that is no cell or claim is refused."""
    if not path.exists():
        return Notes()
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not YAML: {error}") from None
    parts = _mapping(path, "the file", values, ("cells", "claims"))
    by_table = {
        table: _texts(path, table, some, cells[table])
        for table, some in _mapping(path, "cells", parts.get("cells"), cells).items()
    }
    return Notes(by_table, _texts(path, "claims", parts.get("claims"), claims))


def _mapping(path: Path, where: str, value: Any, known: Collection[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"{path}: {where} should be a mapping, not {type(value).__name__}")
    for key in value:
        if key not in known:
            raise UserError(f"{path}: {unknown(f'key in {where}', str(key), list(known))}")
    return value


def _texts(path: Path, where: str, value: Any, known: Collection[str]) -> dict[str, str]:
    found = _mapping(path, where, value, known)
    for key, text in found.items():
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{path}: {where}, {key}: a text is expected")
    return {key: " ".join(text.split()) for key, text in found.items()}
