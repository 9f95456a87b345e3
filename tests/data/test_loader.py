"""Batches of images in memory, against crops, flips and normalisation done one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.data.images import ImageSplit, Preparation, View
from phasezero.data.loader import FULL_LIGHT, ResidentImages
from slow import rng

CPU = torch.device("cpu")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.1)


def slow_normalise(image: np.ndarray) -> np.ndarray:
    """[H, W, C] bytes -> [C, H, W] as torchvision's ToTensor and Normalize make it."""
    height, width, channels = image.shape
    out = np.zeros((channels, height, width))
    for c in range(channels):
        out[c] = (image[:, :, c] / 255.0 - MEAN[c]) / STD[c]
    return out


def slow_view(image: np.ndarray, top: int, left: int, flip: bool, padding: int) -> np.ndarray:
    """Black margins, then a crop of the first size, then its mirror image."""
    height, width, channels = image.shape
    canvas = np.zeros((height + 2 * padding, width + 2 * padding, channels), np.uint8)
    canvas[padding : padding + height, padding : padding + width] = image
    crop = canvas[top : top + height, left : left + width]
    return crop[:, ::-1] if flip else crop


def resident(count: int = 23, *, channels: int = 3, padding: int = 2) -> tuple[ResidentImages, np.ndarray, Tensor]:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, 6, 5, channels), np.uint8)
    labels = torch.from_numpy(generator.integers(0, 9, count))
    preparation = Preparation(MEAN[:channels], STD[:channels], size=6, view=View("pad", padding))
    return ResidentImages(ImageSplit(images, labels.numpy()), labels, preparation, CPU), images, labels


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("brightness", [0.0, 0.5])
def test_training_views(channels: int, padding: int, flip: bool, brightness: float) -> None:
    source, images, labels = resident(200, channels=channels, padding=padding)
    flipped, factors = 0, []
    for plan in source.train_batches(torch.arange(200), 64, rng(), View("pad", padding, flip, brightness)):
        prepared, prepared_labels = source.prepare(plan)
        assert prepared.dtype == torch.float32
        assert prepared.is_contiguous(memory_format=torch.channels_last)
        for one, label, (index, *view, mirrored) in zip(prepared, prepared_labels, plan[0][:4].T.tolist(), strict=True):
            expected = slow_view(images[index], *view, bool(mirrored), padding)
            if brightness:  # cut at white
                factors.append(plan[0][4, len(factors) % 64].item() / FULL_LIGHT)
                expected = np.minimum(expected * factors[-1], 255)
            assert np.allclose(one.numpy(), slow_normalise(expected), atol=1e-5)
            assert label == labels[index]
            flipped += mirrored
    assert (60 < flipped < 140) if flip else flipped == 0
    if brightness:
        assert 0.5 <= min(factors) < 0.6
        assert 1.4 < max(factors) <= 1.5


def test_crops_cover_every_offset_evenly() -> None:
    source, _, _ = resident(padding=4)
    counts = np.zeros((9, 9), int)
    for plan in source.train_batches(torch.zeros(8100, dtype=torch.long), 1000, rng()):
        np.add.at(counts, tuple(plan[0][1:3].numpy()), 1)
    assert counts.min() > 50  # 100 on average, 10 standard deviation
    assert counts.max() < 150


def test_test_views_are_the_images_themselves() -> None:
    source, images, labels = resident()
    indices = torch.tensor([22, 3, 3, 0, 17])
    parts = [source.prepare(plan) for plan in source.test_batches(indices, 2)]
    prepared, prepared_labels = (torch.cat(each) for each in zip(*parts, strict=True))
    expected = np.stack([slow_normalise(images[i]) for i in indices])
    assert np.allclose(prepared.numpy(), expected, atol=1e-5)
    assert torch.equal(prepared_labels, labels[indices])
