"""Reading image files: every kind of image becomes correct RGB, and a harmful file gives a message."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from phasezero.data import files
from phasezero.data.files import random_crop_box, random_resized_view, read_image
from phasezero.errors import UserError
from slow import resized_crop


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8))


def slow_test_view(image: Image.Image, resize: int, size: int) -> np.ndarray:
    """torchvision's Resize and CenterCrop, one after the other, as its documentation and code define them."""
    width, height = image.size
    if width <= height:
        image = image.resize((resize, int(resize * height / width)), Image.Resampling.BILINEAR)
    else:
        image = image.resize((int(resize * width / height), resize), Image.Resampling.BILINEAR)
    top, left = round((image.height - size) / 2.0), round((image.width - size) / 2.0)
    return np.array(image)[top : top + size, left : left + size]


# ---- reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["png", "bmp", "webp", "tiff"])
def test_lossless_formats_come_back_exactly(tmp_path: Path, ending: str) -> None:
    image = noise(7, 5)
    path = tmp_path / f"a.{ending}"
    image.save(path, **({"lossless": True} if ending == "webp" else {}))
    assert np.array_equal(np.array(read_image(path)), np.array(image))


def palette() -> Image.Image:
    image = Image.new("P", (2, 2), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    return image


def grey(kind: type, *values: float) -> Image.Image:
    return Image.fromarray(np.resize(np.array(values, kind), (2, 2)))


@pytest.mark.parametrize(
    ("ending", "image", "options", "expected"),
    [
        ("png", Image.new("L", (2, 2), 77), {}, (77, 77, 77)),
        ("png", Image.new("1", (2, 2), 1), {}, (255, 255, 255)),
        ("png", Image.new("RGBA", (2, 2), (200, 10, 0, 255)), {}, (200, 10, 0)),
        ("png", Image.new("RGBA", (2, 2), (200, 10, 0, 0)), {}, (255, 255, 255)),  # transparent is white
        ("png", Image.new("LA", (2, 2), (80, 255)), {}, (80, 80, 80)),
        ("png", palette(), {}, (10, 20, 30)),
        ("png", palette(), {"transparency": 1}, (255, 255, 255)),
        ("png", grey(np.uint16, 0x8000), {}, (128, 128, 128)),
        ("tiff", grey(np.uint16, 0x8000), {}, (128, 128, 128)),
        ("png", grey(np.uint16, 0xC000), {}, (191, 191, 191)),
        ("tiff", grey(np.float32, -1.0, 3.0, 1.0, 1.0), {}, (0, 0, 0)),
        ("tiff", grey(np.float32, 2.0, np.nan, np.inf, -np.inf), {}, (255, 255, 255)),  # NaN becomes 0
        ("tiff", Image.new("CMYK", (2, 2), (0, 255, 255, 0)), {}, (255, 0, 0)),
        ("jpg", Image.new("CMYK", (8, 8), (0, 0, 0, 255)), {}, (0, 0, 0)),
    ],
)
def test_kinds_of_pixels(
    tmp_path: Path, ending: str, image: Image.Image, options: dict[str, int], expected: tuple[int, ...]
) -> None:
    image.save(tmp_path / f"a.{ending}", **options)
    read = read_image(tmp_path / f"a.{ending}")
    assert read.mode == "RGB"
    assert read.getpixel((0, 0)) == expected


def test_the_right_way_up(tmp_path: Path) -> None:
    image = Image.new("RGB", (40, 20), "black")
    image.paste("white", (0, 0, 20, 20))  # the left half
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise: left comes to the top
    image.save(tmp_path / "a.jpg", exif=exif)
    read = read_image(tmp_path / "a.jpg")
    assert read.size == (20, 40)
    assert np.array(read)[:15].min() > 240
    assert np.array(read)[25:].max() < 15


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_metadata_and_a_wrong_ending_do_not_matter(tmp_path: Path) -> None:
    noise(8, 8).save(tmp_path / "a.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff broken")
    noise(8, 8).save(tmp_path / "b.JPEG", "PNG")
    assert read_image(tmp_path / "a.jpg").size == read_image(tmp_path / "b.JPEG").size == (8, 8)


def refused(path: Path) -> str:
    with pytest.raises(UserError) as error:
        read_image(path)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "bmp", "tiff"])
def test_truncated_files_are_refused(tmp_path: Path, share: float, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    noise(64, 64).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert "cannot be read" in refused(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    assert "missing" in refused(tmp_path / "nowhere.jpg")
    (tmp_path / "a.jpg").write_text("words")
    refused(tmp_path / "a.jpg")
    # Formats with a wider reach than pictures (EPS starts a program) stay closed, whatever their name; so do
    # harmless ones, which need no program to be read.
    for other in ("EPS", "PPM", "GIF"):
        noise(4, 4).save(tmp_path / "b.jpg", other)
        assert "cannot identify" in refused(tmp_path / "b.jpg")


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def bomb(path: Path, side: int) -> Path:
    """Write a PNG whose header claims a size."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1_000_000))
    content = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", body) + png_chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    return path


@pytest.mark.parametrize("side", [8_001, 12_000, 30_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_decompression_bombs_are_refused(tmp_path: Path, side: int) -> None:
    assert "at most 64,000,000" in refused(bomb(tmp_path / "a.png", side))


def test_a_photo_of_100_megapixels_is_refused_without_a_warning_of_pillow(tmp_path: Path) -> None:
    code = "import pathlib\nfrom phasezero.data import files\nprint(files.unreadable_images([pathlib.Path('a.png')]))"
    bomb(tmp_path / "a.png", 10_000)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "at most 64,000,000" in done.stdout
    assert done.stderr == ""


def test_results_come_in_order_and_no_more_is_read_ahead_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def work(at: int) -> int:
        begun.append(at)
        return -at

    monkeypatch.setattr(files, "WORKERS", 3)
    ahead = files.read_ahead(work, 20, ahead=3)
    assert [next(ahead), next(ahead)] == [0, -1]
    time.sleep(0.05)  # for what should not begin
    assert sorted(begun) == [0, 1, 2, 3]
    assert list(ahead) == [-at for at in range(2, 20)]
    assert sorted(begun) == list(range(20))


# ---- views ------------------------------------------------------------------------------------------------

sides = st.integers(1, 400)
uniforms = st.lists(st.floats(0, 1, exclude_max=True), min_size=22, max_size=22).map(np.array)


@given(sides, sides, st.integers(1, 48), st.integers(0, 16))
def test_the_test_view_is_torchvisions(width: int, height: int, size: int, more: int) -> None:
    image = noise(width, height)
    view = files.centre_view(image, size + more, size)
    assert view.dtype == np.uint8
    assert np.array_equal(view, slow_test_view(image, size + more, size))


def test_a_thin_strip_does_not_grow_beyond_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    image = noise(3, 700)
    exact = slow_test_view(image, 64, 56)
    monkeypatch.setattr(files, "MAX_PIXELS", 100_000)
    view = files.centre_view(image, 64, 56)
    assert np.abs(view.astype(int) - exact).max() <= 1
    monkeypatch.undo()

    def resize(image: Image.Image, size: tuple[int, int], *how: object, **where: object) -> Image.Image:
        assert size[0] * size[1] <= files.MAX_PIXELS
        return Image.new("RGB", size)

    monkeypatch.setattr(Image.Image, "resize", resize)
    assert files.centre_view(Image.new("RGB", (1, 60_000)), 256, 224).shape == (224, 224, 3)
    with pytest.raises(ValueError, match="does not fit"):
        files.centre_view(noise(9, 9), resize=224, size=256)


@given(st.integers(1, 5000), st.integers(1, 5000), uniforms)
def test_random_crops_follow_torchvisions_rule(width: int, height: int, u: np.ndarray) -> None:
    box = random_crop_box(width, height, u)
    assert tuple(map(int, box)) == resized_crop(width, height, u.tolist())
    left, top, right, bottom = box
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@pytest.mark.parametrize(("width", "height", "mean_area"), [(500, 375, 0.435), (500, 100, 0.174)])
def test_random_crops_of_many_images(width: int, height: int, mean_area: float) -> None:
    """Draws of our own and the rule with independent draws have the same distribution of areas."""
    u = np.random.default_rng(0).random((20_000, 22))
    own = random.Random(1)
    boxes = [
        np.stack(random_crop_box(np.full(len(u), width), np.full(len(u), height), u), 1),
        np.array([resized_crop(width, height, [own.random() for _ in range(22)]) for _ in range(20_000)]),
    ]
    ours, theirs = ((box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) / (width * height) for box in boxes)
    assert ours.mean() == pytest.approx(mean_area, abs=0.005)
    assert theirs.mean() == pytest.approx(mean_area, abs=0.005)
    deciles = np.linspace(0.1, 0.9, 9)
    assert np.abs(np.quantile(ours, deciles) - np.quantile(theirs, deciles)).max() < 0.015


@given(sides, sides, st.integers(1, 40), uniforms)
def test_random_views_are_crops_resized(width: int, height: int, size: int, u: np.ndarray) -> None:
    image = noise(width, height)
    view = random_resized_view(image, size, u)
    assert view.dtype == np.uint8
    left, top, right, bottom = (int(side) for side in random_crop_box(width, height, u))
    crop = Image.fromarray(np.array(image)[top:bottom, left:right])
    assert np.array_equal(view, np.array(crop.resize((size, size), Image.Resampling.BILINEAR)))
