"""Fetching an archive and unpacking it: resumable, checked against a published md5, never half in place."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import shutil
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from phasezero.errors import UserError

Report = Callable[[int, int | None], None]
"""Called with (bytes so far, bytes in all or None when the server does not say)."""

_BLOCK = 1 << 18
_TIMEOUT = 30.0  # seconds without a byte


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url: str, target: Path, *, md5: str, report: Report | None = None) -> bool:
    """Fetch `url` to `target`, which appears only when complete and of this md5. False: it was there already.

    What an interrupted call left in `target`.part is continued. Without `report` a progress bar is shown.
    """
    if target.is_file() and md5_of(target) == md5:
        return False
    part = target.with_name(target.name + ".part")
    try:
        if report is not None:
            _fetch(url, part, md5, report)
        else:
            with _bar(target.name) as shown:
                _fetch(url, part, md5, shown)
        found = md5_of(part)
        if found != md5:
            part.unlink()
            raise UserError(
                f"{url} gave a file with md5 {found}, expected {md5}; it was deleted: try again, or get "
                f"the file elsewhere and put it at {target}"
            )
        os.replace(part, target)
        _sync_folder(target.parent)
    except (OSError, http.client.HTTPException) as error:
        raise UserError(_failure(url, target, part, md5, error)) from error
    return True


def _fetch(url: str, part: Path, md5: str, report: Report) -> None:
    """Bring the part file to its full length, from where it ends if the server can."""
    have = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "phasezero", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
                raise
        # Nothing follows what we have: it is whole (killed just before the rename), or it is no part of this.
        if md5_of(part) != md5:
            part.unlink()
            return _fetch(url, part, md5, report)
        return None
    with answer:
        resumed = answer.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            part.unlink()
            return _fetch(url, part, md5, report)
        done = have if resumed else 0  # a server that ignores Range sends the file from its start
        length = answer.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        report(done, total)
        part.parent.mkdir(parents=True, exist_ok=True)  # not before there is something to put into it
        with part.open("ab" if resumed else "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                done += len(block)
                report(done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:  # read() ends quietly when the other side hangs up
        raise http.client.HTTPException(f"the connection broke off at {done:,} of {total:,} bytes")
    return None


def _failure(url: str, target: Path, part: Path, md5: str, error: Exception) -> str:
    host = urlsplit(url).hostname
    if isinstance(error, urllib.error.HTTPError):
        what = f"{host} answered {error.code} {error.reason} for {url}"
    elif isinstance(error, urllib.error.URLError):
        what = f"{host} could not be reached for {url} ({error.reason})"
    else:
        what = f"getting {url} failed ({error})"
    kept = " (what has arrived is kept and continued)" if part.is_file() else ""
    return f"{what}; try again later{kept}, or get the file elsewhere and put it at {target} (md5 {md5})"


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; Windows cannot open folders, and needs no such thing."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _bar(name: str) -> Iterator[Report]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def extract_tar(archive: Path, folder: Path, members: Collection[str]) -> None:
    """Unpack the named regular files of an archive under `folder`, and nothing else.

    An archive with a path that leads out of the folder, a link or a device is refused as a whole before
    anything is written; further files in it are left alone. Each file appears complete or not at all.
    """
    try:
        with tarfile.open(archive) as tar:
            entries = tar.getmembers()
            for entry in entries:
                _refuse_unsafe(archive, entry)
            wanted = {entry.name: entry for entry in entries if entry.isreg() and entry.name in members}
            missing = sorted(set(members) - set(wanted))
            if missing:
                raise UserError(f"{archive} has no {', '.join(missing)}: it is not the expected archive")
            for name, entry in wanted.items():
                _write_member(tar, entry, folder.joinpath(*PurePosixPath(name).parts))
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{archive} is damaged ({error}); delete it and get it again") from error


def _refuse_unsafe(archive: Path, entry: tarfile.TarInfo) -> None:
    path = PurePosixPath(entry.name.replace("\\", "/"))
    # A colon is a drive or a stream on Windows; no archive of ours has one.
    if path.is_absolute() or ".." in path.parts or ":" in entry.name:
        raise UserError(f"{archive} was not unpacked: {entry.name!r} in it leads out of its folder")
    if not (entry.isreg() or entry.isdir()):
        raise UserError(f"{archive} was not unpacked: {entry.name!r} in it is a link or a device")


def _write_member(tar: tarfile.TarFile, entry: tarfile.TarInfo, target: Path) -> None:
    source = tar.extractfile(entry)
    assert source is not None  # only regular files get here
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with source, part.open("wb") as file:
        shutil.copyfileobj(source, file, _BLOCK)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, target)
