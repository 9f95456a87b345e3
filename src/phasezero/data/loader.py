"""From images to batches. Sources: images in memory, files that threads read ahead, and resident photos (photos.py).

A source yields *batch plans*, small tuples of tensors that name a batch and hold every random number it needs.
`prepare` turns a plan into a batch; it is tensor work only and can be captured in a CUDA graph. The random numbers of
an epoch are drawn on the CPU, so they are the same on every device and engine.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from phasezero.data.files import CROP_DRAWS, Uniforms, centre_view, random_resized_view, read_ahead, read_image
from phasezero.data.images import ImageSplit, Preparation, View

BatchPlan = tuple[Tensor, ...]
BatchPlans = Iterator[BatchPlan]

FULL_LIGHT = 1 << 16
"""Brightness factors are whole numbers of this unit in batch plans of images in memory."""


def _send(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to the device; to a GPU from pinned memory, so that the host does not wait."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class ImageSource(ABC):
    """Serve the images of a split. `labels` has the class of each image as a position in the stream, on the CPU."""

    watch: Callable[[int], None] | None = None
    """Called with the number of images of each evaluated batch, to show progress."""

    def __init__(self, split: ImageSplit, labels: Tensor, preparation: Preparation, device: torch.device) -> None:
        self.labels, self.view, self.size, self.device = labels, preparation.view, preparation.size, device
        std = torch.tensor(preparation.std, device=device)
        self.scale, self.shift = 1 / (255 * std), -torch.tensor(preparation.mean, device=device) / std

    @abstractmethod
    def train_batches(
        self, indices: Tensor, batch_size: int, rng: Generator, view: View | None = None, first: int = 0
    ) -> BatchPlans:
        """Yield an epoch over the shuffled indices, in this view or the data set's; the last batch may be smaller.

        `first` batches, which were trained before a stop, are left out.
        """

    @abstractmethod
    def test_batches(self, indices: Tensor, batch_size: int, first: int = 0) -> BatchPlans:
        """Yield the indices in order, in the test view; `first` batches are left out."""

    @abstractmethod
    def views(self, plan: BatchPlan) -> tuple[Tensor, Tensor]:
        """Return the cropped pixels [n, H, W, C] of a batch, from 0 to 255, and their labels."""

    def prepare(self, plan: BatchPlan) -> tuple[Tensor, Tensor]:
        """Return normalised float images [n, C, H, W] (channels last in memory) and their labels."""
        pixels, labels = self.views(plan)
        return self.normalise(pixels), labels

    def normalise(self, images: Tensor) -> Tensor:
        """Turn pixels [n, H, W, C] into (x / 255 - mean) / std as float32 [n, C, H, W], by one multiply-add."""
        return torch.addcmul(self.shift, images.float(), self.scale).permute(0, 3, 1, 2)

    def slices(self, batch_size: int, *parts: Tensor, first: int = 0) -> BatchPlans:
        """Move an epoch's tensors [..., n] to the device at once; each batch plan is a slice of them."""
        return zip(*(_send(part, self.device).split(batch_size, dim=-1)[first:] for part in parts), strict=True)


class ResidentImages(ImageSource):
    """Keep all images of a split on the device as uint8, padded once; crop and flip a batch by one gather."""

    def __init__(self, split: ImageSplit, labels: Tensor, preparation: Preparation, device: torch.device) -> None:
        super().__init__(split, labels, preparation, device)
        images, self.padding = torch.from_numpy(split.pixels), self.view.padding
        margins = (0, 0, self.padding, self.padding, self.padding, self.padding)
        # Zeros before normalisation, that is black: as torchvision pads (and not the mean colour).
        self.images = torch.nn.functional.pad(images, margins).to(device)
        self.device_labels = labels.to(device)
        self.rows, self.columns = (torch.arange(side, device=device) for side in images.shape[1:3])

    def train_batches(
        self, indices: Tensor, batch_size: int, rng: Generator, view: View | None = None, first: int = 0
    ) -> BatchPlans:
        view, count = view or self.view, len(indices)
        shuffled = indices[torch.randperm(count, generator=rng)]
        offsets = torch.randint(0, 2 * self.padding + 1, (2, count), generator=rng)
        flips = torch.randint(0, 2 if view.flip else 1, (1, count), generator=rng)
        plan = [shuffled[None], offsets, flips]
        if view.brightness:
            plan.append((_factors(count, view, rng) * FULL_LIGHT).round().long()[None])
        return self.slices(batch_size, torch.cat(plan), first=first)

    def test_batches(self, indices: Tensor, batch_size: int, first: int = 0) -> BatchPlans:
        middle = torch.full((2, len(indices)), self.padding)
        return self.slices(batch_size, torch.cat([indices[None], middle, torch.zeros_like(indices)[None]]), first=first)

    def views(self, plan: BatchPlan) -> tuple[Tensor, Tensor]:
        index, top, left, flip, *light = plan[0]
        rows = top[:, None] + self.rows
        columns = left[:, None] + torch.where(flip[:, None] > 0, len(self.columns) - 1 - self.columns, self.columns)
        crops = self.images[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        if light:
            crops = (crops * (light[0] / FULL_LIGHT)[:, None, None, None]).clamp_max(255)
        return crops, self.device_labels[index]


class FileImages(ImageSource):
    """Read images from files; threads decode and crop a few batches ahead of the training."""

    READ_AHEAD = 4  # batches

    def __init__(self, split: ImageSplit, labels: Tensor, preparation: Preparation, device: torch.device) -> None:
        super().__init__(split, labels, preparation, device)
        self.photos, self.resize = split.photos, preparation.resize

    def train_batches(
        self, indices: Tensor, batch_size: int, rng: Generator, view: View | None = None, first: int = 0
    ) -> BatchPlans:
        view = view or self.view
        order, uniforms, flips, factors = draw_epoch(indices, rng, view)
        photos = [self.photos[index] for index in order.tolist()]
        mirrored, light = flips.numpy(), factors.numpy()

        def show(at: int) -> npt.NDArray[np.uint8]:
            crop = random_resized_view(read_image(photos[at]), self.size, uniforms[at])
            if view.brightness:
                crop = np.clip(crop * light[at], 0, 255).astype(np.uint8)
            return crop[:, ::-1] if mirrored[at] else crop

        return self._batches(order, batch_size, show, first)

    def test_batches(self, indices: Tensor, batch_size: int, first: int = 0) -> BatchPlans:
        photos = [self.photos[index] for index in indices.tolist()]

        def show(at: int) -> npt.NDArray[np.uint8]:
            return centre_view(read_image(photos[at]), self.resize, self.size)

        return self._batches(indices, batch_size, show, first)

    def _batches(
        self, order: Tensor, batch_size: int, show: Callable[[int], npt.NDArray[np.uint8]], first: int
    ) -> BatchPlans:
        begin = first * batch_size
        views = read_ahead(lambda at: show(begin + at), len(order) - begin, self.READ_AHEAD * batch_size)
        for start in range(begin, len(order), batch_size):
            part = order[start : start + batch_size]
            images = torch.from_numpy(np.stack(list(itertools.islice(views, len(part)))))
            yield _send(images, self.device), _send(self.labels[part], self.device)

    def views(self, plan: BatchPlan) -> tuple[Tensor, Tensor]:
        images, labels = plan
        return images, labels


def draw_epoch(indices: Tensor, rng: Generator, view: View) -> tuple[Tensor, Uniforms, Tensor, Tensor]:
    """Draw an epoch over photos, the same for every source: order [n], uniforms of crops, flips [n], brightness [n]."""
    order = indices[torch.randperm(len(indices), generator=rng)]
    uniforms = torch.rand(len(order), CROP_DRAWS + 1, generator=rng)  # the last is for the flip
    flips = (uniforms[:, -1] < 0.5) & view.flip
    return order, uniforms.numpy(), flips, _factors(len(order), view, rng)


def _factors(count: int, view: View, rng: Generator) -> Tensor:
    """Draw brightness factors; draw nothing if the view does not change brightness."""
    if not view.brightness:
        return torch.ones(count)
    return 1 + view.brightness * (2 * torch.rand(count, generator=rng) - 1)
