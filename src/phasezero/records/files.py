"""Files and folders: written atomically, named after runs."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from phasezero.errors import UserError
from phasezero.validation import check_printable

MOST_BYTES = 256 << 20
"""Far more than any text file or photo needs, and little enough for memory."""
LONGEST = 180  # characters of a folder name; most file systems allow 255 bytes
STILL_WRITING = 60
"""Seconds since its last change after which an unfinished file counts as abandoned."""


def check_regular(path: Path, what: str) -> int:
    """Return the size of a file that a user named; raise UserError if it is missing, or no regular file.

    Opening a pipe would wait for its writer, and a device has no end.
    """
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero character
        raise UserError(f"{path}: no {what} to read ({getattr(error, 'strerror', None) or error})") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe, device or socket"
        raise UserError(f"{path}: no {what} to read (it is {kind}, not a file)")
    return found.st_size


def read_file(path: Path, what: str, most: int | None = None) -> bytes:
    """Return the content of a regular file of at most `most` bytes (MOST_BYTES); raise UserError for any other."""
    most = MOST_BYTES if most is None else most
    check_regular(path, what)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise UserError(f"{path}: no {what} to read ({error.strerror or error})") from error
    if len(content) > most:
        raise UserError(f"{path}: larger than {most >> 20} MiB, so not a {what} of phasezero")
    return content


def write_whole(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write; it replaces `path` when it is complete."""
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
            error.filename = str(path)  # the user's file, which the error of a full disk does not name
        raise
    with suppress(OSError):  # a rename is durable only once the folder is synced, where the system can
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def remove_unfinished(folder: Path, name: str = "*", *, abandoned: bool = False) -> None:
    """Remove temporary files of killed writers; a recent file may still be in use, unless all are `abandoned`."""
    for left in folder.glob(f".{name}.*.tmp"):
        with suppress(OSError):  # already removed, or in use
            if abandoned or time.time() - left.stat().st_mtime > STILL_WRITING:
                left.unlink()


@contextmanager
def writable(folder: Path | None, option: str = "--out") -> Iterator[None]:
    """Make the folder, if given, and check that it is writable; after an error remove folders that stayed empty."""
    if folder is None:
        yield
        return
    check_printable(option, str(folder))  # it is printed, and written into pages and notes
    made = [path for path in [folder, *folder.parents] if not path.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"folder {folder} cannot be written: {reason}; choose another {option}") from None
        yield
    except BaseException:
        for path in made:
            with suppress(OSError):  # not empty
                path.rmdir()
        raise


def slug(name: str) -> str:
    """Return the folder name of a run: letters, digits and +._- stay, a name that is too long is cut."""
    plain = re.sub(r"[^A-Za-z0-9+._-]+", "-", name).strip("-.") or "run"
    if len(plain) <= LONGEST:
        return plain
    return f"{plain[:LONGEST]}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:12]}"


def find_files(paths: Iterable[str | Path], pattern: str) -> list[Path]:
    """Return files, each once: a path is a file, a folder with such a file, or a folder searched at any depth."""
    found: dict[Path, None] = {}  # an ordered set: a run reached by two paths must not count as two seeds
    for path in map(Path, paths):
        files = [path]
        if path.is_dir():
            files = [path / pattern] if (path / pattern).exists() else sorted(path.rglob(pattern))
        if not files:
            raise UserError(f"{path}: no {pattern.replace('*', 'N')} in this folder or below it")
        found.update(dict.fromkeys(file.resolve() for file in files))
    return list(found)


def relative(path: Path, start: Path) -> str:
    """Return a path relative to a folder."""
    return Path(os.path.relpath(path.resolve(), start.resolve())).as_posix()
