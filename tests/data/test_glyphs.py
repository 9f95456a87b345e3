"""The embedded glyphs: balanced, nothing blank, nothing shared by both sides, and refused when damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from phasezero.data import glyphs
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.errors import UserError

CLASSES = 100


@pytest.fixture(scope="module")
def data() -> ImageData:
    return load_data("glyphs")


def test_every_class_has_equally_many_sound_images(data: ImageData) -> None:
    for split, count in ((data.train, 168), (data.test, 64)):
        images = split.pixels
        assert images.dtype == np.uint8
        assert split.labels.dtype == np.int64
        assert images.shape == (CLASSES * count, 28, 28, 1)
        assert np.bincount(split.labels).tolist() == [count] * CLASSES
        assert (images.min(), images.max()) == (0, 255)
        assert images.max(axis=(1, 2)).min() > 85, "no image is blank"
        assert not images[:, [0, -1], :].any(), "none touches the border"
        assert not images[:, :, [0, -1]].any()
    pixels = data.train.pixels / 255
    assert data.preparation.mean == pytest.approx([pixels.mean()], abs=1e-4)
    assert data.preparation.std == pytest.approx([pixels.std()], abs=1e-4)


def test_names_belong_to_the_characters(data: ImageData) -> None:
    assert len(set(data.class_names)) == len(set(data.class_ids)) == CLASSES
    by_character = dict(zip(data.class_ids, data.class_names, strict=True))
    assert by_character["a"] == "latin small a"
    assert by_character["&"] == "ampersand"


def test_no_test_image_was_seen_in_training(data: ImageData) -> None:
    seen = {image.tobytes() for image in data.train.pixels}
    assert not any(image.tobytes() in seen for image in data.test.pixels)


def test_a_damaged_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packed = bytearray(glyphs.FILE.read_bytes())
    packed[len(packed) // 2] ^= 1
    monkeypatch.setattr(glyphs, "FILE", tmp_path / "glyphs.xz")
    glyphs.FILE.write_bytes(bytes(packed))  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"glyphs\.xz is damaged"):
        load_data("glyphs")
