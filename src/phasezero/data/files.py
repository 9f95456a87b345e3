"""Read image files safely, with threads, and make the training and test views of a photo.

Nothing here draws random numbers. The caller does, so a view depends on its arguments alone.
"""

from __future__ import annotations

import functools
import io
import math
import stat
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFile, ImageOps

from phasezero.errors import UserError

T = TypeVar("T")
Whole = npt.NDArray[np.int64]
Uniforms = npt.NDArray[np.floating]

MAX_PIXELS = 64_000_000
"""The largest image that is decoded: 192 MB as RGB, more than today's cameras produce."""

WORKERS = 8
"""Number of decoding threads. Pillow releases the GIL while it decodes."""

# The allowed decoders, whatever the file is called (ImageNet has a PNG named .JPEG). By default Pillow tries
# all it has, including EPS, which starts Ghostscript.
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF")
_ORIENTATION = 0x0112  # the tag of the EXIF standard

# What Pillow warns of, from 89 million pixels on, is refused here with an error.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


Item = Path | bytes | npt.NDArray[np.uint8]
"""An image: a file, the content of a file, or pixels [H, W] or [H, W, C]."""


class TooManyPixelsError(UserError):
    """An image has more than MAX_PIXELS pixels."""


def read_image(item: Item) -> Image.Image:
    """Return the image as RGB and upright; raise UserError if it is missing, damaged or too large."""
    if isinstance(item, np.ndarray):
        return _to_rgb(Image.fromarray(item[..., 0] if item.ndim == 3 and item.shape[2] == 1 else item))
    with _opened(item) as image:
        image.load()
        return _to_rgb(_upright(image))


def _checked_size(path: Path) -> tuple[int, int]:
    """Return the size in the header of a file that is complete; decode it only if its end does not show this."""
    with _opened(path) as image:
        if not _is_complete(image):
            image.load()  # raises if anything is missing
        return image.size


_END = 64  # bytes
_IEND = bytes.fromhex("0000000049454e44ae426082")


def _is_complete(image: Image.Image) -> bool:
    """Tell whether a file is surely not truncated, by its last bytes or by the length that it states."""
    assert isinstance(image, ImageFile.ImageFile)
    file, form = cast(BinaryIO, image.fp), image.format
    position, length = file.tell(), file.seek(0, io.SEEK_END)
    file.seek(max(length - _END, 0))
    end = file.read()
    file.seek(0)
    head = file.read(8)
    file.seek(position)  # from which a decoder continues
    if form in ("JPEG", "MPO"):
        return end.rstrip(b"\0").endswith(b"\xff\xd9")  # some cameras pad the file
    if form == "PNG":
        return end.endswith(_IEND)
    if form in ("BMP", "WEBP"):
        stated = int.from_bytes(head[2:6], "little") if form == "BMP" else int.from_bytes(head[4:8], "little") + 8
        return 8 < stated <= length
    return False  # TIFF: parts in any order


def unreadable_images(paths: Sequence[Path], watch: Callable[[int], None] | None = None) -> list[UserError]:
    """Return an error for each file that is damaged or incomplete; `watch` is told how many were checked."""

    def check(at: int) -> UserError | None:
        try:
            _checked_size(paths[at])
        except UserError as error:
            return error
        return None

    errors = []
    for done, error in enumerate(read_ahead(check, len(paths), ahead=1000), 1):
        if error is not None:
            errors.append(error)
        if watch is not None:
            watch(done)
    return errors


@functools.lru_cache(maxsize=4)  # called for both splits when a data set is checked, and again when it is packed
def image_sizes(paths: tuple[Path, ...]) -> npt.NDArray[np.int64]:
    """Return [n, 2]: width and height from the headers of complete files, before photos are turned upright."""
    sizes = read_ahead(lambda at: _checked_size(paths[at]), len(paths), ahead=1000)
    return np.array(list(sizes), np.int64).reshape(-1, 2)


def read_ahead(work: Callable[[int], T], count: int, ahead: int) -> Iterator[T]:
    """Yield work(0), work(1), ... in order, computed by threads, at most `ahead` of them in advance."""
    pool = ThreadPoolExecutor(WORKERS)
    waiting: deque[Future[T]] = deque()
    try:
        for at in range(count):
            if len(waiting) == ahead:
                yield waiting.popleft().result()
            waiting.append(pool.submit(work, at))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _opened(item: Path | bytes) -> Iterator[Image.Image]:
    """Yield the image with only its header read; turn every failure into a UserError."""
    file, path = (item, item) if isinstance(item, Path) else (io.BytesIO(item), "in memory")
    try:
        if isinstance(item, Path) and not stat.S_ISREG(item.stat().st_mode):
            raise OSError("it is a folder, pipe or device")
        with Image.open(file, formats=_FORMATS) as image:
            if math.prod(image.size) > MAX_PIXELS:
                raise Image.DecompressionBombError
            yield image
    except FileNotFoundError:
        raise UserError(f"image file {path} is missing") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise TooManyPixelsError(
            f"image file {path} is too large: at most {MAX_PIXELS:,} pixels are read; shrink it"
        ) from None
    except Exception as error:  # OSError, SyntaxError, struct.error, ...: Pillow on damaged files
        raise UserError(f"image file {path} cannot be read: {error}; replace or remove it") from error


def _upright(image: Image.Image) -> Image.Image:
    try:
        turned = image.getexif().get(_ORIENTATION, 1) != 1
    except Exception:  # damaged metadata, intact pixels: some photos of ImageNet are like that
        return image
    return ImageOps.exif_transpose(image) if turned else image


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_to_8_bits(image)).convert("RGB")
    if image.has_transparency_data:
        # Colours under transparent pixels were never meant to be seen: show white instead.
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return image.convert("RGB")


def _to_8_bits(image: Image.Image) -> npt.NDArray[np.uint8]:
    """Scale grey of more than 8 bits, which Pillow's own conversion would cut off at 255."""
    values = np.asarray(image).astype(np.float64)
    # Pillow calls a 16-bit PNG "I;16" or, before version 11, "I". 32 bits (TIFF) have no agreed range.
    if image.mode.startswith("I;16") or image.format == "PNG":
        low, high = 0.0, 65535.0
    else:
        values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
    scaled = (values - low) * (255.0 / max(high - low, 1e-12))
    return np.rint(np.clip(scaled, 0.0, 255.0)).astype(np.uint8)


def resized_shape(width: int, height: int, resize: int) -> tuple[int, int]:
    """Return width and height with the shorter at `resize`; the longer is truncated, as torchvision's Resize does."""
    short = min(width, height)
    return int(resize * width / short), int(resize * height / short)


def centre_corner(width: int, height: int, size: int) -> tuple[int, int]:
    """Return left and top of the centre, rounded half to even, as torchvision's CenterCrop does."""
    return round((width - size) / 2), round((height - size) / 2)


def centre_view(image: Image.Image, resize: int, size: int) -> npt.NDArray[np.uint8]:
    """Resize the shorter side to `resize` (bilinear) and return the centre [size, size, 3], as torchvision does."""
    if not 0 < size <= resize:
        raise ValueError(f"a centre crop of {size} does not fit into a shorter side of {resize}")
    width, height = image.size
    new_width, new_height = resized_shape(width, height, resize)
    left, top = centre_corner(new_width, new_height, size)
    if new_width * new_height <= MAX_PIXELS:
        whole = image.resize((new_width, new_height), Image.Resampling.BILINEAR)
        view = whole.crop((left, top, left + size, top + size))
    else:
        # A thin strip (1 x 10,000) would become huge, so compute only the pixels of the crop. This is not done for
        # every image, because Pillow keeps `box` in float32, which changes 3% of a photo's values by 1.
        x, y = width / new_width, height / new_height
        box = (left * x, top * y, (left + size) * x, (top + size) * y)
        view = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.array(view, dtype=np.uint8)


# Of a random crop, as a share of the image's area and as width over height: Inception's and torchvision's numbers.
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
TRIES = 10
CROP_DRAWS = 2 * TRIES + 2
"""Uniforms of a random crop: the areas of all tries, their aspects, x and y."""


def random_crop_box(width: npt.ArrayLike, height: npt.ArrayLike, u: Uniforms) -> tuple[Whole, Whole, Whole, Whole]:
    """Return (left, top, right, bottom) of random resized crops, from uniforms [..., CROP_DRAWS or more].

    As in torchvision's RandomResizedCrop, areas are uniform and aspects log-uniform, and the first of ten tries that
    fits into the image is used. If none fits, it is the largest crop in the centre whose aspect is allowed.
    """
    width, height = np.asarray(width), np.asarray(height)
    u = np.asarray(u, np.float64)
    area = (width * height)[..., None] * (AREA[0] + u[..., :TRIES] * (AREA[1] - AREA[0]))
    low, high = map(math.log, ASPECT)
    aspect = np.exp(low + u[..., TRIES : 2 * TRIES] * (high - low))
    widths, heights = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (widths > 0) & (widths <= width[..., None]) & (heights > 0) & (heights <= height[..., None])
    first, found = fits.argmax(-1)[..., None], fits.any(-1)
    central = np.minimum(width, np.rint(height * ASPECT[1])), np.minimum(height, np.rint(width / ASPECT[0]))
    w, h = (
        np.where(found, np.take_along_axis(tries, first, -1)[..., 0], side).astype(np.int64)
        for tries, side in zip((widths, heights), central, strict=True)
    )
    x, y = u[..., 2 * TRIES], u[..., 2 * TRIES + 1]
    left = np.where(found, np.minimum((x * (width - w + 1)).astype(np.int64), width - w), (width - w) // 2)
    top = np.where(found, np.minimum((y * (height - h + 1)).astype(np.int64), height - h), (height - h) // 2)
    return left, top, left + w, top + h


def random_resized_view(image: Image.Image, size: int, u: Uniforms) -> npt.NDArray[np.uint8]:
    """Crop a random area and aspect, by the uniforms of `random_crop_box`, and resize it to [size, size, 3]."""
    left, top, right, bottom = map(int, random_crop_box(image.width, image.height, u))
    crop = image.crop((left, top, right, bottom))
    return np.array(crop.resize((size, size), Image.Resampling.BILINEAR), dtype=np.uint8)
