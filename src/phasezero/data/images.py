"""A loaded data set: images, labels, names, and how the images are prepared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from phasezero.data.files import Item
from phasezero.errors import UserError
from phasezero.validation import check_printable

END = 16 << 10  # bytes


@dataclass(frozen=True)
class View:
    """How a training image is shown: everything that is drawn at random. The test view changes nothing.

    >>> from phasezero import View
    >>> View(crop="pad", padding=4, flip=True)
    View(crop='pad', padding=4, flip=True, brightness=0.0)
    """

    crop: Literal["pad", "resized"]
    """`pad`: add black margins and crop back. `resized`: crop a random area and aspect, and resize it."""
    padding: int = 0
    flip: bool = True
    brightness: float = 0.0
    """b: pixels times a factor between 1 - b and 1 + b, cut at white (PODNet's jitter: 63/255)."""


@dataclass(frozen=True)
class Preparation:
    """How images become network inputs; the numbers are published (docs/protocols.md)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    """The side of the square that the network sees."""
    view: View
    """The view of training images; the configuration's `training.brightness` replaces its brightness."""
    resize: int = 0
    """For image files: the shorter side is resized to this before the centre crop of the test view."""


@dataclass(frozen=True)
class ImageSplit:
    """The training or the test images: uint8 [N, H, W, C] in memory, or photos of any size."""

    images: npt.NDArray[np.uint8] | Sequence[Item]
    labels: npt.NDArray[np.int64]
    """The class of each image, as an index into `ImageData.class_names`."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def pixels(self) -> npt.NDArray[np.uint8]:
        if not isinstance(self.images, np.ndarray):
            raise TypeError("expected images in memory, got files")
        return self.images

    @property
    def photos(self) -> Sequence[Item]:
        if isinstance(self.images, np.ndarray):
            raise TypeError("expected photos, got images in memory")
        return self.images

    @property
    def paths(self) -> Sequence[Path]:
        files = [photo for photo in self.photos if isinstance(photo, Path)]
        if len(files) < len(self):
            raise TypeError("expected image files, got photos in memory")
        return files

    def fingerprint(self, classes: Sequence[int]) -> str:
        """Return a hash of the images of these classes: of their pixels, or of files' names, sizes and ends."""
        chosen = np.flatnonzero(np.isin(self.labels, classes))
        digest = hashlib.sha256(self.labels[chosen].tobytes())
        if isinstance(self.images, np.ndarray):
            digest.update(self.images[chosen].tobytes())
        else:
            paths = self.paths
            for path in (paths[index] for index in chosen.tolist()):
                digest.update(os.fsencode(f"{path.parent.name}/{path.name}\n") + _ends(path))
        return digest.hexdigest()


def _ends(path: Path) -> bytes:
    """Return a file's size, beginning and end: enough to tell files apart without reading all of ImageNet."""
    size = path.stat().st_size
    with path.open("rb") as file:
        beginning = file.read(END)
        file.seek(max(size - END, 0))
        return size.to_bytes(8) + beginning + file.read(END)


@dataclass(frozen=True)
class ImageData:
    """A loaded data set. `class_ids` are stable identifiers (wnids, folder names) and go into the class hash."""

    name: str
    class_ids: tuple[str, ...]
    class_names: tuple[str, ...]
    train: ImageSplit
    test: ImageSplit
    preparation: Preparation

    def __post_init__(self) -> None:
        if self.in_memory != (self.preparation.view.crop == "pad"):
            raise ValueError("images in memory are cropped by `pad`, image files by `resized`")
        for name in (*self.class_ids, *self.class_names):
            check_printable(f"class of {self.name}", name)

    @property
    def in_memory(self) -> bool:
        return isinstance(self.train.images, np.ndarray)

    @classmethod
    def from_arrays(
        cls,
        train_images: npt.ArrayLike,
        train_labels: npt.ArrayLike,
        test_images: npt.ArrayLike,
        test_labels: npt.ArrayLike,
        *,
        class_names: Sequence[str] = (),
        name: str = "arrays",
        padding: int = 4,
        flip: bool = True,
    ) -> ImageData:
        """Return a data set of images in memory: uint8 [N, H, W, C] or [N, H, W], with labels 0, 1, 2 and so on.

        Mean and deviation are those of the training images. Training views are shifted by up to `padding` pixels.

        >>> import numpy as np
        >>> from phasezero import ImageData
        >>> images, labels = np.zeros((20, 8, 8, 3), np.uint8), np.arange(20) % 4
        >>> ImageData.from_arrays(images, labels, images, labels).class_names
        ('0', '1', '2', '3')
        """
        train, test = _split(train_images, train_labels), _split(test_images, test_labels)
        pixels, shape = train.pixels, train.pixels.shape[1:]
        if shape != test.pixels.shape[1:]:
            raise UserError(f"{name}: training images are {shape}, test images {test.pixels.shape[1:]}")
        classes = np.unique(train.labels)
        names = tuple(class_names) or tuple(map(str, range(len(classes))))
        if classes.tolist() != list(range(len(names))) or not np.isin(test.labels, classes).all():
            raise UserError(f"{name}: labels must be 0 to {len(names) - 1}, each with a training image")
        mean = pixels.mean((0, 1, 2), dtype=np.float64) / 255
        squares = np.square(pixels, dtype=np.uint16).mean((0, 1, 2), dtype=np.float64) / 255**2
        std = np.sqrt(np.maximum(squares - mean**2, 1e-6))  # one colour alone has no deviation to divide by
        preparation = Preparation(tuple(mean.tolist()), tuple(std.tolist()), max(shape[:2]), View("pad", padding, flip))
        return cls(name, names, names, train, test, preparation)


def _split(images: npt.ArrayLike, labels: npt.ArrayLike) -> ImageSplit:
    pixels, classes = np.asarray(images), np.asarray(labels)
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or not len(pixels):
        raise UserError(f"images must be uint8 [N, H, W, C] or [N, H, W], got {pixels.dtype} {pixels.shape}")
    if classes.shape != pixels.shape[:1] or classes.dtype.kind not in "iu":
        raise UserError(
            f"labels must be a whole number for each of {len(pixels)} images, got {classes.dtype} {classes.shape}"
        )
    return ImageSplit(pixels[..., None] if pixels.ndim == 3 else pixels, classes.astype(np.int64))
