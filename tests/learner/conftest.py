"""Small images that a learner learns in a moment, and photos on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Pixels = np.ndarray
Pair = tuple[Path, str]


@pytest.fixture(scope="session")
def bars() -> Callable[..., tuple[Pixels, np.ndarray]]:
    """Make images of bright bars: class k has its bar at row 2 k."""

    def make(classes: range, count: int = 4, seed: int = 0) -> tuple[Pixels, np.ndarray]:
        rng = np.random.default_rng([seed, classes.start])
        labels = np.repeat(np.array(classes), count)
        images = rng.integers(0, 60, (len(labels), 20, 20, 3), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 2] += 150
        return images, labels

    return make


@pytest.fixture
def photos(tmp_path: Path) -> Callable[..., list[Pair]]:
    """Write photos of coloured stripes, all of one class alike, and return (path, class) pairs."""

    def make(names: str, count: int = 3, folder: str = "photos", seed: int = 0) -> list[Pair]:
        pairs = []
        for name in names:
            rng = np.random.default_rng([seed, ord(name)])
            look = np.random.default_rng(ord(name)).integers(0, 200, (4, 3))
            for place in range(count):
                pixels = np.repeat(np.tile(look, (10, 1))[:, None], 60, 1) + rng.integers(0, 50, (40, 60, 3))
                path = tmp_path / folder / name / f"{place}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.astype(np.uint8)).save(path)
                pairs.append((path, name))
        return pairs

    return make
