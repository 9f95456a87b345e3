"""What tells one set of images from another."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from phasezero.data.images import END, ImageSplit


def split_of(folder: Path, *contents: bytes) -> ImageSplit:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{place}.bmp" for place in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return ImageSplit(paths, np.arange(len(paths)))


def test_files_of_the_same_names_and_sizes_are_told_apart(tmp_path: Path) -> None:
    long = bytes(5 * END)
    one = split_of(tmp_path / "a" / "cat", b"aaaa", long).fingerprint([0, 1])
    assert split_of(tmp_path / "b" / "cat", b"aaaa", long).fingerprint([0, 1]) == one  # a copy elsewhere
    assert split_of(tmp_path / "c" / "cat", b"aaab", long).fingerprint([0, 1]) != one
    for changed in (b"x" + long[1:], long[:-1] + b"x", long + b"x"):
        assert split_of(tmp_path / "d" / "cat", b"aaaa", changed).fingerprint([0, 1]) != one
    assert split_of(tmp_path / "e" / "dog", b"aaaa", long).fingerprint([0, 1]) != one


def test_names_that_are_no_text_have_a_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xfe.jpg")
    path.write_bytes(b"x")
    assert ImageSplit([path], np.zeros(1, np.int64)).fingerprint([0])
