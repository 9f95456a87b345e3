"""The embedded `glyphs` data set: 100 printed characters in many typefaces, split by typeface.

GLYPHS.md beside this file says how the images were drawn, and from which typefaces.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import unicodedata
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phasezero.data.catalog import DATA_SETS, DataSet
from phasezero.data.images import ImageData, ImageSplit, Preparation
from phasezero.errors import UserError

FILE_NAME = "glyphs.xz"
FILE_SHA256 = "238e8f7dc8f0124a60ad71cb617e4243ddb040fd757c144a00b02d4c67149893"
IMAGE_SIDE = 28


class GlyphArrays(NamedTuple):
    """Grey images [N, 28, 28] (ink 255 on ground 0) with their labels, and what each label stands for."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]
    names: tuple[str, ...]
    characters: tuple[str, ...]


def load_glyphs() -> GlyphArrays:
    """Decode the embedded file; images come typeface by typeface, labels 0 to 99 in turn."""
    packed = _read_file()
    found = hashlib.sha256(packed).hexdigest()
    if found != FILE_SHA256:
        raise UserError(
            f"the embedded data file {FILE_NAME} is damaged: its sha256 is {found}, expected {FILE_SHA256}; "
            "install the package again"
        )
    header_line, pixels = lzma.decompress(packed).split(b"\n", 1)
    header = json.loads(header_line)
    characters = tuple(header["characters"])
    levels = np.frombuffer(pixels, np.uint8).reshape(-1, len(characters), IMAGE_SIDE, IMAGE_SIDE)
    grey_of_level = np.linspace(0, 255, header["levels"]).round().astype(np.uint8)
    train_images, train_labels = _flatten(grey_of_level[levels[: header["train"]]])
    test_images, test_labels = _flatten(grey_of_level[levels[header["train"] :]])
    names = tuple(_readable_name(character) for character in characters)
    return GlyphArrays(train_images, train_labels, test_images, test_labels, names, characters)


def _read_file() -> bytes:
    return resources.files(__package__).joinpath(FILE_NAME).read_bytes()


def _flatten(images: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """From [typeface, class, row, column] to images in a row, and the class of each."""
    typefaces, classes = images.shape[:2]
    labels = np.tile(np.arange(classes, dtype=np.int64), typefaces)
    return images.reshape(-1, IMAGE_SIDE, IMAGE_SIDE), labels


def _readable_name(character: str) -> str:
    """Unicode's name in small letters, such as "latin small a" or "pound sign"."""
    return unicodedata.name(character).lower().replace(" letter ", " ")


# Shifts of two pixels and no flips (a mirrored letter is another one).
# Mean and deviation are those of the training images.
PREPARATION = Preparation(mean=(0.0832,), std=(0.2475,), crop="pad", size=IMAGE_SIDE, padding=2, flip=False)


def glyphs_data(root: Path, argument: str = "") -> ImageData:
    """The catalog's view: images with one channel. It needs no folder."""
    arrays = load_glyphs()
    return ImageData(
        name="glyphs",
        class_ids=arrays.characters,
        class_names=arrays.names,
        train=ImageSplit(arrays.train_images[..., None], arrays.train_labels),
        test=ImageSplit(arrays.test_images[..., None], arrays.test_labels),
        preparation=PREPARATION,
    )


DATA_SETS.register("glyphs")(
    DataSet(
        load=glyphs_data,
        summary="100 printed characters, 28x28, split by typeface; inside the package",
        class_order="seed1993",
    )
)
