"""Photos on the device: decoded once, packed as uint8, and cropped, resized and flipped there batch by batch.

A photo whose shorter side is above `preparation.resize` is shrunk to it, as in the test view. A training view is
sampled bilinearly between the four pixels around each point. Where it is scaled down (by resize / size * 4/3 at most,
1.52 for photos), Pillow averages over more pixels. Doing the same here would smooth a shrunk photo twice and bring it
no nearer to the views of files (docs/protocols.md has the numbers).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Generator, Tensor

from phasezero.data import files
from phasezero.data.images import ImageSplit, Preparation, View
from phasezero.data.loader import BatchPlan, BatchPlans, ImageSource, draw_epoch
from phasezero.errors import UserError


def _decode(path: Path, preparation: Preparation) -> tuple[tuple[int, int], list[npt.NDArray[np.uint8]]]:
    """Return a photo's size, and the pixels to keep: the shrunk photo, or a small photo and its test view."""
    image = files.read_image(path)
    if min(image.size) < preparation.resize:
        # Enlarged by Pillow, to have the same rounding, and only the visible part.
        return image.size, [np.asarray(image), files.centre_view(image, preparation.resize, preparation.size)]
    shape = files.resized_shape(*image.size, preparation.resize)
    return image.size, [np.asarray(image.resize(shape, Image.Resampling.BILINEAR))]


def _promised_pixels(paths: Sequence[Path], preparation: Preparation) -> list[int]:
    """Return from its header how many pixels of each photo are kept; turning it upright does not change that."""
    pixels = []
    for width, height in files.image_sizes(tuple(paths)).tolist():
        small = min(width, height) < preparation.resize
        shape = (width, height) if small else files.resized_shape(width, height, preparation.resize)
        pixels.append(shape[0] * shape[1] + (preparation.size**2 if small else 0))
    return pixels


class PackedPhotos:
    """Keep all photos of a list in one tensor; a small photo is followed by its test view.

    Row i of `places` is photo i, row n + i its test view: (first pixel, height, width). `test_boxes` [n, 4] has the
    left, top, right and bottom of the test view within its row.
    """

    def __init__(self, paths: Sequence[Path], preparation: Preparation, device: torch.device) -> None:
        count, size = len(paths), preparation.size
        promised = _promised_pixels(paths, preparation)
        # One extra pixel, so that the last pixel has a neighbour too.
        self.pixels = torch.zeros(sum(promised) + 1, 3, dtype=torch.uint8, device=device)
        self.pairs = self.pixels.as_strided((sum(promised), 6), (3, 1))
        """A view of the same memory: each pixel with its right neighbour."""
        self.originals = np.empty((count, 2), np.int64)
        """Width and height before the shrinking, upright."""
        places, self.test_boxes = np.empty((2 * count, 3), np.int64), np.empty((count, 4), np.float32)
        start = 0
        photos = files.read_ahead(lambda at: _decode(paths[at], preparation), count, ahead=4 * files.WORKERS)
        for at, (original, (photo, *test_views)) in enumerate(photos):
            self.originals[at] = original
            high, wide = photo.shape[:2]
            places[at] = places[count + at] = start, high, wide
            left, top = files.centre_corner(wide, high, size)
            if test_views:
                places[count + at], left, top = (start + high * wide, size, size), 0, 0
            self.test_boxes[at] = left, top, left + size, top + size
            kept = np.concatenate([part.reshape(-1, 3) for part in (photo, *test_views)])
            if len(kept) != promised[at]:
                raise UserError(f"image file {paths[at]} has changed while it was read; start again")
            self.pixels[start : start + promised[at]] = torch.from_numpy(kept)
            start += promised[at]
        self.stored = places[:count, :0:-1]  # width and height
        self.places = torch.from_numpy(places).to(device)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # other runs read it on their own streams

    def random_boxes(self, chosen: npt.NDArray[np.int64], u: files.Uniforms) -> Tensor:
        """Return [4, n]: the crop of `random_resized_view` from each original, in the coordinates of the kept pixels.

        It is at least a pixel wide and high in an original, and a quarter of the shorter side in a shrunk photo.
        """
        width, height = self.originals[chosen].T
        scale = (self.stored[chosen] / self.originals[chosen]).T
        boxes = np.stack(files.random_crop_box(width, height, u))
        return torch.from_numpy(boxes * np.concatenate([scale, scale])).float()


_packed: weakref.WeakValueDictionary[tuple[object, ...], PackedPhotos] = weakref.WeakValueDictionary()
_packing = threading.Lock()


def _key(paths: Sequence[Path], preparation: Preparation, device: torch.device) -> tuple[object, ...]:
    return tuple(paths), preparation.resize, preparation.size, device


def bytes_to_pack(paths: Sequence[Path], preparation: Preparation, device: torch.device) -> int:
    """Return the bytes that photos will take on the device: zero if they are already packed there."""
    return 0 if _key(paths, preparation, device) in _packed else 3 * sum(_promised_pixels(paths, preparation))


def packed(paths: Sequence[Path], preparation: Preparation, device: torch.device) -> PackedPhotos:
    """Pack photos once for all simultaneous users: parallel runs, or a run and the oracle that it trains."""
    key = _key(paths, preparation, device)
    with _packing:
        found = _packed.get(key)
        if found is None:
            found = _packed[key] = PackedPhotos(paths, preparation, device)
        return found


class ResidentPhotos(ImageSource):
    """Serve photos that are packed on the device."""

    def __init__(self, split: ImageSplit, labels: Tensor, preparation: Preparation, device: torch.device) -> None:
        super().__init__(split, labels, preparation, device)
        self.photos = packed(split.paths, preparation, device)
        self.device_labels = labels.to(device).repeat(2)  # of the photos, and of their test views
        self.centres = torch.arange(self.size, device=device) + 0.5

    def train_batches(
        self, indices: Tensor, batch_size: int, rng: Generator, view: View | None = None, first: int = 0
    ) -> BatchPlans:
        order, uniforms, flips, light = draw_epoch(indices, rng, view or self.view)
        boxes = self.photos.random_boxes(order.numpy(), uniforms)
        return self.slices(batch_size, order, torch.cat([boxes, flips[None].float(), light[None]]), first=first)

    def test_batches(self, indices: Tensor, batch_size: int, first: int = 0) -> BatchPlans:
        boxes = torch.from_numpy(self.photos.test_boxes)[indices].T
        plain = torch.tensor([[0.0], [1.0]]).expand(2, len(indices))
        return self.slices(batch_size, len(self.labels) + indices, torch.cat([boxes, plain]), first=first)

    def views(self, plan: BatchPlan) -> tuple[Tensor, Tensor]:
        rows, numbers = plan  # numbers [6, n]: left, top, right and bottom of the view, mirrored or not, brightness
        left, top, right, bottom, mirrored, light = numbers[..., None]
        first, height, width = self.photos.places[rows].T[..., None]
        y, down = self._between(top, bottom, self.centres)
        columns = torch.where(mirrored > 0, self.size - self.centres, self.centres)
        x, across = self._between(left, right, columns)
        # Nothing beyond the last row and column is mixed in, because their points lie on pixels.
        lines = first + torch.stack([y, (y + 1).minimum(height - 1)]) * width
        index = lines[..., None] + x[:, None, :]
        pairs = self.photos.pairs.index_select(0, index.flatten()).view(*index.shape, 6).float()
        pairs = torch.lerp(pairs[0], pairs[1], down[:, :, None, None])
        views = torch.lerp(pairs[..., :3], pairs[..., 3:], across[:, None, :, None])
        views = (views * light[:, None, None]).clamp_max(255)
        return views, self.device_labels[rows]

    def _between(self, low: Tensor, high: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Return, along one axis, the pixel [n, size] before each point and how far the point is to the next pixel.

        Pixel i has its centre at i + 1/2. As Pillow crops before it resizes, pixels outside the crop are never mixed
        in: points are clamped between the centres of its first and last pixel.
        """
        at = low + centres * ((high - low) / self.size) - 0.5
        at = at.maximum(low).minimum(high - 1)  # a crop is never narrower than a pixel (random_boxes)
        before = at.floor()
        return before.long(), at - before
