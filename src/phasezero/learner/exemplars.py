"""Exemplars as encoded images, and fingerprints that recognise an image that was learned before."""

from __future__ import annotations

import functools
import hashlib
import io
from pathlib import Path

import numpy as np
from PIL import Image

from phasezero.data.files import Item, read_image
from phasezero.records.files import read_file

QUALITY = 95


def encoded(item: Item, shorter_side: int | None) -> bytes:
    """Return an image as the content of a file, without metadata such as the place where a photo was taken.

    Photos are shrunk to the shorter side that the network's view begins with, and stored as JPEG. Images for None keep
    their pixels, as PNG.
    """
    file = io.BytesIO()
    if shorter_side is None:
        pixels = item if isinstance(item, np.ndarray) else np.asarray(read_image(item))
        Image.fromarray(pixels[..., 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels).save(file, "PNG")
        return file.getvalue()
    photo = read_image(item)
    if min(photo.size) > shorter_side:
        scale = shorter_side / min(photo.size)
        width, height = (max(1, round(side * scale)) for side in photo.size)
        photo = photo.resize((width, height), Image.Resampling.BILINEAR)
    photo.info = {}  # Pillow would copy the comment of a JPEG file
    photo.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def fingerprint(item: Item) -> int:
    """Return a hash of a file's content or of pixels, as a number of 63 bits."""
    if isinstance(item, Path):
        facts = item.stat()
        return _fingerprint_of_file(item, facts.st_size, facts.st_mtime_ns)
    return _hashed(item if isinstance(item, bytes) else item.tobytes())


@functools.lru_cache(maxsize=1_000_000)  # an image is compared, checked and remembered
def _fingerprint_of_file(path: Path, size: int, changed: int) -> int:
    return _hashed(read_file(path, "photo"))


def _hashed(content: bytes) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:8]) >> 1
