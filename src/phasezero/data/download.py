"""Download and unpack an archive: resumable, checked against a published md5, atomic."""

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
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from phasezero.errors import UserError
from phasezero.records.files import replacing
from phasezero.steps import Steps

_BLOCK = 1 << 18
_TIMEOUT = 30.0  # seconds without a byte


def md5_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(url: str, target: Path, *, md5: str) -> bool:
    """Download `url` to `target`, continuing an earlier call; return False if a file with this md5 is there."""
    if target.is_file() and md5_of(target) == md5:
        return False
    part = target.with_name(target.name + ".part")
    elsewhere = f"get the file elsewhere and put it at {target} (md5 {md5})"
    try:
        _fetch(url, part, md5)
        found = md5_of(part)
        if found != md5:
            part.unlink()
            raise UserError(f"{url} gave a file with md5 {found}; it was deleted: try again, or {elsewhere}")
        os.replace(part, target)
    except (OSError, http.client.HTTPException) as error:  # both messages name the host, the status or the file
        kept = " (it continues where it stopped)" if part.is_file() else ""
        raise UserError(f"download of {url} failed: {error}; try again later{kept}, or {elsewhere}") from error
    return True


def _fetch(url: str, part: Path, md5: str) -> None:
    """Complete the partial file, from where it ends if the server supports it."""
    have = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "phasezero", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT) as answer:
            if answer.status != http.HTTPStatus.PARTIAL_CONTENT:  # a server that ignores Range sends the whole file
                return _save(answer, part, 0)
            if answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                return _save(answer, part, have)
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
                raise
        if md5_of(part) == md5:  # the file is complete: an earlier call was killed just before the rename
            return None
    part.unlink()  # it is not a part of the server's file
    return _fetch(url, part, md5)


def _save(answer: http.client.HTTPResponse, part: Path, done: int) -> None:
    """Write the response to the partial file, from byte `done` on, and show the progress."""
    length = answer.headers.get("Content-Length", "")
    total = done + int(length) if length.isdigit() else None
    part.parent.mkdir(parents=True, exist_ok=True)  # only once there is something to write
    with Steps() as steps, part.open("ab" if done else "wb") as file:
        while block := answer.read(_BLOCK):
            file.write(block)
            done += len(block)
            steps(f"downloading {part.stem}, MB", done // 10**6, (total or done + 10**6) // 10**6)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done < total:  # read() reports no error when the server hangs up
        raise http.client.HTTPException(f"the connection broke off at {done:,} of {total:,} bytes")


def extract_tar(archive: Path, folder: Path, members: Collection[str]) -> None:
    """Unpack the named regular files of an archive under `folder`; each file appears complete or not at all.

    An archive with a link, a device or a path that leads out of the folder is rejected before anything is written.
    """
    try:
        with tarfile.open(archive) as tar:
            entries = tar.getmembers()
            for entry in entries:
                _check_safe(archive, entry)
            wanted = {entry.name: entry for entry in entries if entry.isreg() and entry.name in members}
            missing = sorted(set(members) - set(wanted))
            if missing:
                raise UserError(f"{archive} has no {', '.join(missing)}: it is not the expected archive")
            for name, entry in wanted.items():
                source = tar.extractfile(entry)
                assert source is not None  # not None for a regular file
                with source, replacing(folder / name) as temporary, temporary.open("wb") as file:
                    shutil.copyfileobj(source, file, _BLOCK)
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{archive} is damaged ({error}); delete it and download it again") from error


def _check_safe(archive: Path, entry: tarfile.TarInfo) -> None:
    path = PurePosixPath(entry.name.replace("\\", "/"))
    # A colon means a drive or a stream on Windows. No archive that we use has a colon.
    if path.is_absolute() or ".." in path.parts or ":" in entry.name:
        raise UserError(f"{archive} was not unpacked: {entry.name!r} in it leads out of its folder")
    if not (entry.isreg() or entry.isdir()):
        raise UserError(f"{archive} was not unpacked: {entry.name!r} in it is a link or a device")
