"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STILL_WRITING = 60
"""Seconds since its last byte after which a file that is not finished never will be."""


def write_whole(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write instead: a reader of `path` finds the old one or the whole new one, never a part of either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            error.filename = str(path)  # nobody named the temporary one, and a full disk names none
        raise
    with suppress(OSError):  # the rename itself lasts only once the folder is synced; not every system can
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """What processes that were killed while they wrote files of this name (or pattern) left in a folder. One that
    somebody touched a moment ago may have a writer that lives, a second command in the same folder, and stays."""
    for left in folder.glob(f".{name}.*.tmp"):
        with suppress(OSError):  # gone, or still held
            if time.time() - left.stat().st_mtime > STILL_WRITING:
                left.unlink()
