"""Strong augmentation of phase 0: TrivialAugment (Müller and Hutter, ICCV 2021) and Cutout (DeVries and Taylor, 2017).

TrivialAugment applies one of 14 operations to each image, at one of 31 strengths, both drawn uniformly (the "wide"
space of its Table 5). Cutout then blackens a square whose centre may lie anywhere in the image. Operations are computed
for the whole batch and each image takes its own, so the view has fixed shapes and can be captured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.initial.base import Strategy, StrategyOptions, register_initial
from phasezero.validation import SHARE, option

OPERATIONS = (
    "identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate", "brightness", "color", "contrast",
    "sharpness", "posterize", "solarize", "autocontrast", "equalize",
)  # fmt: skip
LEVELS = 31


def trivial_augment(pixels: Tensor, operation: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Return images [n, C, H, W] (0 to 255), each changed by its operation, level (0 to 30) and sign (+1, -1), all [n].

    Values stay whole numbers, as those of 8-bit images.
    """
    strength = level / (LEVELS - 1)
    moved = _move(pixels, operation, strength, sign)

    def of(name: str) -> Tensor:
        return (operation == OPERATIONS.index(name))[:, None, None, None]

    factor = (1 + sign * 0.99 * strength)[:, None, None, None]
    grey = _grey(pixels)
    mean = (grey.mean((1, 2, 3), keepdim=True) + 0.5).floor()
    # An enhancement moves pixels away from a degenerate image (factor > 1) or towards it.
    base = torch.where(of("color"), grey, torch.where(of("contrast"), mean, torch.zeros_like(pixels)))
    base = torch.where(of("sharpness"), _smooth(pixels), base)
    enhanced = (base + factor * (pixels - base)).clamp(0, 255).floor()
    step = torch.exp2((level / 5).round())[:, None, None, None]
    threshold = (255 * (1 - strength))[:, None, None, None]
    result = torch.where(of("brightness") | of("color") | of("contrast") | of("sharpness"), enhanced, moved)
    result = torch.where(of("posterize"), (pixels / step).floor() * step, result)
    result = torch.where(of("solarize"), torch.where(pixels < threshold, pixels, 255 - pixels), result)
    result = torch.where(of("autocontrast"), _autocontrast(pixels), result)
    return torch.where(of("equalize"), _equalize(pixels), result)


def _move(pixels: Tensor, operation: Tensor, strength: Tensor, sign: Tensor) -> Tensor:
    """Shear, translate or rotate each image: every pixel takes the nearest source pixel, black outside the image."""

    def of(name: str) -> Tensor:
        return (operation == OPERATIONS.index(name)) * sign * strength

    height, width = pixels.shape[2:]
    y = torch.arange(height, device=pixels.device)[:, None] + 0.5
    x = torch.arange(width, device=pixels.device)[None, :] + 0.5
    angle = (of("rotate") * math.radians(135))[:, None, None]
    cos, sin = angle.cos(), angle.sin()
    shear_x, shear_y = (0.99 * of(name)[:, None, None] for name in ("shear_x", "shear_y"))
    shift_x, shift_y = ((32 * of(name)).trunc()[:, None, None] for name in ("translate_x", "translate_y"))
    from_x, from_y = x - width / 2, y - height / 2
    source_x = cos * from_x - sin * from_y + width / 2 + shear_x * y - shift_x
    source_y = sin * from_x + cos * from_y + height / 2 + shear_y * x - shift_y
    # Rounding may leave a coordinate of an unmoved image just below its pixel centre, far from the next pixel.
    column, row = source_x.floor(), source_y.floor()
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    index = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long()
    flat = index.flatten(1)[:, None].expand(-1, pixels.shape[1], -1)
    return pixels.flatten(2).gather(2, flat).view_as(pixels) * inside[:, None]


def _grey(pixels: Tensor) -> Tensor:
    """Return the luma of ITU-R 601, as Pillow's mode L; images that are not in colour are returned as they are."""
    if pixels.shape[1] != 3:
        return pixels.mean(1, keepdim=True)
    luma = pixels[:, 0] * 19595 + pixels[:, 1] * 38470 + pixels[:, 2] * 7471
    return ((luma[:, None] + 32768) / 65536).floor()


def _smooth(pixels: Tensor) -> Tensor:
    """Return Pillow's SMOOTH filter: weights 1, and 5 in the middle; the border stays."""
    kernel = torch.ones(pixels.shape[1], 1, 3, 3, device=pixels.device)
    kernel[:, :, 1, 1] = 5
    inner = (F.conv2d(pixels, kernel, groups=pixels.shape[1]) / 13 + 0.5).floor()
    result = pixels.clone()
    result[:, :, 1:-1, 1:-1] = inner
    return result


def _autocontrast(pixels: Tensor) -> Tensor:
    """Stretch each channel to 0..255."""
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    scale = 255 / (high - low).clamp_min(1)
    return torch.where(high > low, ((pixels - low) * scale).floor(), pixels)


def _equalize(pixels: Tensor) -> Tensor:
    """Flatten each channel's histogram, by Pillow's rule."""
    bins = pixels.flatten(2).flatten(0, 1).long()
    counts = torch.zeros(len(bins), 256, device=pixels.device).scatter_add_(
        1, bins, torch.ones_like(bins, dtype=torch.float)
    )
    brightest = counts.gather(1, bins.amax(1, keepdim=True))
    step = ((bins.shape[1] - brightest) / 255).floor()
    below = counts.cumsum(1) - counts
    table = (((step / 2).floor() + below) / step.clamp_min(1)).floor().clamp_max(255)
    return torch.where(step > 0, table.gather(1, bins), bins.to(table.dtype)).view_as(pixels).to(pixels.dtype)


def cutout(pixels: Tensor, centre_y: Tensor, centre_x: Tensor, side: int) -> Tensor:
    """Blacken a square around each image's centre (whole numbers [n]), cut off at the image's edge."""
    height, width = pixels.shape[2:]
    y, x = (torch.arange(size, device=pixels.device) for size in (height, width))
    rows = ((y - centre_y[:, None] + side // 2) >= 0) & ((y - centre_y[:, None] + side // 2) < side)
    columns = ((x - centre_x[:, None] + side // 2) >= 0) & ((x - centre_x[:, None] + side // 2) < side)
    return pixels * ~(rows[:, None, :, None] & columns[:, None, None, :])


@register_initial("augment", "TrivialAugment and Cutout for a share of the images")
class Augment(Strategy):
    label, coefficient = "augment", "share"

    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "augment"
        weight: float = option(1.0, **SHARE)  # the share of images that is changed
        # Side of the square relative to the image's: about 11 of 32 pixels. 0: no square.
        cutout: float = option(0.34, **SHARE)

    numbers = 6
    options: Options

    def transform(self, pixels: Tensor, numbers: Tensor) -> Tensor:
        chosen, kind, strength, sign, centre_y, centre_x = numbers
        operation, level = (kind * len(OPERATIONS)).long(), (strength * LEVELS).floor()
        # Resized photos have fractions of grey levels, which 8-bit images do not have.
        changed = trivial_augment(pixels.round(), operation, level, torch.where(sign < 0.5, -1.0, 1.0))
        height, width = pixels.shape[2:]
        if side := round(self.options.cutout * height):
            changed = cutout(changed, (centre_y * height).long(), (centre_x * width).long(), side)
        return torch.where((chosen < self.options.weight)[:, None, None, None], changed, pixels)
