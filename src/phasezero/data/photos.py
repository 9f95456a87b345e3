"""Photos on the device: decoded once, packed as uint8, and cropped, resized and flipped there a batch at a time.

A photo is kept with its shorter side at `preparation.resize` where it is larger, as the test view has it, else as it
is. A training view is sampled bilinearly between the four pixels around each point. Where it is scaled down (by
resize / size * 4/3 at most, 1.52 for photos), Pillow averages over more pixels; doing so here as well would smooth a
shrunk photo twice and bring it no nearer to the views of files (docs/protocols.md has the numbers).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from phasezero.data import files
from phasezero.data.images import ImageSplit, Preparation
from phasezero.data.loader import Normalise, PhotoDraws, Ticket, send
from phasezero.errors import UserError


class _Decoded(NamedTuple):
    width: int
    height: int
    photo: npt.NDArray[np.uint8]
    """Shrunk, or as it was read (which had this width and height)."""
    test_view: npt.NDArray[np.uint8] | None
    """Where the photo is smaller than the test view wants it; else that is a part of the photo."""


def _decode(path: Path, preparation: Preparation) -> _Decoded:
    image = files.read_image(path)
    width, height = image.size
    if min(width, height) < preparation.resize:
        # Enlarged by Pillow, whose roundings are its own, and only as far as it is seen.
        test_view = files.centre_view(image, preparation.resize, preparation.size)
        return _Decoded(width, height, np.asarray(image), test_view)
    shape = files.resized_shape(width, height, preparation.resize)
    return _Decoded(width, height, np.asarray(image.resize(shape, Image.Resampling.BILINEAR)), None)


def _packed_pixels(width: int, height: int, preparation: Preparation) -> int:
    """Of one photo, known from its header: turning it upright changes nothing in it."""
    if min(width, height) < preparation.resize:
        return width * height + preparation.size**2
    new_width, new_height = files.resized_shape(width, height, preparation.resize)
    return new_width * new_height


def _promised(paths: Sequence[Path], preparation: Preparation) -> list[int]:
    sizes = files.image_sizes(tuple(paths)).tolist()
    return [_packed_pixels(width, height, preparation) for width, height in sizes]


def packed_bytes(paths: Sequence[Path], preparation: Preparation) -> int:
    return 3 * sum(_promised(paths, preparation))


class PackedPhotos:
    """All photos of a list, one after the other in one tensor; a small one is followed by its test view.

    Row i of `places` is photo i, row n + i its test view: (first pixel, height, width). A test view may be all of
    what its row says, or a part of it: `test_boxes` [n, 4] has left, top, right and bottom.
    """

    def __init__(self, paths: Sequence[Path], preparation: Preparation, device: torch.device) -> None:
        count, size = len(paths), preparation.size
        promised = _promised(paths, preparation)
        # One pixel more than there are, so that the last one has a neighbour too.
        self.pixels = torch.zeros(sum(promised) + 1, 3, dtype=torch.uint8, device=device)
        self.pairs = self.pixels.as_strided((sum(promised), 6), (3, 1))
        """Each pixel with the one to its right, in the same memory."""
        self.originals = np.empty((count, 2), np.int64)
        """Width and height before the shrinking, upright."""
        places, self.test_boxes = np.empty((2 * count, 3), np.int64), np.empty((count, 4), np.float32)
        start = 0
        photos = files.read_ahead(lambda at: _decode(paths[at], preparation), count, ahead=4 * files.WORKERS)
        for at, (width, height, photo, test_view) in enumerate(photos):
            self.originals[at] = width, height
            high, wide = photo.shape[:2]
            left, top = (0, 0) if test_view is not None else files.centre_corner(wide, high, size)
            self.test_boxes[at] = left, top, left + size, top + size
            places[at] = places[count + at] = start, high, wide
            if test_view is not None:
                places[count + at] = start + high * wide, size, size
            parts = [part.reshape(-1, 3) for part in (photo, test_view) if part is not None]
            if sum(map(len, parts)) != promised[at]:
                raise UserError(f"image file {paths[at]} has changed while it was read; start again")
            self.pixels[start : start + promised[at]] = torch.from_numpy(np.concatenate(parts))
            start += promised[at]
        self.stored = places[:count, :0:-1]  # width and height
        self.places = torch.from_numpy(places).to(device)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # other runs look at it from streams of their own

    def random_boxes(self, chosen: npt.NDArray[np.int64], u: npt.NDArray[np.floating]) -> Tensor:
        """[4, n]: what `random_resized_view` would cut out of each original, in the pixels that are kept of it.

        At least a pixel each way: of the original as it is, and a quarter of its shorter side where it was shrunk.
        """
        width, height = self.originals[chosen].T
        scale = (self.stored[chosen] / self.originals[chosen]).T
        boxes = np.stack(files.random_crop_box(width, height, u))
        return torch.from_numpy(boxes * np.concatenate([scale, scale])).float()


_packed: weakref.WeakValueDictionary[tuple[object, ...], PackedPhotos] = weakref.WeakValueDictionary()
_packing = threading.Lock()


def _key(paths: Sequence[Path], preparation: Preparation, device: torch.device) -> tuple[object, ...]:
    return tuple(paths), preparation.resize, preparation.size, device


def is_packed(paths: Sequence[Path], preparation: Preparation, device: torch.device) -> bool:
    return _key(paths, preparation, device) in _packed


def packed(paths: Sequence[Path], preparation: Preparation, device: torch.device) -> PackedPhotos:
    """Packed once for all who want them at a time: packed runs, and a run with the oracle that it trains."""
    key = _key(paths, preparation, device)
    with _packing:
        found = _packed.get(key)
        if found is None:
            found = _packed[key] = PackedPhotos(paths, preparation, device)
        return found


class ResidentPhotos:
    """A source of photos that are packed on the device."""

    def __init__(
        self, split: ImageSplit, labels: Tensor, preparation: Preparation, device: torch.device
    ) -> None:
        if isinstance(split.images, np.ndarray):
            raise TypeError("ResidentPhotos needs the paths of image files")
        self.labels = labels
        self.flip, self.size, self.device = preparation.flip, preparation.size, device
        self.photos = packed(split.images, preparation, device)
        self.device_labels = labels.to(device).repeat(2)  # of the photos, and of their test views
        self.centres = torch.arange(self.size, device=device) + 0.5
        self.normalise = Normalise(preparation, device)

    def train_batches(
        self, indices: Tensor, batch_size: int, rng: torch.Generator, brightness: float = 0.0
    ) -> Iterator[Ticket]:
        draws = PhotoDraws.draw(indices, rng, brightness)
        boxes = self.photos.random_boxes(draws.order.numpy(), draws.uniforms)
        flips = torch.from_numpy(draws.flips & self.flip).float()
        light = torch.ones(len(indices)) if draws.factors is None else torch.from_numpy(draws.factors)
        return self._slices(draws.order, torch.cat([boxes, flips[None], light[None]]), batch_size)

    def test_batches(self, indices: Tensor, batch_size: int) -> Iterator[Ticket]:
        boxes = torch.from_numpy(self.photos.test_boxes)[indices].T
        plain = torch.tensor([[0.0], [1.0]]).expand(2, len(indices))
        return self._slices(len(self.labels) + indices, torch.cat([boxes, plain]), batch_size)

    def _slices(self, rows: Tensor, numbers: Tensor, batch_size: int) -> Iterator[Ticket]:
        """`numbers` [6, n]: left, top, right and bottom of the view, whether it is mirrored, and its brightness."""
        parts = (
            send(rows, self.device).split(batch_size),
            send(numbers, self.device).split(batch_size, dim=1),
        )
        return zip(*parts, strict=True)

    def prepare(self, ticket: Ticket) -> tuple[Tensor, Tensor]:
        rows, numbers = ticket
        left, top, right, bottom, mirrored, light = numbers[..., None]
        first, height, width = self.photos.places[rows].T[..., None]
        y, down = self._between(top, bottom, self.centres)
        columns = torch.where(mirrored > 0, self.size - self.centres, self.centres)
        x, across = self._between(left, right, columns)
        # Beyond the last line and the last column nothing is mixed in: their points are on the pixels.
        lines = first + torch.stack([y, (y + 1).minimum(height - 1)]) * width
        index = lines[..., None] + x[:, None, :]
        pairs = self.photos.pairs.index_select(0, index.flatten()).view(*index.shape, 6).float()
        pairs = torch.lerp(pairs[0], pairs[1], down[:, :, None, None])
        views = torch.lerp(pairs[..., :3], pairs[..., 3:], across[:, None, :, None])
        views = (views * light[:, None, None]).clamp_max(255)
        return self.normalise(views), self.device_labels[rows]

    def _between(self, low: Tensor, high: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Along one axis: the pixel [n, size] before each point, and how far from it to the next the point is.

        Pixel i has its centre at i + 1/2. As Pillow crops first and resizes then, what lies outside of the crop is
        never mixed in: points are held between the centres of its first and its last pixel.
        """
        at = low + centres * ((high - low) / self.size) - 0.5
        at = at.maximum(low).minimum(high - 1)  # a crop is never narrower than a pixel (random_boxes)
        before = at.floor()
        return before.long(), at - before
