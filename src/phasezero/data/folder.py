"""A folder of images with a subfolder for each class: `folder:PATH`.

Either PATH/train/<class>/ with PATH/test/<class>/ (or val/), or PATH/<class>/ alone, of which a fifth of
each class is then held out for testing. Where both test/ and val/ have class folders, test/ is used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from phasezero.data.catalog import Recipe, register_data
from phasezero.data.files import image_sizes
from phasezero.data.images import ImageData, ImageSplit, Preparation, View
from phasezero.errors import UserError
from phasezero.schedule import Schedule, Training
from phasezero.validation import user_path

# As every code base that CwD builds on does with ImageNet; the crops are those of files.py.
PHOTO_PREPARATION = Preparation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 224, View("resized"), resize=256)
PHOTO_RECIPE = Recipe("resnet18", Training(*2 * (Schedule(epochs=90, milestones=(30, 60), weight_decay=1e-4),)))
PHOTO_GPU_MEMORY = 12 << 30
"""GPU memory of a run on photos in bytes: a generous guess."""
EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"})


@register_data(
    "folder",
    "your images: folder:PATH with a folder for each class",
    recipe=replace(PHOTO_RECIPE, base=None),
    # CwD lost 1.8 points on photographs that nobody had tuned it for (docs/how-to/cwd.md).
    compare=("lucir", "ridge"),
    family="imagenet100",
    gpu_memory=PHOTO_GPU_MEMORY,
    takes_argument=True,
    presets=False,
)
def load_folder(root: Path, argument: str) -> ImageData:
    """Load the images under the argument; the root is not used."""
    if not argument:
        raise UserError("data set 'folder' needs the path of a folder: folder:PATH")
    path = user_path(argument)
    if not path.is_dir():
        raise UserError(f"no folder at {path.absolute()} (from 'folder:{argument}')")
    tests = [name for name in ("test", "val") if class_folders(path / name)]
    classes = class_folders(path / "train")
    if classes and tests:
        classes = sorted({*classes, *class_folders(path / tests[0])})
        train, test = (class_files(path / side, classes) for side in ("train", tests[0]))
    elif classes:
        raise UserError(
            f"{path} has train/ with class folders, but neither test/ nor val/ with any; add one, or name "
            f"{path / 'train'} itself: a fifth of the images of each class is then held out for testing"
        )
    else:
        classes = class_folders(path)
        if not classes:
            raise UserError(f"{path} has no class folders: put the images of each class into {path}/<class>/")
        pairs = [_held_out(files) for files in class_files(path, classes, at_least=2)]
        train, test = ([pair[side] for pair in pairs] for side in (0, 1))
    names, sides = tuple(classes), (split_of(train), split_of(test))
    check_files(*sides)
    return ImageData("folder", names, names, *sides, PHOTO_PREPARATION)


def check_files(*sides: ImageSplit) -> None:
    """Raise UserError for a file that is damaged or incomplete, now and not phases later."""
    for side in sides:
        image_sizes(tuple(side.paths))


def class_folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not name.isprintable():  # nor bytes that are not UTF-8: names go into records and pages
            raise UserError(f"{folder}: the folder {name!r} has a name that cannot be written; rename it")
    return names


def class_files(folder: Path, classes: Sequence[str], at_least: int = 1) -> list[list[Path]]:
    """Return the image files of each class; raise UserError for classes without a folder or with too few images."""
    missing = [name for name in classes if not (folder / name).is_dir()]
    if missing:
        raise UserError(f"class folders missing in {folder}: {first_few(missing)} of {len(classes)}")
    files = [image_files(folder / name) for name in classes]
    few = [name for name, paths in zip(classes, files, strict=True) if len(paths) < at_least]
    if few:
        need = "no image files" if at_least == 1 else f"fewer than {at_least} image files"
        raise UserError(
            f"class folders with {need} in {folder}: {first_few(few)}; add images "
            f"({', '.join(sorted(EXTENSIONS))}) or remove the folders"
        )
    return files


def image_files(folder: Path) -> list[Path]:
    """Return the images directly in a folder, sorted by name, without hidden files (macOS leaves `._photo.jpg`)."""
    with os.scandir(folder) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".")]
    named = [entry for entry in seen if Path(entry.name).suffix.lower() in EXTENSIONS]
    lost = sorted(entry.name for entry in named if not os.path.exists(entry.path))
    if lost:  # images that were never fetched
        raise UserError(f"{folder}: broken symlinks: {first_few(lost)}; fetch what they name, or remove them")
    return [folder / name for name in sorted(entry.name for entry in named if entry.is_file())]


def split_of(files: Sequence[Sequence[Path]]) -> ImageSplit:
    """Return the training or test images, given the files of each class."""
    labels = np.repeat(np.arange(len(files), dtype=np.int64), [len(paths) for paths in files])
    return ImageSplit([path for paths in files for path in paths], labels)


def first_few(names: Iterable[str]) -> str:
    """Return `3 (a, b, c)` or `12 (a, b, c, d, e, ...)`, for errors about many things at once."""
    every = list(names)
    return f"{len(every)} ({', '.join(every[:5])}{', ...' if len(every) > 5 else ''})"


def _held_out(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return (train, test), chosen by a hash of the names: the same on every machine, whatever the order."""
    ranked = sorted(files, key=lambda path: hashlib.sha256(os.fsencode(path.name)).digest())
    test = set(ranked[::5])
    return [path for path in files if path not in test], sorted(test)
