"""Locks on folders and files: held by a process while it writes, released when it ends, even by a crash."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import TextIO

from phasezero.errors import UserError

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]

NAP = 0.1
"""Seconds between two tries."""


@contextlib.contextmanager
def locked(
    path: Path, what: str, wait: float = float("inf"), say: Callable[[str], None] = lambda _: None
) -> Iterator[None]:
    """Hold the lock file at `path` in this block. Another holder is named to `say`; after `wait` seconds in an error.

    `what` describes in these messages what the holder does, such as "is changing this model".
    """
    if fcntl is None:
        yield
        return
    made = [folder for folder in path.parents if not folder.exists()]
    end, told = time.monotonic() + wait, False
    while (file := _taken(path)) is None:
        message = f"{path.parent}: another process {what} ({_holder(path)})"
        if time.monotonic() >= end:
            raise UserError(f"{message}; wait for it, or stop it")
        if not told:
            say(f"{message}; waiting")
            told = True
        sleep(NAP)
    with file:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty
                for folder in made:
                    folder.rmdir()


def _taken(path: Path) -> TextIO | None:
    """Lock a file and write who holds it; return None if another process holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except FileNotFoundError:  # its last holder has just removed an empty folder
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")
            file.flush()
            return file
    except (BlockingIOError, FileNotFoundError):  # held, or removed by its last holder: a new try makes a new file
        pass
    file.close()
    return None


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()[:200] or "just started"
    return "just ended"
