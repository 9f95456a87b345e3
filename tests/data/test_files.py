"""Reading image files: every kind of picture becomes sensible RGB, and harmful ones a message."""

from __future__ import annotations

import io
import struct
import tarfile
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from phasezero.data import files
from phasezero.data.files import is_image_file, random_crop_box, random_resized_view, read_image
from phasezero.errors import UserError

PHOTOS = Path(__file__).parents[2].parent / "shared" / "data" / "caltech101" / "caltech101-30.tar"


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def slow_test_view(image: Image.Image, resize: int, size: int) -> np.ndarray:
    """torchvision's Resize and CenterCrop, one after the other, as its documentation and code define them."""
    width, height = image.size
    if width <= height:
        image = image.resize((resize, int(resize * height / width)), Image.Resampling.BILINEAR)
    else:
        image = image.resize((int(resize * width / height), resize), Image.Resampling.BILINEAR)
    top, left = round((image.height - size) / 2.0), round((image.width - size) / 2.0)
    return np.array(image)[top : top + size, left : left + size]


@pytest.mark.parametrize("name", ["a.jpg", "a.JPEG", "a.b.Png", "a.bmp", "a.webp", "a.TIF", "a.tiff"])
def test_names_of_images(name: str) -> None:
    assert is_image_file(name)
    assert not is_image_file("." + name)
    assert not is_image_file(name + ".txt")


@pytest.mark.parametrize("ending", ["png", "bmp", "webp", "tiff"])
def test_lossless_formats_come_back_exactly(tmp_path: Path, ending: str) -> None:
    image = noise(7, 5)
    path = tmp_path / f"a.{ending}"
    image.save(path, **({"lossless": True} if ending == "webp" else {}))
    assert np.array_equal(np.array(read_image(path)), np.array(image))


def pixel(path: Path, image: Image.Image, **options: object) -> tuple[int, ...]:
    image.save(path, **options)  # type: ignore[arg-type]
    read = read_image(path)
    assert read.mode == "RGB"
    value = read.getpixel((0, 0))
    assert isinstance(value, tuple)
    return tuple(int(v) for v in value)


def test_kinds_of_pixels(tmp_path: Path) -> None:
    png, tiff, jpg = tmp_path / "a.png", tmp_path / "a.tiff", tmp_path / "a.jpg"
    assert pixel(png, Image.new("L", (2, 2), 77)) == (77, 77, 77)
    assert pixel(png, Image.new("1", (2, 2), 1)) == (255, 255, 255)
    assert pixel(png, Image.new("RGBA", (2, 2), (200, 10, 0, 255))) == (200, 10, 0)
    assert pixel(png, Image.new("RGBA", (2, 2), (200, 10, 0, 0))) == (255, 255, 255), "transparent is white"
    assert pixel(png, Image.new("LA", (2, 2), (80, 255))) == (80, 80, 80)
    palette = Image.new("P", (2, 2), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    assert pixel(png, palette) == (10, 20, 30)
    assert pixel(png, palette, transparency=1) == (255, 255, 255)
    grey16 = Image.fromarray(np.full((2, 2), 0x8000, np.uint16))
    assert pixel(png, grey16) == (128, 128, 128)
    assert pixel(tiff, grey16) == (128, 128, 128)
    assert pixel(png, Image.fromarray(np.full((2, 2), 0xC000, np.uint16))) == (191, 191, 191)
    assert pixel(tiff, Image.fromarray(np.array([[-1.0, 3.0], [1.0, 1.0]], np.float32))) == (0, 0, 0)
    unknown = Image.fromarray(np.array([[2.0, np.nan], [np.inf, -np.inf]], np.float32))
    assert pixel(tiff, unknown) == (255, 255, 255), "what is no number is nothing"
    assert max(pixel(jpg, Image.new("CMYK", (8, 8), (0, 0, 0, 255)))) < 10
    assert pixel(tiff, Image.new("CMYK", (2, 2), (0, 255, 255, 0))) == (255, 0, 0)


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
def test_damaged_metadata_does_not_matter(tmp_path: Path) -> None:
    noise(8, 8).save(tmp_path / "a.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff broken")
    assert read_image(tmp_path / "a.jpg").size == (8, 8)


def test_a_png_by_the_name_of_a_jpeg(tmp_path: Path) -> None:
    noise(3, 3).save(tmp_path / "a.JPEG", "PNG")
    assert read_image(tmp_path / "a.JPEG").size == (3, 3)


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


def test_no_more_is_read_ahead_than_was_said() -> None:
    begun: list[int] = []

    def work(at: int) -> int:
        begun.append(at)
        return at

    ahead = files.read_ahead(work, 20, ahead=3, workers=1)
    assert [next(ahead), next(ahead)] == [0, 1]
    time.sleep(0.1)  # for what should not begin
    assert begun == [0, 1, 2, 3]
    assert list(ahead) == list(range(2, 20))


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@pytest.mark.parametrize("side", [8_001, 12_000, 30_000])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_decompression_bombs_are_refused(tmp_path: Path, side: int) -> None:
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(1_000_000))
    content = png_chunk(b"IHDR", header) + png_chunk(b"IDAT", body) + png_chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    assert "at most 64,000,000" in refused(tmp_path / "a.png")


sides = st.integers(1, 400)


@given(sides, sides, st.integers(1, 48), st.integers(0, 16))
def test_the_test_view_is_torchvisions(width: int, height: int, size: int, more: int) -> None:
    image = noise(width, height)
    view = files.centre_view(image, size + more, size)
    assert view.shape == (size, size, 3)
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


def test_a_crop_larger_than_the_image_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        files.centre_view(noise(9, 9), 224, 256)


uniforms = st.lists(st.floats(0, 1, exclude_max=True), min_size=5, max_size=5).map(np.array)


@given(st.integers(1, 5000), st.integers(1, 5000), uniforms)
def test_crops_are_inside_the_image(width: int, height: int, u: np.ndarray) -> None:
    left, top, right, bottom = random_crop_box(width, height, u)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@given(st.integers(100, 5000), st.integers(100, 5000), uniforms)
def test_crops_have_the_drawn_area_and_aspect(width: int, height: int, u: np.ndarray) -> None:
    left, top, right, bottom = random_crop_box(width, height, u)
    w, h = right - left, bottom - top
    aspect = (3 / 4) * (16 / 9) ** u[1]
    area = (0.08 + 0.92 * u[0]) * width * height
    assert (w - 0.51) / (h + 0.51) <= aspect <= (w + 0.51) / (h - 0.51)
    assert (w - 0.51) * (h - 0.51) <= area
    if w < width and h < height:  # it fitted: nothing was taken away
        assert area <= (w + 0.51) * (h + 0.51)


def test_the_distribution_of_crops() -> None:
    """Of a square, nearly all draws fit: areas are uniform, positions reach both ends."""
    rng = np.random.default_rng(0)
    boxes = np.array([random_crop_box(100, 100, rng.random(5)) for _ in range(4000)])
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert abs(np.median(w * h) / 1e4 - 0.54) < 0.03
    assert abs(np.log(w / h).mean()) < 0.01
    assert boxes[:, :2].min() == 0
    assert boxes[:, 2:].max() == 100
    small = w < 60
    assert abs((boxes[small, 0] / (100 - w[small])).mean() - 0.5) < 0.03


@given(sides, sides, st.integers(1, 40), uniforms)
def test_random_views_have_their_size(width: int, height: int, size: int, u: np.ndarray) -> None:
    image = noise(width, height)
    view = random_resized_view(image, size, u)
    assert view.shape == (size, size, 3)
    assert view.dtype == np.uint8
    assert np.array_equal(view, random_resized_view(image, size, u)), "the numbers given decide everything"


def test_the_whole_image_is_a_view_of_itself() -> None:
    image = noise(32, 32)
    whole = random_resized_view(image, 32, np.array([0.0, 0.5, 0.3, 0.9, 0.0]), scale=(1.0, 1.0))
    assert np.array_equal(whole, np.array(image))


def test_real_photos(tmp_path: Path) -> None:
    if not PHOTOS.is_file():
        pytest.skip("the photos of Caltech-101 are not beside this repository")
    with tarfile.open(PHOTOS) as tar:
        for _ in range(5):
            entry = tar.next()
            while entry is not None and not entry.name.endswith(".jpg"):
                entry = tar.next()
            assert entry is not None
            content = tar.extractfile(entry)
            assert content is not None
            raw = content.read()
            path = tmp_path / "photo.jpg"
            path.write_bytes(raw)
            image = read_image(path)
            assert np.array_equal(np.array(image), np.array(Image.open(io.BytesIO(raw)).convert("RGB")))
            assert np.array_equal(files.centre_view(image, 256, 224), slow_test_view(image, 256, 224))
            view = random_resized_view(image, 224, np.full(5, 0.4))
            assert view.std() > 10
