"""Files of tensors and facts that contain the sha256 of their own content, so that damage is found before use.

A file is safetensors. Its metadata holds a format, facts as JSON, and the sha256 of the whole file, for which this
digest itself counts as zeros. A file is read as a whole and compared with its digest before anything in it is parsed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from phasezero.errors import UserError
from phasezero.records.files import replacing

EMPTY = b"0" * 64
DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
MOST_FACTS = 64 << 20
"""Bytes of a header beyond which a file is none of ours."""


class Sealed(NamedTuple):
    facts: dict[str, Any]
    tensors: dict[str, Tensor]


class DamagedError(UserError):
    """A file whose content does not match its digest."""


def write_sealed(
    path: Path, form: str, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], previous: Path | None = None
) -> None:
    """Write a file atomically; with `previous` the replaced file stays there.

    The old file is replaced only after the new file was read back and matched its digest.
    """
    metadata = {"format": form, "facts": json.dumps(facts), "sha256": EMPTY.decode()}
    # Not written by safetensors, which makes files private and raises its own error for a full disk.
    content = bytearray(save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata))
    place = _digest_place(content)
    assert place is not None
    content[place] = hashlib.sha256(content).hexdigest().encode()
    with replacing(path) as temporary:
        temporary.write_bytes(content)
        if not _is_sound(bytearray(temporary.read_bytes()), place):
            raise OSError(errno.EIO, "the file that was written reads back differently", str(path))
        if previous is not None:
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, previous)


def read_sealed(path: Path, form: str, what: str) -> Sealed:
    """Read a file; raise DamagedError if it does not match its digest, UserError if it is of another format."""
    try:
        content = bytearray(path.read_bytes())
    except OSError as error:
        raise UserError(f"{what} {path} cannot be read ({error.strerror or error})") from None
    place = _digest_place(content)
    if place is None:
        raise DamagedError(f"{path} is damaged, or not a {what} of this version of phasezero; remove it")
    if not _is_sound(content, place):
        raise DamagedError(f"{what} {path} is damaged: its content does not match its sha256; remove it")
    try:
        metadata = json.loads(content[8 : 8 + _header_size(content)])["__metadata__"]
        if metadata["format"] != form:
            raise UserError(f"{path} is not a {what} of this version of phasezero")
        return Sealed(json.loads(metadata["facts"]), load(bytes(content)))
    except (SafetensorError, LookupError, TypeError, RecursionError, json.JSONDecodeError) as error:  # not our seal
        raise DamagedError(f"{path} is not a {what} of phasezero ({error}); remove it") from None


def _header_size(content: bytes | bytearray) -> int:
    return min(int.from_bytes(content[:8], "little"), MOST_FACTS)


def _digest_place(content: bytes | bytearray) -> slice | None:
    """Return where the digest is in a file; None if there is none."""
    found = DIGEST.search(content, 8, 8 + _header_size(content))
    return None if found is None else slice(*found.span(1))


def _is_sound(content: bytearray, place: slice) -> bool:
    """Tell whether the content matches its digest."""
    written = bytes(content[place])
    content[place] = EMPTY
    sound = hashlib.sha256(content).hexdigest().encode() == written
    content[place] = written
    return sound
