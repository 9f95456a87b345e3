"""What tells one set of images from another."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from phasezero.data.images import END, ImageData, ImageSplit
from phasezero.errors import UserError


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
    for changed in (b"x" + long[1:], long[:-1] + b"x", long + b"x", long + b"\0"):
        assert split_of(tmp_path / "d" / "cat", b"aaaa", changed).fingerprint([0, 1]) != one
    assert split_of(tmp_path / "e" / "dog", b"aaaa", long).fingerprint([0, 1]) != one


def test_the_same_images_with_other_labels_are_others(tmp_path: Path) -> None:
    files = split_of(tmp_path / "cat", b"aaaa", b"bbbb")
    pixels = ImageSplit(np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1), files.labels)
    for split in (files, pixels):
        swapped = replace(split, labels=split.labels[::-1])
        assert swapped.fingerprint([0, 1]) != split.fingerprint([0, 1])


def test_names_that_are_no_text_have_a_fingerprint(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xfe.jpg")
    path.write_bytes(b"x")
    assert ImageSplit([path], np.zeros(1, np.int64)).fingerprint([0])


def test_a_class_that_no_table_could_show_is_refused(toy_data: ImageData) -> None:
    with pytest.raises(UserError, match=r"class of toy: 'bar\\n0' has a character that cannot be printed"):
        replace(toy_data, class_names=("bar\n0", *toy_data.class_names[1:]))
