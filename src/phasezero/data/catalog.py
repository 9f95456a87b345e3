"""The catalog: data sets by name. `glyphs` is inside the package, the others are read from a folder.

A name may carry an argument after a colon (`folder:PATH`). Loading never downloads: `phasezero data get`
does that, when asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phasezero.data.images import ImageData
from phasezero.errors import UserError
from phasezero.registry import Registry


@dataclass(frozen=True)
class DataSet:
    """An entry of the catalog: how to load it, and one line for `phasezero list`."""

    load: Callable[[Path, str], ImageData]
    """(root folder, argument after the colon or "") -> the images; raises UserError with what is missing."""
    summary: str
    class_order: str
    """The class order that published work uses with it (a name that data.stream knows)."""
    present: Callable[[Path], bool] = lambda root: True
    """Whether its files seem to be under the root (a cheap look, for `phasezero data`)."""
    download: Callable[[Path], None] | None = None


DATA_SETS: Registry[DataSet] = Registry("data set")


def default_root() -> Path:
    """Where data sets are looked for when no --root is given: $PHASEZERO_DATA, else ./data."""
    return Path(os.environ.get("PHASEZERO_DATA", "data")).expanduser()


def split_name(name: str) -> tuple[str, str]:
    """`folder:PATH` -> ("folder", "PATH"); a plain name has an empty argument."""
    entry, _, argument = name.partition(":")
    return entry, argument


def load_data(name: str, root: str | Path | None = None) -> ImageData:
    entry, argument = split_name(name)
    data_set = DATA_SETS[entry]
    if argument and entry != "folder":
        raise UserError(f"data set {entry!r} takes no argument, got {name!r}; use --root for its folder")
    return data_set.load(Path(root).expanduser() if root else default_root(), argument)
