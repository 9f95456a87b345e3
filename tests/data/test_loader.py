"""Batches: what the two sources hand out, against crops, flips and normalisation done one image at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from phasezero.data.files import centre_view, read_image
from phasezero.data.images import ImageSplit, Preparation
from phasezero.data.loader import FileImages, ResidentImages
from phasezero.errors import UserError

CPU = torch.device("cpu")
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.1)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slow_normalise(image: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> np.ndarray:
    """[H, W, C] bytes -> [C, H, W] as torchvision's ToTensor and Normalize make it."""
    height, width, channels = image.shape
    out = np.zeros((channels, height, width))
    for c in range(channels):
        out[c] = (image[:, :, c] / 255.0 - mean[c]) / std[c]
    return out


# ---- images in memory -------------------------------------------------------------------------------------


def resident(
    count: int = 23, *, side: tuple[int, int] = (6, 5), channels: int = 3, padding: int = 2, flip: bool = True
) -> tuple[ResidentImages, np.ndarray, Tensor]:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count, *side, channels), np.uint8)
    labels = torch.from_numpy(generator.integers(0, 9, count))
    preparation = Preparation(
        MEAN[:channels], STD[:channels], crop="pad", size=side[0], padding=padding, flip=flip
    )
    return ResidentImages(ImageSplit(images, labels.numpy()), labels, preparation, CPU), images, labels


def slow_view(image: np.ndarray, top: int, left: int, flip: bool, padding: int) -> np.ndarray:
    """Black margins, then a crop of the first size, then its mirror image."""
    height, width, channels = image.shape
    canvas = np.zeros((height + 2 * padding, width + 2 * padding, channels), np.uint8)
    canvas[padding : padding + height, padding : padding + width] = image
    crop = canvas[top : top + height, left : left + width]
    return crop[:, ::-1] if flip else crop


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("padding", [0, 2])
@pytest.mark.parametrize("flip", [False, True])
def test_training_views(channels: int, padding: int, flip: bool) -> None:
    source, images, labels = resident(200, channels=channels, padding=padding, flip=flip)
    mean, std = MEAN[:channels], STD[:channels]
    flipped = 0
    for ticket in source.train_batches(torch.arange(200), 64, rng()):
        prepared, prepared_labels = source.prepare(ticket)
        assert prepared.dtype == torch.float32
        assert prepared.is_contiguous(memory_format=torch.channels_last)
        for one, label, (index, top, left, mirrored) in zip(
            prepared, prepared_labels, ticket[0].T.tolist(), strict=True
        ):
            view = slow_view(images[index], top, left, bool(mirrored), padding)
            assert np.allclose(one.numpy(), slow_normalise(view, mean, std), atol=1e-5)
            assert label == labels[index]
            flipped += mirrored
    assert (60 < flipped < 140) if flip else flipped == 0


def test_margins_are_black_before_normalisation() -> None:
    """Not the mean colour, which a margin after normalisation would be."""
    images = np.full((1, 4, 4, 3), 255, np.uint8)
    preparation = Preparation(MEAN, STD, crop="pad", size=4, padding=4, flip=False)
    source = ResidentImages(
        ImageSplit(images, np.zeros(1, np.int64)), torch.zeros(1).long(), preparation, CPU
    )
    corner = torch.tensor([[0], [0], [0], [0]])  # image 0, offset (0, 0), no flip: margin only
    prepared, _ = source.prepare((corner,))
    for c in range(3):
        assert torch.allclose(prepared[0, c], torch.tensor(-MEAN[c] / STD[c]))


@pytest.mark.parametrize(("count", "batch_size"), [(23, 5), (23, 23), (23, 100), (20, 5), (1, 4)])
def test_an_epoch_has_every_image_once_and_keeps_its_tail(count: int, batch_size: int) -> None:
    source, _, labels = resident()
    indices = torch.arange(23)[:count].flip(0)
    tickets = list(source.train_batches(indices, batch_size, rng()))
    sizes = [ticket[0].shape[1] for ticket in tickets]
    assert sum(sizes) == count
    assert all(size == batch_size for size in sizes[:-1])
    assert sizes[-1] == (count % batch_size or batch_size)
    drawn = torch.cat([ticket[0][0] for ticket in tickets])
    assert sorted(drawn.tolist()) == sorted(indices.tolist())
    assert torch.equal(torch.cat([source.prepare(ticket)[1] for ticket in tickets]), labels[drawn])


def test_an_index_that_is_given_twice_is_drawn_twice() -> None:
    source, _, _ = resident()
    (ticket,) = source.train_batches(torch.tensor([3, 8, 3]), 10, rng())
    assert sorted(ticket[0][0].tolist()) == [3, 3, 8]


def test_the_generator_decides() -> None:
    source, _, _ = resident()

    def epoch(seed: int) -> Tensor:
        return torch.cat([ticket[0] for ticket in source.train_batches(torch.arange(23), 5, rng(seed))], 1)

    assert torch.equal(epoch(1), epoch(1))
    assert not torch.equal(epoch(1), epoch(2))
    assert epoch(1)[0].tolist() != list(range(23))


def test_the_batch_size_does_not_change_the_draws() -> None:
    source, _, _ = resident()
    whole, halves = (
        torch.cat([ticket[0] for ticket in source.train_batches(torch.arange(23), size, rng())], 1)
        for size in (23, 7)
    )
    assert torch.equal(whole, halves)


def test_crops_cover_every_offset_evenly() -> None:
    source, _, _ = resident(padding=4)
    counts = np.zeros((9, 9), int)
    for ticket in source.train_batches(torch.zeros(8100, dtype=torch.long), 1000, rng()):
        for top, left in ticket[0][1:3].T.tolist():
            counts[top, left] += 1
    assert counts.min() > 50  # 100 on average, 10 standard deviation
    assert counts.max() < 150


def test_test_views_are_the_images_themselves() -> None:
    source, images, labels = resident()
    indices = torch.tensor([22, 3, 3, 0, 17])
    parts = [source.prepare(ticket) for ticket in source.test_batches(indices, 2)]
    assert [len(part[1]) for part in parts] == [2, 2, 1]
    prepared, prepared_labels = (torch.cat(each) for each in zip(*parts, strict=True))
    expected = np.stack([slow_normalise(images[i], MEAN, STD) for i in indices])
    assert np.allclose(prepared.numpy(), expected, atol=1e-5)
    assert torch.equal(prepared_labels, labels[indices])


# ---- image files ------------------------------------------------------------------------------------------

FILES = Preparation((0.5, 0.4, 0.3), (0.2, 0.25, 0.1), crop="resized", size=16, resize=20)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Eleven pictures of many shapes; the first is bright red, the rest noise."""
    generator = np.random.default_rng(0)
    made = []
    for i in range(11):
        pixels = generator.integers(0, 256, (20 + 3 * i, 50 - 2 * i, 3), np.uint8)
        if i == 0:
            pixels[:] = (255, 0, 0)
        path = tmp_path / (f"{i}.png" if i % 2 else f"{i}.jpg")
        Image.fromarray(pixels).save(path)
        made.append(path)
    return made


def file_source(paths: list[Path], preparation: Preparation = FILES, workers: int = 3) -> FileImages:
    labels = torch.arange(len(paths)) * 10
    return FileImages(ImageSplit(paths, labels.numpy()), labels, preparation, CPU, workers)


def test_test_views_of_files(paths: list[Path]) -> None:
    source = file_source(paths)
    indices = torch.tensor([7, 0, 10, 3, 3, 5, 1])
    parts = [source.prepare(ticket) for ticket in source.test_batches(indices, 3)]
    assert [len(part[1]) for part in parts] == [3, 3, 1]
    prepared, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    assert prepared.shape == (7, 3, 16, 16)
    assert prepared.dtype == torch.float32
    assert labels.tolist() == [70, 0, 100, 30, 30, 50, 10]
    for one, index in zip(prepared, indices.tolist(), strict=True):
        view = centre_view(read_image(paths[index]), resize=20, size=16)
        assert np.allclose(one.numpy(), slow_normalise(view, FILES.mean, FILES.std), atol=1e-5)


def test_many_more_batches_than_are_read_ahead(paths: list[Path]) -> None:
    source = file_source(paths)
    assert len(paths) > 2 * FileImages.READ_AHEAD
    labels = [label for _, batch in source.test_batches(torch.arange(11), 1) for label in batch.tolist()]
    assert labels == [10 * i for i in range(11)]


@pytest.mark.parametrize("batch_size", [1, 4, 11, 50])
def test_an_epoch_over_files(paths: list[Path], batch_size: int) -> None:
    source = file_source(paths)
    tickets = list(source.train_batches(torch.arange(11), batch_size, rng()))
    sizes = [len(labels) for _, labels in tickets]
    assert sum(sizes) == 11
    assert all(size == batch_size for size in sizes[:-1])
    assert sorted(torch.cat([labels for _, labels in tickets]).tolist()) == [10 * i for i in range(11)]
    for images, labels in tickets:
        assert images.dtype == torch.uint8
        assert images.shape == (len(labels), 16, 16, 3)
        prepared, same = source.prepare((images, labels))
        assert torch.equal(same, labels)
        for one, pixels, label in zip(prepared, images, labels.tolist(), strict=True):
            assert np.allclose(one.numpy(), slow_normalise(pixels.numpy(), FILES.mean, FILES.std), atol=1e-5)
            is_red = bool((pixels[..., 0] > 240).all() and (pixels[..., 1:] < 15).all())
            assert is_red == (label == 0)  # each picture keeps its own label


def test_views_of_files_depend_on_the_generator_alone(paths: list[Path]) -> None:
    def epoch(seed: int, batch_size: int = 4, workers: int = 3) -> tuple[Tensor, Tensor]:
        tickets = file_source(paths, workers=workers).train_batches(torch.arange(11), batch_size, rng(seed))
        images, labels = zip(*tickets, strict=True)
        return torch.cat(images), torch.cat(labels)

    images, labels = epoch(1)
    for again_images, again_labels in (epoch(1), epoch(1, batch_size=11), epoch(1, workers=1)):
        assert torch.equal(images, again_images)
        assert torch.equal(labels, again_labels)
    other_images, other_labels = epoch(2)
    assert not torch.equal(labels, other_labels)
    assert not torch.equal(images, other_images)


def test_files_are_flipped_half_of_the_time(tmp_path: Path) -> None:
    """A picture that is dark on the left and bright on the right shows which way round it is."""
    ramp = np.tile(np.linspace(0, 255, 64).astype(np.uint8)[None, :, None], (64, 1, 3))
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    for flip, low, high in ((True, 15, 45), (False, 0, 0)):
        preparation = Preparation(MEAN, STD, crop="resized", size=16, resize=20, flip=flip)
        source = file_source([tmp_path / "ramp.png"], preparation)
        (ticket,) = source.train_batches(torch.zeros(60, dtype=torch.long), 60, rng())
        images = ticket[0].float()
        mirrored = int((images[:, :, 0].mean((1, 2)) > images[:, :, -1].mean((1, 2))).sum())
        assert low <= mirrored <= high


def test_the_brightness_of_files_is_cut_at_white(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30), (200, 200, 200)).save(tmp_path / "grey.png")
    source = file_source([tmp_path / "grey.png"])
    (ticket,) = source.train_batches(torch.zeros(60, dtype=torch.long), 60, rng(), brightness=0.5)
    lights = ticket[0].flatten(1).float()
    assert torch.equal(lights.amin(1), lights.amax(1))
    assert 99 <= lights.min() < 120  # a pixel that overflows would begin at black again
    assert 5 <= int((lights[:, 0] == 255).sum()) <= 30  # a factor of 1.275 or more: 22.5% of the draws


@pytest.mark.parametrize("training", [False, True])
def test_a_damaged_file_is_named(paths: list[Path], training: bool) -> None:
    paths[6].write_bytes(b"not a picture")
    source = file_source(paths)
    indices = torch.arange(11)
    batches = source.train_batches(indices, 2, rng()) if training else source.test_batches(indices, 2)
    with pytest.raises(UserError, match=r"6\.jpg"):
        list(batches)


def test_an_epoch_may_be_left_early(paths: list[Path]) -> None:
    source = file_source(paths)
    batches = source.train_batches(torch.arange(11), 2, rng())
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(list(source.train_batches(torch.arange(11), 2, rng()))) == 6


# ---- the rest ---------------------------------------------------------------------------------------------


def test_each_source_refuses_the_others_images(paths: list[Path]) -> None:
    labels = torch.zeros(11, dtype=torch.long)
    with pytest.raises(TypeError):
        ResidentImages(ImageSplit(paths, labels.numpy()), labels, FILES, CPU)
    with pytest.raises(TypeError):
        FileImages(ImageSplit(np.zeros((11, 4, 4, 3), np.uint8), labels.numpy()), labels, FILES, CPU)


def test_brightness_multiplies_pixels_and_is_cut_at_white() -> None:
    images = np.array([10, 100, 200, 250], np.uint8).repeat(4).reshape(4, 2, 2, 1)
    plain = Preparation((0.0,), (1.0,), crop="pad", size=2, padding=0, flip=False)
    source = ResidentImages(ImageSplit(images, np.arange(4)), torch.arange(4), plain, torch.device("cpu"))
    seen = []
    for seed in range(50):
        rng = torch.Generator().manual_seed(seed)
        ((ticket,),) = source.train_batches(torch.arange(4), 4, rng, brightness=0.5)
        pixels, labels = source.prepare((ticket,))
        for image, label, light in zip(pixels, labels.tolist(), ticket[4].tolist(), strict=True):
            factor = light / 65536
            assert 0.5 <= factor <= 1.5
            expected = min(int(images[label, 0, 0, 0]) * factor, 255.0) / 255
            assert torch.allclose(image, torch.full_like(image, expected), atol=1e-6)
            seen.append(factor)
    assert min(seen) < 0.6
    assert max(seen) > 1.4
