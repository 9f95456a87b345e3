"""Files of tensors and facts that were damaged in any place, or that another program made."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from phasezero import UserError
from phasezero.engine.sealed import DamagedError, read_sealed, write_sealed

TENSORS = {"a": torch.arange(5000.0), "b": torch.zeros(0, 3), "c": torch.tensor(7, dtype=torch.int32)}
PLACES = 300


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "file.safetensors"
    write_sealed(path, "form-1", {"phases": [1, 2.5, "ü"]}, TENSORS)
    return path


def test_what_was_written_is_read(sealed: Path) -> None:
    facts, tensors = read_sealed(sealed, "form-1", "state")
    assert facts == {"phases": [1, 2.5, "ü"]}
    assert {name: one.tolist() for name, one in tensors.items()} == {n: one.tolist() for n, one in TENSORS.items()}
    assert tensors["b"].shape == (0, 3)


@pytest.mark.parametrize("damage", ["bit", "block", "cut", "longer"])
def test_every_damage_is_found(damage: str, sealed: Path) -> None:
    whole, rng = sealed.read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    for turn in range(PLACES):
        content, place = bytearray(whole), rng.randrange(len(whole) if turn % 2 else header)
        if damage == "bit":
            content[place] ^= 1 << rng.randrange(8)
        elif damage == "block":
            content[place : place + 4096] = bytes(len(content[place : place + 4096]))
        elif damage == "cut":
            del content[place:]
        else:
            content[place:place] = b"x"
        if content == whole:  # zeros that were zeros before
            continue
        sealed.write_bytes(content)
        with pytest.raises(DamagedError, match=r"file\.safetensors .*(damaged|is not a state)"):
            read_sealed(sealed, "form-1", "state")


def test_other_files_are_refused(sealed: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a checkpoint of this version"):
        read_sealed(sealed, "form-2", "checkpoint")
    for content in (b"", b"no", b"\xff" * 5000):
        sealed.write_bytes(content)
        with pytest.raises(DamagedError):
            read_sealed(sealed, "form-1", "state")
    save_file(TENSORS, sealed, {"format": "form-1", "facts": "{}"})  # of version 0.2.0: no digest
    with pytest.raises(DamagedError, match="not a state of this version of phasezero"):
        read_sealed(sealed, "form-1", "state")
    with pytest.raises(UserError, match="cannot be read"):
        read_sealed(tmp_path / "missing", "form-1", "state")


def test_the_file_before_is_kept_until_the_new_file_is_verified(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, previous = sealed.read_bytes(), sealed.with_name("previous.safetensors")
    with monkeypatch.context() as patched:
        patched.setattr("phasezero.engine.sealed._is_sound", lambda *_: False)  # the disk gives back other bytes
        with pytest.raises(OSError, match="reads back differently"):
            write_sealed(sealed, "form-1", {}, {}, previous)
    assert (sealed.read_bytes(), previous.exists(), len(list(sealed.parent.iterdir()))) == (before, False, 1)
    write_sealed(sealed, "form-1", {}, {}, previous)
    assert previous.read_bytes() == before
    assert read_sealed(sealed, "form-1", "state").facts == {}
