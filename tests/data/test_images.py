"""Data sets made of arrays, and what tells one set of images from another."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phasezero import ImageData, View
from phasezero.data.images import END, ImageSplit
from phasezero.errors import UserError
from phasezero.records.run import comparable_part
from samples import Make, train

# ---- from arrays ------------------------------------------------------------------------------------------


def arrays(shape: tuple[int, ...] = (12, 8, 6, 3), classes: int = 4, **changes: Any) -> dict[str, Any]:
    """Arguments of from_arrays: random images, of which the test images are the first half."""
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    labels, half = np.arange(len(images)) % classes, len(images) // 2
    made = {"train_images": images, "train_labels": labels, "test_images": images[:half], "test_labels": labels[:half]}
    return {**made, **changes}


def test_arrays_become_a_data_set() -> None:
    given = arrays()
    data = ImageData.from_arrays(**given, class_names=("ant", "bee", "cat", "dog"), name="pets", padding=2, flip=False)
    assert data.in_memory
    assert (data.name, data.class_ids) == ("pets", ("ant", "bee", "cat", "dog"))
    assert data.class_names == data.class_ids
    assert np.array_equal(data.train.pixels, given["train_images"])
    assert data.test.labels.tolist() == [0, 1, 2, 3, 0, 1]
    assert data.preparation.view == View("pad", padding=2, flip=False)
    assert data.preparation.size == 8
    for c in range(3):  # of the training images alone
        values = given["train_images"][..., c] / 255
        assert data.preparation.mean[c] == pytest.approx(values.mean(), abs=1e-12)
        assert data.preparation.std[c] == pytest.approx(values.std(), abs=1e-12)


def test_grey_images_may_have_no_channel_and_labels_may_be_lists() -> None:
    given = arrays((12, 8, 8), train_labels=[0, 1, 2, 3] * 3)
    data = ImageData.from_arrays(**given)
    assert data.train.pixels.shape == (12, 8, 8, 1)
    assert data.test.pixels.shape == (6, 8, 8, 1)
    assert data.train.labels.dtype == np.int64
    assert data.class_names == ("0", "1", "2", "3")
    assert len(data.preparation.mean) == 1


def test_images_of_one_colour_can_be_normalised() -> None:
    same = np.full((12, 4, 4, 1), 77, np.uint8)
    preparation = ImageData.from_arrays(**arrays(train_images=same, test_images=same[:6])).preparation
    assert preparation.mean == (77 / 255,)
    assert preparation.std[0] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((12, 8, 6, 3))}, r"uint8 .*, got float64 \(12, 8, 6, 3\)"),
        ({"train_images": np.zeros((12, 8), np.uint8)}, r"got uint8 \(12, 8\)"),
        ({"test_images": np.zeros((0, 8, 6, 3), np.uint8)}, r"got uint8 \(0, 8, 6, 3\)"),
        ({"test_images": np.zeros((6, 6, 6, 3), np.uint8)}, r"are \(8, 6, 3\), test images \(6, 6, 3\)"),
        ({"train_labels": [0, 1]}, r"a whole number for each of 12 images, got int64 \(2,\)"),
        ({"train_labels": np.linspace(0, 3, 12)}, "a whole number for each"),
        ({"train_labels": np.arange(12) % 4 - 1}, "must be 0 to 3, each with a training image"),
        ({"train_labels": np.arange(12) % 4 * 10**12}, "must be 0 to 3, each with a training image"),
        ({"test_labels": [0, 1, 2, 3, 4, 0]}, "must be 0 to 3"),
        ({"class_names": ("ant", "bee", "cat")}, "must be 0 to 2"),
        ({"class_names": ("ant", "bee", "cat", "dog", "eel")}, "must be 0 to 4"),
        ({"class_names": ("ant", "bee", "cat", "d\nog")}, "cannot be printed"),
    ],
)
def test_arrays_that_make_no_data_set_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ImageData.from_arrays(**arrays(**changes))


def test_a_run_on_arrays(toy_data: ImageData, toy_config: Make) -> None:
    sides = [(split.pixels[..., 0], split.labels.tolist()) for split in (toy_data.train, toy_data.test)]
    data = ImageData.from_arrays(*sides[0], *sides[1], class_names=toy_data.class_names, name="toy", padding=1)
    record = train(toy_config(), data=data)
    assert record["data"]["name"] == "toy"
    assert [phase["seen_classes"] for phase in record["phases"]] == [4, 6, 8]
    # But for mean and deviation they are the same images: so is the run.
    alike = train(toy_config(), data=replace(data, preparation=toy_data.preparation))
    assert comparable_part(alike) == comparable_part(train(toy_config(), data=toy_data)) != comparable_part(record)


# ---- fingerprints -----------------------------------------------------------------------------------------


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
    for other in ("dog", os.fsdecode(b"\xff\xfe")):  # which is no text
        assert split_of(tmp_path / "e" / other, b"aaaa", long).fingerprint([0, 1]) != one


def test_the_same_images_with_other_labels_are_others(tmp_path: Path) -> None:
    files = split_of(tmp_path / "cat", b"aaaa", b"bbbb")
    pixels = ImageSplit(np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1), files.labels)
    for split in (files, pixels):
        swapped = replace(split, labels=split.labels[::-1])
        assert swapped.fingerprint([0, 1]) != split.fingerprint([0, 1])


def test_a_view_that_does_not_go_with_the_images_is_refused(toy_data: ImageData) -> None:
    with pytest.raises(ValueError, match="cropped by `pad`"):
        replace(toy_data, preparation=replace(toy_data.preparation, view=View("resized")))
