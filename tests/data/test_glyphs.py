"""The embedded glyphs: balanced, nothing blank, nothing shared by both sides, and refused when damaged."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from phasezero.data import glyphs
from phasezero.data.glyphs import GlyphArrays, load_glyphs
from phasezero.errors import UserError

CLASSES = 100


@pytest.fixture(scope="module")
def arrays() -> GlyphArrays:
    return load_glyphs()


def both_sides(arrays: GlyphArrays) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(arrays.train_images, arrays.train_labels), (arrays.test_images, arrays.test_labels)]


def test_shapes_and_types(arrays: GlyphArrays) -> None:
    for images, labels in both_sides(arrays):
        assert images.dtype == np.uint8
        assert labels.dtype == np.int64
        assert images.shape == (len(labels), 28, 28)
        assert images.min() == 0
        assert images.max() == 255


def test_every_class_has_equally_many_images(arrays: GlyphArrays) -> None:
    for (_, labels), at_least in zip(both_sides(arrays), (40, 20), strict=True):
        counts = np.bincount(labels, minlength=CLASSES)
        assert counts.shape == (CLASSES,)
        assert len(set(counts.tolist())) == 1
        assert counts[0] >= at_least


def test_names_belong_to_the_characters(arrays: GlyphArrays) -> None:
    assert len(set(arrays.names)) == len(set(arrays.characters)) == CLASSES
    by_character = dict(zip(arrays.characters, arrays.names, strict=True))
    assert by_character["a"] == "latin small a"
    assert by_character["&"] == "ampersand"
    assert all(unicodedata.category(character)[0] in "LNPS" for character in arrays.characters)


def test_no_image_is_blank_and_none_touches_the_border(arrays: GlyphArrays) -> None:
    for images, _ in both_sides(arrays):
        assert images.max(axis=(1, 2)).min() > 85
        assert not images[:, [0, -1], :].any()
        assert not images[:, :, [0, -1]].any()


def test_classes_differ_on_average(arrays: GlyphArrays) -> None:
    for images, labels in both_sides(arrays):
        means = np.stack([images[labels == label].mean(axis=0).ravel() for label in range(CLASSES)])
        distances = np.abs(means[:, None] - means[None]).mean(axis=2)
        np.fill_diagonal(distances, np.inf)
        assert distances.min() > 1


def test_no_test_image_was_seen_in_training(arrays: GlyphArrays) -> None:
    seen = {image.tobytes() for image in arrays.train_images}
    assert not any(image.tobytes() in seen for image in arrays.test_images)


def test_a_damaged_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = bytearray(glyphs._read_file())
    packed[len(packed) // 2] ^= 1
    monkeypatch.setattr(glyphs, "_read_file", lambda: bytes(packed))
    with pytest.raises(UserError, match=r"glyphs\.xz is damaged"):
        load_glyphs()
