"""From images to batches: what a source is, and two of them: images in memory, and files read ahead by threads.

The third, photos that stay on the device, is in photos.py; sources.py chooses.

A source hands out *tickets*, small tuples of tensors that name a batch and hold every random number it needs,
and turns a ticket into a prepared batch with `prepare`, which is tensor work only and can be captured in a
CUDA graph. The random numbers are drawn an epoch at a time on the CPU: the same on every device and engine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phasezero.data.files import WORKERS, centre_view, random_resized_view, read_ahead, read_image
from phasezero.data.images import ImageSplit, Preparation

Ticket = tuple[Tensor, ...]


class ImageSource(Protocol):
    labels: Tensor
    """The class of each image as a position in the stream, on the CPU."""

    def train_batches(
        self, indices: Tensor, batch_size: int, rng: torch.Generator, brightness: float = 0.0
    ) -> Iterator[Ticket]:
        """One epoch over the indices, shuffled and augmented; the last batch may be smaller.

        `brightness` b: pixels times a factor between 1 - b and 1 + b, cut at white (PODNet's jitter: 63/255).
        """

    def test_batches(self, indices: Tensor, batch_size: int) -> Iterator[Ticket]:
        """The indices in their order, unaugmented."""

    def prepare(self, ticket: Ticket) -> tuple[Tensor, Tensor]:
        """Normalised float images [n, C, H, W] (channels last in memory) and their labels."""


FULL_LIGHT = 1 << 16
"""Brightness factors travel in tickets as whole numbers of this unit."""


def _factors(count: int, brightness: float, rng: torch.Generator) -> Tensor:
    return 1 + brightness * (2 * torch.rand(count, generator=rng) - 1)


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """To the device; to a GPU from pinned memory, so that the host does not wait for the copy."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class PhotoDraws(NamedTuple):
    """An epoch's random numbers for photos, by place in its order: the same whatever source they are for."""

    order: Tensor
    uniforms: npt.NDArray[np.float32]
    """[n, 5]: area, aspect, x and y of the crop (files.random_crop_box), and the flip."""
    factors: npt.NDArray[np.float32] | None
    """Of the brightness, where it is changed."""

    @classmethod
    def draw(cls, indices: Tensor, rng: torch.Generator, brightness: float) -> PhotoDraws:
        order = indices[torch.randperm(len(indices), generator=rng)]
        uniforms = torch.rand(len(order), 5, generator=rng).numpy()
        factors = _factors(len(order), brightness, rng).numpy() if brightness else None
        return cls(order, uniforms, factors)

    @property
    def flips(self) -> npt.NDArray[np.bool_]:
        return self.uniforms[:, 4] < 0.5


class Normalise:
    """uint8 [n, H, W, C] -> (x / 255 - mean) / std as float32 [n, C, H, W], by one multiply-add."""

    def __init__(self, preparation: Preparation, device: torch.device) -> None:
        std = torch.tensor(preparation.std, device=device)
        self.scale = 1 / (255 * std)
        self.shift = -torch.tensor(preparation.mean, device=device) / std

    def __call__(self, images: Tensor) -> Tensor:
        return torch.addcmul(self.shift, images.float(), self.scale).permute(0, 3, 1, 2)


class ResidentImages:
    """All images of a split on the device as uint8, padded once; crops and flips are one gather a batch."""

    def __init__(
        self, split: ImageSplit, labels: Tensor, preparation: Preparation, device: torch.device
    ) -> None:
        if not isinstance(split.images, np.ndarray):
            raise TypeError("ResidentImages needs the images in memory")
        self.labels = labels
        self.padding = preparation.padding
        self.flip = preparation.flip
        images = torch.from_numpy(split.images)
        margins = (0, 0, self.padding, self.padding, self.padding, self.padding)
        # Zeros before normalisation, that is black: as torchvision pads (and not the mean colour).
        self.images = torch.nn.functional.pad(images, margins).to(device)
        self.device_labels = labels.to(device)
        self.height, self.width = images.shape[1:3]
        self.rows = torch.arange(self.height, device=device)
        self.columns = torch.arange(self.width, device=device)
        self.normalise = Normalise(preparation, device)

    def train_batches(
        self, indices: Tensor, batch_size: int, rng: torch.Generator, brightness: float = 0.0
    ) -> Iterator[Ticket]:
        count = len(indices)
        shuffled = indices[torch.randperm(count, generator=rng)]
        offsets = torch.randint(0, 2 * self.padding + 1, (2, count), generator=rng)
        flips = torch.randint(0, 2 if self.flip else 1, (1, count), generator=rng)
        plan = [shuffled[None], offsets, flips]
        if brightness:
            plan.append((_factors(count, brightness, rng) * FULL_LIGHT).round().long()[None])
        return self._slices(torch.cat(plan), batch_size)

    def test_batches(self, indices: Tensor, batch_size: int) -> Iterator[Ticket]:
        middle = torch.full((2, len(indices)), self.padding)
        return self._slices(torch.cat([indices[None], middle, torch.zeros_like(indices)[None]]), batch_size)

    def _slices(self, plan: Tensor, batch_size: int) -> Iterator[Ticket]:
        # Moved to the device once an epoch; each batch is then a slice of it.
        return ((part,) for part in send(plan, self.images.device).split(batch_size, dim=1))

    def prepare(self, ticket: Ticket) -> tuple[Tensor, Tensor]:
        index, top, left, flip, *light = ticket[0]
        rows = top[:, None] + self.rows
        columns = left[:, None] + torch.where(flip[:, None] > 0, self.width - 1 - self.columns, self.columns)
        crops = self.images[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        if light:
            crops = (crops * (light[0] / FULL_LIGHT)[:, None, None, None]).clamp_max(255)
        return self.normalise(crops), self.device_labels[index]


class FileImages:
    """Images read from files, decoded and cropped by threads a few batches ahead of the training."""

    READ_AHEAD = 4  # batches

    def __init__(
        self,
        split: ImageSplit,
        labels: Tensor,
        preparation: Preparation,
        device: torch.device,
        workers: int = WORKERS,
    ) -> None:
        if isinstance(split.images, np.ndarray):
            raise TypeError("FileImages needs the paths of image files")
        self.paths: Sequence[Path] = split.images
        self.labels = labels
        self.preparation = preparation
        self.device = device
        self.workers = workers
        self.normalise = Normalise(preparation, device)

    def train_batches(
        self, indices: Tensor, batch_size: int, rng: torch.Generator, brightness: float = 0.0
    ) -> Iterator[Ticket]:
        draws = PhotoDraws.draw(indices, rng, brightness)
        order, size, flips = draws.order.tolist(), self.preparation.size, draws.flips

        def view(at: int) -> npt.NDArray[np.uint8]:
            crop = random_resized_view(read_image(self.paths[order[at]]), size, draws.uniforms[at])
            if draws.factors is not None:
                crop = np.clip(crop * draws.factors[at], 0, 255).astype(np.uint8)
            return crop[:, ::-1] if self.preparation.flip and flips[at] else crop

        return self._batches(order, batch_size, view)

    def test_batches(self, indices: Tensor, batch_size: int) -> Iterator[Ticket]:
        order = indices.tolist()
        resize, size = self.preparation.resize, self.preparation.size
        return self._batches(
            order, batch_size, lambda at: centre_view(read_image(self.paths[order[at]]), resize, size)
        )

    def _batches(
        self, order: list[int], batch_size: int, view: Callable[[int], npt.NDArray[np.uint8]]
    ) -> Iterator[Ticket]:
        views = read_ahead(view, len(order), self.READ_AHEAD * batch_size, self.workers)
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            images = torch.from_numpy(np.stack(list(itertools.islice(views, len(part)))))
            yield send(images, self.device), send(self.labels[part], self.device)

    def prepare(self, ticket: Ticket) -> tuple[Tensor, Tensor]:
        images, labels = ticket
        return self.normalise(images), labels
