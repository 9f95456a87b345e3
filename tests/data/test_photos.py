"""Batches of every source, and of image files: against views made pixel by pixel, and by Pillow."""

from __future__ import annotations

import itertools
import math
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode

from phasezero.data import files
from phasezero.data.files import centre_view, read_image
from phasezero.data.images import ImageSplit, Preparation, View
from phasezero.data.loader import FileImages, ImageSource, ResidentImages
from phasezero.data.photos import ResidentPhotos, bytes_to_pack
from phasezero.errors import UserError
from slow import resized_crop, rng

CALTECH = Path(__file__).parents[2].parent / "shared" / "data" / "caltech101" / "caltech101-30.tar"
CPU = torch.device("cpu")
SMALL = Preparation((0.5, 0.4, 0.3), (0.2, 0.25, 0.1), size=16, view=View("resized"), resize=20)
BRIGHT = View("resized", brightness=0.4)
KINDS = (ResidentPhotos, FileImages)
both_sources = pytest.mark.parametrize("kind", KINDS)
every_source = pytest.mark.parametrize("kind", [ResidentImages, *KINDS])


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Larger than a test view of 16 pixels from 20 wants them, of its very size, smaller, a line; of all kinds."""
    shapes = [(41, 27), (27, 43), (20, 33), (31, 20), (12, 9), (16, 16), (1, 30), (50, 1), (1, 1), (19, 300)]
    made = {f"{width}x{height}.png": noise(width, height, at) for at, (width, height) in enumerate(shapes)}
    made["grey.png"] = noise(30, 40).convert("L")
    made["cmyk.jpg"] = noise(45, 33).convert("CMYK")
    alpha = noise(26, 24).convert("RGBA")
    alpha.putalpha(noise(26, 24, seed=1).convert("L"))
    made["alpha.png"] = alpha
    made["deep.tiff"] = Image.fromarray(np.random.default_rng(0).integers(0, 1 << 16, (25, 35), np.uint16))
    for name, image in made.items():
        image.save(tmp_path / name)
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    noise(50, 30).save(tmp_path / "turned.jpg", exif=exif)
    return [tmp_path / name for name in (*made, "turned.jpg")]


def make(
    kind: type[ImageSource], paths: list[Path], preparation: Preparation = SMALL, device: torch.device = CPU
) -> ImageSource:
    labels = torch.arange(len(paths)) * 10
    return kind(ImageSplit(paths, labels.numpy()), labels, preparation, device)


def pixels(source: ImageSource, batches: Iterator[tuple[Tensor, ...]], preparation: Preparation = SMALL) -> Tensor:
    """The batches' images [n, size, size, 3] in grey levels, normalisation undone."""
    std, mean = torch.tensor(preparation.std), torch.tensor(preparation.mean)
    images = torch.cat([source.prepare(plan)[0] for plan in batches])
    return (images.permute(0, 2, 3, 1) * std + mean) * 255


# ---- every source -----------------------------------------------------------------------------------------


def shades(kind: type[ImageSource], folder: Path) -> ImageSource:
    """Thirteen pictures, each brighter than the one before; labels 0, 10, 20 and so on."""
    made, labels = [folder / f"{shade}.png" for shade in range(0, 255, 20)], torch.arange(13) * 10
    for path in made:
        Image.new("L", (30, 25), int(path.stem)).save(path)
    images = np.stack([np.array(read_image(path)) for path in made]) if kind is ResidentImages else made
    preparation = replace(SMALL, view=View("pad", 4)) if kind is ResidentImages else SMALL
    return kind(ImageSplit(images, labels.numpy()), labels, preparation, CPU)


@every_source
@pytest.mark.parametrize("batch_size", [1, 4, 50])
def test_an_epoch_has_every_image_once_with_its_label(kind: type[ImageSource], batch_size: int, tmp_path: Path) -> None:
    source = shades(kind, tmp_path)
    batches = [source.prepare(plan) for plan in source.train_batches(torch.arange(13), batch_size, rng())]
    assert all(len(labels) == batch_size for _, labels in batches[:-1])
    images, labels = (torch.cat(each) for each in zip(*batches, strict=True))
    assert images.dtype == torch.float32
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.tolist() != sorted(labels.tolist())
    darkest_first = images.amax((1, 2, 3)).argsort()
    assert labels[darkest_first].tolist() == [10 * i for i in range(13)]  # each picture keeps its own label
    (twice,) = source.train_batches(torch.tensor([3, 8, 3]), 10, rng())
    assert sorted(source.prepare(twice)[1].tolist()) == [30, 30, 80]


@every_source
def test_the_generator_alone_decides_about_the_views(kind: type[ImageSource], tmp_path: Path) -> None:
    source = shades(kind, tmp_path)

    def epoch(seed: int, batch_size: int = 4) -> Tensor:
        return pixels(source, source.train_batches(torch.arange(13), batch_size, rng(seed), BRIGHT))

    first = epoch(1)
    assert torch.equal(first, epoch(1))
    assert torch.equal(first, epoch(1, batch_size=11))
    assert not torch.equal(first, epoch(2))


# ---- photos -----------------------------------------------------------------------------------------------


@every_source
def test_images_for_another_source_are_refused(kind: type[ImageSource], paths: list[Path]) -> None:
    images = paths[:2] if kind is ResidentImages else np.zeros((2, 4, 4, 3), np.uint8)
    with pytest.raises(TypeError, match=r"in memory|files"):
        kind(ImageSplit(images, np.arange(2)), torch.arange(2), SMALL, CPU)


def slow_view(image: Image.Image, box: tuple[float, ...], size: int) -> np.ndarray:
    """Bilinear, a pixel at a time; beyond the centres of the crop's outermost pixels their colour goes on."""
    if (short := min(image.size)) > 20:  # a large photo was shrunk first
        shrunk = image.resize((20 * image.width // short, 20 * image.height // short), Image.Resampling.BILINEAR)
        x, y = shrunk.width / image.width, shrunk.height / image.height
        box, image = (box[0] * x, box[1] * y, box[2] * x, box[3] * y), shrunk
    photo, (left, top, right, bottom) = np.array(image), box
    view = np.zeros((size, size, 3))
    for row in range(size):
        y = top + (row + 0.5) * (bottom - top) / size - 0.5
        y = min(max(y, top), max(bottom - 1, top), image.height - 1)
        y0 = math.floor(y)
        y1 = min(y0 + 1, image.height - 1)
        for column in range(size):
            x = left + (column + 0.5) * (right - left) / size - 0.5
            x = min(max(x, left), max(right - 1, left), image.width - 1)
            x0 = math.floor(x)
            x1 = min(x0 + 1, image.width - 1)
            upper = photo[y0, x0] * (x0 + 1 - x) + photo[y0, x1] * (x - x0)
            lower = photo[y1, x0] * (x0 + 1 - x) + photo[y1, x1] * (x - x0)
            view[row, column] = upper * (y0 + 1 - y) + lower * (y - y0)
    return view


@both_sources
@pytest.mark.parametrize(("flip", "brightness"), [(False, 0.0), (True, 0.0), (True, 0.4)])
def test_training_views(kind: type[ImageSource], paths: list[Path], flip: bool, brightness: float) -> None:
    """Pillow crops and resizes files; on the device it is written again, and not rounded."""
    preparation = replace(SMALL, size=9)
    source = make(kind, paths, preparation)
    indices, view = torch.arange(len(paths)).repeat(3), View("resized", flip=flip, brightness=brightness)
    views = pixels(source, source.train_batches(indices, 7, rng(5), view), preparation)

    again = rng(5)
    order = indices[torch.randperm(len(indices), generator=again)].tolist()
    draws = torch.rand(len(order), 23, generator=again).tolist()
    lights = torch.rand(len(order), generator=again).tolist() if brightness else [0.5] * len(order)
    mirrored, cut = 0, 0
    for found, index, u, light in zip(views, order, draws, lights, strict=True):
        image = read_image(paths[index])
        box = resized_crop(image.width, image.height, u)
        resized = image.crop(box).resize((9, 9), Image.Resampling.BILINEAR)
        expected = np.array(resized) if kind is FileImages else slow_view(image, box, 9)
        if flip and u[22] < 0.5:
            expected, mirrored = expected[:, ::-1], mirrored + 1
        expected = expected * np.float32(1 + brightness * (2 * light - 1))
        cut += int((expected > 255).sum())
        expected = np.minimum(np.floor(expected) if kind is FileImages else expected, 255)
        assert np.abs(found.numpy() - expected).max() < 0.02, paths[index].name
    assert (10 < mirrored < len(order) - 10) if flip else mirrored == 0
    assert bool(cut) == bool(brightness)


# ---- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 4])
def test_test_views_of_files(paths: list[Path], batch_size: int) -> None:
    source, indices = make(FileImages, paths), torch.tensor([3, *reversed(range(len(paths)))])
    assert len(indices) > 2 * FileImages.READ_AHEAD
    parts = [source.prepare(plan) for plan in source.test_batches(indices, batch_size)]
    assert all(len(labels) == batch_size for _, labels in parts)
    images, labels = (torch.cat(each) for each in zip(*parts, strict=True))
    assert labels.tolist() == [10 * index for index in indices.tolist()]
    for one, index in zip(images, indices.tolist(), strict=True):
        view = centre_view(read_image(paths[index]), resize=20, size=16)
        for c in range(3):
            expected = (view[:, :, c] / 255.0 - SMALL.mean[c]) / SMALL.std[c]
            assert np.allclose(one[c].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
def test_a_damaged_file_is_named_when_it_is_read(paths: list[Path], training: bool) -> None:
    paths[6].write_bytes(b"not a picture")
    source, indices = make(FileImages, paths), torch.arange(11)
    with pytest.raises(UserError, match=paths[6].name):
        list(source.train_batches(indices, 2, rng()) if training else source.test_batches(indices, 2))


def test_an_epoch_may_be_left_early(paths: list[Path]) -> None:
    source = make(FileImages, paths)
    batches = source.train_batches(torch.arange(11), 2, rng())
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(list(source.train_batches(torch.arange(11), 2, rng()))) == 6


# ---- resident photos --------------------------------------------------------------------------------------


@pytest.mark.parametrize("preparation", [SMALL, replace(SMALL, size=7, resize=40), replace(SMALL, size=20)])
def test_the_test_view_is_that_of_the_files_bit_for_bit(paths: list[Path], preparation: Preparation) -> None:
    """The second: all but a few photos are smaller than it wants them. The third: up to the photo's last pixel."""
    resident, from_files = (make(kind, paths, preparation) for kind in KINDS)
    indices = torch.tensor([*range(len(paths)), 3, 3, 0])
    pairs = zip(resident.test_batches(indices, 4), from_files.test_batches(indices, 4), strict=True)
    for plan, other in pairs:
        images, labels = resident.prepare(plan)
        expected, expected_labels = from_files.prepare(other)
        assert torch.equal(images, expected)
        assert torch.equal(labels, expected_labels)
        assert images.is_contiguous(memory_format=torch.channels_last)


def test_real_photos(tmp_path: Path) -> None:
    if not CALTECH.is_file():
        pytest.skip("the photos of Caltech-101 are not beside this repository")
    with tarfile.open(CALTECH) as tar:
        entries = list(itertools.islice((entry for entry in tar if entry.name.endswith(".jpg")), 12))
        tar.extractall(tmp_path, entries, filter="data")
    real_photos = [tmp_path / entry.name for entry in entries]
    preparation = Preparation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 224, View("resized"), resize=256)
    sources = [make(kind, real_photos, preparation) for kind in KINDS]
    test_views = [pixels(one, one.test_batches(torch.arange(12), 5), preparation) for one in sources]
    assert torch.equal(*test_views)
    views = [pixels(one, one.train_batches(torch.arange(12), 5, rng()), preparation) for one in sources]
    assert (views[0] - views[1]).abs().mean() < 2.5
    assert views[0].std() > 30


# ---- packing ----------------------------------------------------------------------------------------------


def test_bytes_are_known_before_anything_is_decoded(paths: list[Path]) -> None:
    sizes = [read_image(path).size for path in paths[:6]]
    assert sizes == [(41, 27), (27, 43), (20, 33), (31, 20), (12, 9), (16, 16)]
    by_hand = 20 * 30 + 20 * 31 + 20 * 33 + 31 * 20 + (12 * 9 + 256) + (256 + 256)
    assert bytes_to_pack(paths[:6], SMALL, CPU) == 3 * by_hand
    promised = bytes_to_pack(paths, SMALL, CPU)
    source = make(ResidentPhotos, paths)
    assert source.photos.pixels.dtype == torch.uint8  # type: ignore[attr-defined]
    assert source.photos.pixels.numel() - 3 == promised  # type: ignore[attr-defined]


def test_photos_are_packed_once_for_all_who_want_them(paths: list[Path]) -> None:
    first, second, other = (make(ResidentPhotos, each) for each in (paths, list(paths), paths[1:]))
    assert first.photos is second.photos  # type: ignore[attr-defined]
    assert first.photos is not other.photos  # type: ignore[attr-defined]
    assert bytes_to_pack(paths, SMALL, CPU) == 0
    del first, second
    assert bytes_to_pack(paths, SMALL, CPU) > 0


def test_a_damaged_or_changed_file_is_named_when_photos_are_packed(paths: list[Path]) -> None:
    content = paths[3].read_bytes()
    assert bytes_to_pack(paths, SMALL, CPU) > 0
    paths[3].write_bytes(content[: len(content) // 2])  # after the check
    with pytest.raises(UserError, match=paths[3].name):
        make(ResidentPhotos, paths)
    noise(77, 78).save(paths[3])
    with pytest.raises(UserError, match=rf"{paths[3].name} has changed"):
        make(ResidentPhotos, paths)
    paths[3].write_bytes(b"words")
    files.image_sizes.cache_clear()
    with pytest.raises(UserError, match=paths[3].name):
        bytes_to_pack(paths, SMALL, CPU)


# ---- capture ----------------------------------------------------------------------------------------------


def test_no_batch_looks_at_values(paths: list[Path]) -> None:
    """Fake tensors have no values: what needs any, or a shape that depends on them, raises."""
    source, indices = make(ResidentPhotos, paths), torch.arange(len(paths))
    plans = [*source.train_batches(indices, 6, rng(), BRIGHT), *source.test_batches(indices, 6)]
    with FakeTensorMode() as mode:
        for owner in (source, source.photos):  # type: ignore[attr-defined]
            for name, value in list(vars(owner).items()):
                if isinstance(value, Tensor):
                    setattr(owner, name, mode.from_tensor(value))
        for plan in plans:
            images, labels = source.prepare(tuple(mode.from_tensor(part) for part in plan))
            assert isinstance(images, FakeTensor)
            assert images.shape == (len(plan[0]), 3, 16, 16)
            assert labels.shape == (len(plan[0]),)
            with pytest.raises(DataDependentOutputException):
                images.sum().item()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_captured(paths: list[Path]) -> None:
    """A replayed graph gives the CPU's views; test views are those of the files there too."""
    resident, from_files = (make(kind, paths, device=torch.device("cuda")) for kind in KINDS)
    on_cpu, indices = make(ResidentPhotos, paths), torch.arange(15)
    plans, expected = (list(source.train_batches(indices, 5, rng(), BRIGHT)) for source in (resident, on_cpu))
    inputs = tuple(part.clone() for part in plans[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        resident.prepare(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        images, found = resident.prepare(inputs)
    for plan, other in zip(plans, expected, strict=True):
        for own, given in zip(inputs, plan, strict=True):
            own.copy_(given)
        graph.replay()
        wanted, wanted_labels = on_cpu.prepare(other)
        assert torch.allclose(images.cpu(), wanted, atol=1e-3)
        assert torch.equal(found.cpu(), wanted_labels)
    for plan, other in zip(resident.test_batches(indices, 4), from_files.test_batches(indices, 4), strict=True):
        assert torch.equal(resident.prepare(plan)[0], from_files.prepare(other)[0])
