"""The augment strategy: each operation against Pillow, image by image."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from phasezero.data.stream import Phase
from phasezero.initial import STRATEGIES
from phasezero.initial.augment import LEVELS, OPERATIONS, cutout, trivial_augment


def by_pillow(pixels: np.ndarray, name: str, level: int, sign: float) -> np.ndarray:
    """Apply an operation to one uint8 image [H, W, C], as TrivialAugment's authors do with Pillow."""
    image = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
    strength, (width, height) = level / (LEVELS - 1), image.size

    def affine(*matrix: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)

    enhance = {"brightness": ImageEnhance.Brightness, "color": ImageEnhance.Color, "contrast": ImageEnhance.Contrast}
    if name in enhance:
        image = enhance[name](image).enhance(1 + sign * 0.99 * strength)
    elif name == "sharpness":
        image = Image.blend(image.filter(ImageFilter.SMOOTH), image, 1 + sign * 0.99 * strength)
    elif name.startswith("shear"):
        slope = sign * 0.99 * strength
        image = affine(1, slope, 0, 0, 1, 0) if name == "shear_x" else affine(1, 0, 0, slope, 1, 0)
    elif name.startswith("translate"):
        shift = -math.trunc(sign * 32 * strength)
        image = affine(1, 0, shift, 0, 1, 0) if name == "translate_x" else affine(1, 0, 0, 0, 1, shift)
    elif name == "rotate":
        a, x, y = math.radians(sign * 135 * strength), width / 2, height / 2
        cos, sin = math.cos(a), math.sin(a)
        image = affine(cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)
    elif name == "posterize":
        image = ImageOps.posterize(image, 8 - round(level / 5))
    elif name == "solarize":
        image = ImageOps.solarize(image, 255 * (1 - strength))
    elif name in ("autocontrast", "equalize"):
        image = getattr(ImageOps, name)(image)
    return np.asarray(image).reshape(pixels.shape)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_are_those_of_pillow(name: str, channels: int) -> None:
    rng = np.random.default_rng(7)
    smooth = rng.integers(0, 256, (1, 4, 5, channels)).repeat(4, 1).repeat(4, 2)
    images = np.concatenate([rng.integers(20, 200, (1, 16, 20, channels)), smooth]).astype(np.uint8)
    levels = [0, 7, 19, 30]
    batch = torch.from_numpy(np.repeat(images, 2 * len(levels), 0)).permute(0, 3, 1, 2).float()
    level = torch.tensor(levels * 4).float()
    sign = torch.tensor([1.0] * 4 + [-1.0] * 4).repeat(2)
    found = trivial_augment(batch, torch.full((16,), OPERATIONS.index(name)), level, sign)
    assert torch.equal(found, found.floor())
    for before, after, at, way in zip(batch, found, level.tolist(), sign.tolist(), strict=True):
        pixels = before.permute(1, 2, 0).numpy().astype(np.uint8)
        wanted = by_pillow(pixels, name, int(at), way).astype(float)
        error = np.abs(after.permute(1, 2, 0).numpy() - wanted)
        # Pillow rounds blends and tables in other places. A coordinate
        # between two pixels may fall to either (at 135 degrees many do).
        limit = 0.05 if name in ("rotate", "shear_x", "shear_y") else 0.0
        assert (error > 1).mean() <= limit, f"level {at}, sign {way}: {error.max()}"


def test_each_image_has_its_own_operation() -> None:
    images = torch.randint(0, 256, (len(OPERATIONS), 3, 8, 8), generator=torch.Generator().manual_seed(0)).float()
    operation, level, sign = torch.arange(len(OPERATIONS)), torch.full((len(OPERATIONS),), 20.0), torch.ones(14)
    together = trivial_augment(images, operation, level, sign)
    for place in range(len(OPERATIONS)):
        one = slice(place, place + 1)
        assert torch.equal(together[one], trivial_augment(images[one], operation[one], level[one], sign[one]))
    assert torch.equal(together[0], images[0])


def test_cutout_blackens_a_square_that_may_leave_the_image() -> None:
    images = torch.ones(3, 1, 9, 9)
    found = cutout(images, torch.tensor([4, 0, 8]), torch.tensor([4, 0, 4]), side=5)
    wanted = np.ones((3, 1, 9, 9))
    wanted[0, :, 2:7, 2:7] = wanted[1, :, :3, :3] = wanted[2, :, 6:, 2:7] = 0
    assert np.array_equal(found.numpy(), wanted)


def test_the_weight_is_the_share_of_changed_images() -> None:
    make = STRATEGIES["augment"]
    images = torch.randint(1, 256, (400, 1, 12, 12), generator=torch.Generator().manual_seed(0)).float()
    for weight in (0.0, 0.5, 1.0):
        strategy = make(make.Options(weight=weight), Phase(0, 0, 4))
        numbers = strategy.draw(400, torch.Generator().manual_seed(1))
        changed = (strategy.transform(images, numbers) != images).flatten(1).any(1).float().mean()
        assert changed == pytest.approx(weight, abs=0.07)
