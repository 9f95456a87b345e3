"""The embedded `glyphs` data set: 100 printed characters in many typefaces, split by typeface.

GLYPHS.md describes how the images were drawn, and from which typefaces.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import unicodedata
from importlib import resources
from pathlib import Path

import numpy as np

from phasezero.data.catalog import Recipe, register_data
from phasezero.data.images import ImageData, ImageSplit, Preparation, View
from phasezero.errors import UserError
from phasezero.schedule import Schedule, Training

FILE = resources.files(__package__) / "glyphs.xz"
FILE_SHA256 = "238e8f7dc8f0124a60ad71cb617e4243ddb040fd757c144a00b02d4c67149893"
IMAGE_SIDE = 28

# No flips: a mirrored letter is a different letter. Mean and deviation are those of the training images.
PREPARATION = Preparation((0.0832,), (0.2475,), IMAGE_SIDE, View("pad", padding=2, flip=False))

# The paper's shape (a long flat start, two drops) for a network that a CPU trains in a minute.
FIRST = Schedule(epochs=10, milestones=(7, 9), batch_size=64)
LATER = Schedule(epochs=6, milestones=(4, 5), batch_size=64)


@register_data(
    "glyphs",
    "100 printed characters, 28 x 28; inside the package",
    recipe=Recipe("resnet-glyphs", Training(FIRST, LATER), threads=1),  # a second thread gains little
    class_order="seed1993",
    size=(100, 168),
    seconds={"cpu": 3e-4, "cuda": 2e-5},
    short_epochs=2,  # a table of 27 runs then takes minutes
)
def load_glyphs(root: Path, argument: str = "") -> ImageData:
    """Decode the embedded file: grey images, ink 255 on ground 0, typeface by typeface with labels 0 to 99 in turn."""
    packed = FILE.read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != FILE_SHA256:
        raise UserError(
            f"the embedded data file {FILE.name} is damaged: its sha256 is {found}, expected {FILE_SHA256}; "
            "reinstall the package"
        )
    header_line, pixels = lzma.decompress(packed).split(b"\n", 1)
    header = json.loads(header_line)
    characters = tuple(header["characters"])
    # Unicode's names in small letters, such as "latin small a" or "pound sign".
    names = tuple(unicodedata.name(character).lower().replace(" letter ", " ") for character in characters)
    levels = np.frombuffer(pixels, np.uint8).reshape(-1, IMAGE_SIDE, IMAGE_SIDE, 1)
    images = np.linspace(0, 255, header["levels"]).round().astype(np.uint8)[levels]
    labels = np.arange(len(images), dtype=np.int64) % len(characters)
    cut = header["train"] * len(characters)
    train, test = ImageSplit(images[:cut], labels[:cut]), ImageSplit(images[cut:], labels[cut:])
    return ImageData("glyphs", characters, names, train, test, PREPARATION)
