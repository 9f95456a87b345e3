"""Photos on the device: against views made pixel by pixel, and against those of the files themselves."""

from __future__ import annotations

import itertools
import math
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor, FakeTensorMode

from phasezero.data import files, photos
from phasezero.data.files import read_image
from phasezero.data.images import ImageSplit, Preparation
from phasezero.data.loader import FileImages, ImageSource
from phasezero.data.photos import ResidentPhotos, packed_bytes
from phasezero.errors import UserError

CPU = torch.device("cpu")
SMALL = Preparation((0.5, 0.4, 0.3), (0.2, 0.25, 0.1), crop="resized", size=16, resize=20)
CALTECH = Path(__file__).parents[2].parent / "shared" / "data" / "caltech101" / "caltech101-30.tar"


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Of all shapes: larger than the test view wants them, of its very size, smaller, a line; of all kinds."""
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
    kind: Callable[..., ImageSource], paths: list[Path], preparation: Preparation = SMALL
) -> ImageSource:
    labels = torch.arange(len(paths)) * 10
    return kind(ImageSplit(paths, labels.numpy()), labels, preparation, CPU)


def pixels(source: ImageSource, batches: Iterator[tuple[Tensor, ...]], preparation: Preparation) -> Tensor:
    """The batches' images [n, size, size, 3] in grey levels, normalisation undone."""
    std, mean = torch.tensor(preparation.std), torch.tensor(preparation.mean)
    images = torch.cat([source.prepare(ticket)[0] for ticket in batches])
    return (images.permute(0, 2, 3, 1) * std + mean) * 255


# ---- the test view ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "preparation", [SMALL, Preparation((0.5,) * 3, (0.25,) * 3, "resized", 7, resize=40)]
)
def test_the_test_view_is_that_of_the_files_bit_for_bit(paths: list[Path], preparation: Preparation) -> None:
    """The second: all but a few photos are smaller than it wants them."""
    resident, from_files = (make(kind, paths, preparation) for kind in (ResidentPhotos, FileImages))
    indices = torch.tensor([*range(len(paths)), 3, 3, 0])
    pairs = zip(resident.test_batches(indices, 4), from_files.test_batches(indices, 4), strict=True)
    for ticket, other in pairs:
        images, labels = resident.prepare(ticket)
        expected, expected_labels = from_files.prepare(other)
        assert torch.equal(images, expected)
        assert torch.equal(labels, expected_labels)
        assert images.is_contiguous(memory_format=torch.channels_last)


def test_a_test_view_up_to_the_last_pixel_of_all(tmp_path: Path) -> None:
    noise(20, 20).save(tmp_path / "a.png")
    preparation = Preparation(SMALL.mean, SMALL.std, "resized", size=20, resize=20)
    source = make(ResidentPhotos, [tmp_path / "a.png"], preparation)
    (view,) = pixels(source, source.test_batches(torch.tensor([0]), 1), preparation)
    assert np.array_equal(view.round().numpy(), np.array(noise(20, 20)))


# ---- training views ---------------------------------------------------------------------------------------


def slow_box(width: int, height: int, u: list[float]) -> tuple[int, int, int, int]:
    """An area of 8 to 100 %, an aspect of 3/4 to 4/3, shrunk if it does not fit, at a place that fits."""
    area = (0.08 + 0.92 * u[0]) * width * height
    aspect = (3 / 4) * (16 / 9) ** u[1]
    w, h = math.sqrt(area * aspect), math.sqrt(area / aspect)
    fit = min(1, width / w, height / h)
    w, h = min(max(round(w * fit), 1), width), min(max(round(h * fit), 1), height)
    left, top = math.floor(u[2] * (width - w + 1)), math.floor(u[3] * (height - h + 1))
    return left, top, left + w, top + h


def slow_view(photo: np.ndarray, box: tuple[float, float, float, float], size: int) -> np.ndarray:
    """Bilinear, a pixel at a time; beyond the centres of the crop's outermost pixels their colour goes on."""
    height, width, _ = photo.shape
    left, top, right, bottom = box
    view = np.zeros((size, size, 3))
    for row in range(size):
        y = top + (row + 0.5) * (bottom - top) / size - 0.5
        y = min(max(y, top), max(bottom - 1, top), height - 1)
        y0 = math.floor(y)
        y1 = min(y0 + 1, height - 1)
        for column in range(size):
            x = left + (column + 0.5) * (right - left) / size - 0.5
            x = min(max(x, left), max(right - 1, left), width - 1)
            x0 = math.floor(x)
            x1 = min(x0 + 1, width - 1)
            for colour in range(3):
                upper = photo[y0, x0, colour] * (x0 + 1 - x) + photo[y0, x1, colour] * (x - x0)
                lower = photo[y1, x0, colour] * (x0 + 1 - x) + photo[y1, x1, colour] * (x - x0)
                view[row, column, colour] = upper * (y0 + 1 - y) + lower * (y - y0)
    return view


@pytest.mark.parametrize(("flip", "brightness"), [(False, 0.0), (True, 0.0), (True, 0.4)])
def test_training_views(paths: list[Path], flip: bool, brightness: float) -> None:
    preparation = Preparation(SMALL.mean, SMALL.std, "resized", size=9, resize=20, flip=flip)
    source = make(ResidentPhotos, paths, preparation)
    indices = torch.arange(len(paths)).repeat(3)
    views = pixels(source, source.train_batches(indices, 7, rng(5), brightness), preparation)

    again = rng(5)
    order = indices[torch.randperm(len(indices), generator=again)].tolist()
    draws = torch.rand(len(order), 5, generator=again).tolist()
    lights = torch.rand(len(order), generator=again).tolist() if brightness else []
    mirrored, cut = 0, 0
    for at, (view, index, u) in enumerate(zip(views, order, draws, strict=True)):
        image = read_image(paths[index])
        box: tuple[float, ...] = slow_box(image.width, image.height, u)
        if (short := min(image.size)) > 20:
            shrunk = image.resize(
                (20 if image.width == short else 20 * image.width // short,
                 20 if image.height == short else 20 * image.height // short),
                Image.Resampling.BILINEAR,
            )  # fmt: skip
            x, y = shrunk.width / image.width, shrunk.height / image.height
            box, image = (box[0] * x, box[1] * y, box[2] * x, box[3] * y), shrunk
        expected = slow_view(np.array(image), box, 9)  # type: ignore[arg-type]
        if flip and u[4] < 0.5:
            expected, mirrored = expected[:, ::-1], mirrored + 1
        if brightness:
            expected = expected * (1 + brightness * (2 * lights[at] - 1))
            cut += int((expected > 255).sum())
        assert np.abs(view.numpy() - np.minimum(expected, 255)).max() < 0.02, paths[index].name
    assert (10 < mirrored < len(order) - 10) if flip else mirrored == 0
    assert bool(cut) == bool(brightness)


def test_an_epoch_has_every_photo_once_with_its_label(paths: list[Path]) -> None:
    source = make(ResidentPhotos, paths)
    tickets = list(source.train_batches(torch.arange(len(paths)), 4, rng()))
    assert [ticket[-1].shape[-1] for ticket in tickets] == [4, 4, 4, 3]
    labels = torch.cat([source.prepare(ticket)[1] for ticket in tickets])
    assert sorted(labels.tolist()) == [10 * i for i in range(len(paths))]
    assert torch.equal(labels, 10 * torch.cat([ticket[0] for ticket in tickets]))


def test_the_generator_decides(paths: list[Path]) -> None:
    def epoch(seed: int, batch_size: int = 4) -> Tensor:
        source = make(ResidentPhotos, paths)
        return pixels(
            source, source.train_batches(torch.arange(len(paths)), batch_size, rng(seed), 0.2), SMALL
        )

    assert torch.equal(epoch(1), epoch(1))
    assert torch.equal(epoch(1), epoch(1, batch_size=11))
    assert not torch.equal(epoch(1), epoch(2))


def test_both_sources_draw_the_same(paths: list[Path]) -> None:
    """Labels in the same order; of photos that are enlarged, views that differ by roundings alone."""
    (tiny,) = (path for path in paths if path.name == "12x9.png")
    resident, from_files = (make(kind, [tiny] * 30) for kind in (ResidentPhotos, FileImages))
    batches = [
        list(source.train_batches(torch.arange(30), 30, rng(), 0.0)) for source in (resident, from_files)
    ]
    a, b = (pixels(one, iter(each), SMALL) for one, each in zip((resident, from_files), batches, strict=True))
    assert (a - b).abs().max() < 1.1
    assert torch.equal(resident.prepare(batches[0][0])[1], from_files.prepare(batches[1][0])[1])


# ---- how far from the files' own views --------------------------------------------------------------------


def natural(width: int, height: int, exponent: float, seed: int) -> Image.Image:
    """Noise whose amplitude falls with frequency to this power: 1 is typical of photos, 0 is white."""
    generator = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1
    spectrum = np.fft.rfft2(generator.normal(size=(3, height, width))) / frequency**exponent
    values = np.fft.irfft2(spectrum, (height, width))
    values = 127 + 50 * (values - values.mean()) / values.std()
    return Image.fromarray(values.clip(0, 255).astype(np.uint8).transpose(1, 2, 0).copy())


@pytest.mark.parametrize(
    ("shape", "exponent", "limit"),
    [
        ((110, 90), 1.0, 0.8),  # kept as they are
        ((110, 90), 0.0, 1.3),
        ((220, 180), 2.0, 0.7),  # halved: detail is gone that small crops of the file have
        ((220, 180), 1.0, 8.0),
        ((220, 180), 0.0, 13.0),
    ],
    ids=str,
)
def test_distance_from_the_views_of_files(
    shape: tuple[int, int], exponent: float, limit: float, tmp_path: Path
) -> None:
    """Mean difference in grey levels (docs/protocols.md has those of photos); no shift would make it smaller."""
    preparation = Preparation(SMALL.mean, SMALL.std, "resized", size=84, resize=96)  # 224 and 256, smaller
    made = []
    for at in range(12):
        made.append(tmp_path / f"{at}.png")
        natural(*shape, exponent, at).save(made[-1])
    resident, from_files = (make(kind, made, preparation) for kind in (ResidentPhotos, FileImages))
    views = [
        pixels(source, source.train_batches(torch.arange(12).repeat(4), 48, rng()), preparation)
        for source in (resident, from_files)
    ]
    difference = (views[0] - views[1]).abs().mean().item()
    assert difference < limit
    assert (views[0] - views[1]).mean().abs() < 0.3  # no brighter, no darker
    for shift in (-2, 2):
        assert (views[0].roll(shift, 1) - views[1]).abs().mean() > difference
        assert (views[0].roll(shift, 2) - views[1]).abs().mean() > difference


def test_real_photos(tmp_path: Path) -> None:
    if not CALTECH.is_file():
        pytest.skip("the photos of Caltech-101 are not beside this repository")
    with tarfile.open(CALTECH) as tar:
        entries = list(itertools.islice((entry for entry in tar if entry.name.endswith(".jpg")), 12))
        tar.extractall(tmp_path, entries, filter="data")
    preparation = Preparation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "resized", 224, resize=256)
    made = [tmp_path / entry.name for entry in entries]
    resident, from_files = (make(kind, made, preparation) for kind in (ResidentPhotos, FileImages))
    test_views = [
        pixels(source, source.test_batches(torch.arange(12), 5), preparation)
        for source in (resident, from_files)
    ]
    assert torch.equal(*test_views)
    views = [
        pixels(source, source.train_batches(torch.arange(12), 5, rng()), preparation)
        for source in (resident, from_files)
    ]
    assert (views[0] - views[1]).abs().mean() < 2.5
    assert views[0].std() > 30


# ---- packing ----------------------------------------------------------------------------------------------


def test_bytes_are_known_before_anything_is_decoded(paths: list[Path]) -> None:
    source = make(ResidentPhotos, paths)
    assert isinstance(source, ResidentPhotos)
    assert source.photos.pixels.dtype == torch.uint8
    assert source.photos.pixels.numel() - 3 == packed_bytes(paths, SMALL)
    sizes = [read_image(path).size for path in paths[:6]]
    assert sizes == [(41, 27), (27, 43), (20, 33), (31, 20), (12, 9), (16, 16)]
    by_hand = 20 * 30 + 20 * 31 + 20 * 33 + 31 * 20 + (12 * 9 + 256) + (256 + 256)
    assert packed_bytes(paths[:6], SMALL) == 3 * by_hand


def test_photos_are_packed_once_for_all_who_want_them(paths: list[Path]) -> None:
    first, second = make(ResidentPhotos, paths), make(ResidentPhotos, list(paths))
    assert isinstance(first, ResidentPhotos)
    assert isinstance(second, ResidentPhotos)
    assert first.photos is second.photos
    other = make(ResidentPhotos, paths[1:])
    assert isinstance(other, ResidentPhotos)
    assert other.photos is not first.photos
    assert photos.is_packed(paths, SMALL, CPU)
    del first, second
    assert not photos.is_packed(paths, SMALL, CPU)


def test_a_damaged_file_is_named(paths: list[Path]) -> None:
    content = paths[3].read_bytes()
    paths[3].write_bytes(content[: len(content) // 2])  # its header is sound
    assert packed_bytes(paths, SMALL) > 0
    with pytest.raises(UserError, match=paths[3].name):
        make(ResidentPhotos, paths)
    paths[3].write_bytes(b"words")
    files.image_sizes.cache_clear()
    with pytest.raises(UserError, match=paths[3].name):
        packed_bytes(paths, SMALL)


def test_a_file_that_changes_is_named(paths: list[Path]) -> None:
    packed_bytes(paths, SMALL)
    noise(77, 78).save(paths[4])
    with pytest.raises(UserError, match=rf"{paths[4].name} has changed"):
        make(ResidentPhotos, paths)


def test_photos_are_decoded_a_few_ahead_and_no_more() -> None:
    asked: list[int] = []

    def work(at: int) -> int:
        asked.append(at)
        return -at

    results = files.read_ahead(work, 50, ahead=6, workers=3)
    assert next(results) == 0
    assert len(asked) <= 7
    assert list(results) == [-at for at in range(1, 50)]
    assert sorted(asked) == list(range(50))


# ---- capture ----------------------------------------------------------------------------------------------


def test_no_batch_looks_at_values(paths: list[Path]) -> None:
    """Fake tensors have no values: what needs any, or a shape that depends on them, raises."""
    source = make(ResidentPhotos, paths)
    tickets = [
        *source.train_batches(torch.arange(len(paths)), 6, rng(), 0.3),
        *source.test_batches(torch.arange(len(paths)), 6),
    ]
    with FakeTensorMode() as mode:
        for owner in (source, source.photos, source.normalise):  # type: ignore[attr-defined]
            for name, value in list(vars(owner).items()):
                if isinstance(value, Tensor):
                    setattr(owner, name, mode.from_tensor(value))
        for ticket in tickets:
            fake = tuple(mode.from_tensor(part) for part in ticket)
            images, labels = source.prepare(fake)
            assert isinstance(images, FakeTensor)
            assert images.shape == (len(ticket[0]), 3, 16, 16)
            assert labels.shape == (len(ticket[0]),)
            with pytest.raises(DataDependentOutputException):
                images.sum().item()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_captured(paths: list[Path]) -> None:
    """A replayed graph gives the CPU's views; test views are those of the files there too."""
    gpu, labels = torch.device("cuda"), torch.arange(len(paths)) * 10
    split = ImageSplit(paths, labels.numpy())
    resident, from_files = (kind(split, labels, SMALL, gpu) for kind in (ResidentPhotos, FileImages))
    on_cpu = make(ResidentPhotos, paths)
    tickets, expected = (
        list(source.train_batches(torch.arange(15), 5, rng(), 0.3)) for source in (resident, on_cpu)
    )
    inputs = tuple(part.clone() for part in tickets[0])
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        resident.prepare(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        images, found = resident.prepare(inputs)
    for ticket, other in zip(tickets, expected, strict=True):
        for own, given in zip(inputs, ticket, strict=True):
            own.copy_(given)
        graph.replay()
        wanted, wanted_labels = on_cpu.prepare(other)
        assert torch.allclose(images.cpu(), wanted, atol=1e-3)
        assert torch.equal(found.cpu(), wanted_labels)
    for ticket, other in zip(
        resident.test_batches(torch.arange(15), 4), from_files.test_batches(torch.arange(15), 4), strict=True
    ):
        assert torch.equal(resident.prepare(ticket)[0], from_files.prepare(other)[0])


def test_images_in_memory_are_not_for_it() -> None:
    with pytest.raises(TypeError):
        ResidentPhotos(
            ImageSplit(np.zeros((2, 4, 4, 3), np.uint8), np.arange(2)), torch.arange(2), SMALL, CPU
        )
