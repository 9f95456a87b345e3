"""What every data set of the catalog is, once loaded: images, labels, names, and how to prepare them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from phasezero.bounds import refuse_unprintable

END = 16 << 10  # bytes


@dataclass(frozen=True)
class ImageSplit:
    """One side (train or test): uint8 images [N, H, W, C] in memory, or the paths of image files.

    `labels[i]` is the class of image i as an index into `ImageData.class_names`.
    """

    images: npt.NDArray[np.uint8] | Sequence[Path]
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def fingerprint(self, classes: Sequence[int]) -> str:
        """Of the images of these classes: pixels where they are in memory; else names, sizes and ends of files."""
        digest = hashlib.sha256()
        chosen = np.flatnonzero(np.isin(self.labels, classes))
        digest.update(self.labels[chosen].tobytes())
        if isinstance(self.images, np.ndarray):
            digest.update(self.images[chosen].tobytes())
        else:
            for index in chosen.tolist():
                path = self.images[index]
                digest.update(os.fsencode(f"{path.parent.name}/{path.name}\n") + _ends(path))
        return digest.hexdigest()


def _ends(path: Path) -> bytes:
    """What tells a file from another of its name without reading all of ImageNet: its size, beginning and end."""
    size = path.stat().st_size
    with path.open("rb") as file:
        beginning = file.read(END)
        file.seek(max(size - END, 0))
        return size.to_bytes(8) + beginning + file.read(END)


@dataclass(frozen=True)
class Preparation:
    """How images become network inputs; the numbers are the published ones (docs/protocols.md)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: Literal["pad", "resized"]
    """Training crops: `pad` = zero-pad by `padding` and crop back; `resized` = a random area and aspect."""
    size: int
    """The side of the square that the network sees."""
    padding: int = 0
    flip: bool = True
    resize: int = 0
    """For files: the shorter side is resized to this before the centre crop of the test images."""


@dataclass(frozen=True)
class ImageData:
    """A loaded data set. `class_ids` are stable identifiers (wnids, folder names) and go into the hash."""

    name: str
    class_ids: tuple[str, ...]
    class_names: tuple[str, ...]
    train: ImageSplit
    test: ImageSplit
    preparation: Preparation

    def __post_init__(self) -> None:
        if self.in_memory != (self.preparation.crop == "pad"):
            raise ValueError("images in memory are cropped by `pad`, image files by `resized`")
        for name in (*self.class_ids, *self.class_names):
            refuse_unprintable(f"class of {self.name}", name)

    @property
    def in_memory(self) -> bool:
        return isinstance(self.train.images, np.ndarray)
