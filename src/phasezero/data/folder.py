"""A folder of images, one subfolder for each class: `folder:PATH`.

Either PATH/train/<class>/ with PATH/test/<class>/ (or val/), or PATH/<class>/ alone, of which a fifth of
each class is then held out for testing. Where both test/ and val/ have class folders, test/ is used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from phasezero.data.catalog import DATA_SETS, DataSet
from phasezero.data.files import EXTENSIONS, image_sizes, is_image_file
from phasezero.data.images import ImageData, ImageSplit, Preparation
from phasezero.errors import UserError

# As every code base that CwD builds on does with ImageNet; the crops are those of files.py.
PHOTO_PREPARATION = Preparation(
    mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), crop="resized", size=224, resize=256, flip=True
)
_HELD_OUT = 5  # one image of five is for testing


def class_folders(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for name in names:
        if not name.isprintable():  # bytes that are no UTF-8, too: it must go into records and pages
            raise UserError(f"{folder}: the folder {name!r} has a name that cannot be written; rename it")
    return names


def image_files(folder: Path, extensions: frozenset[str] = EXTENSIONS) -> list[Path]:
    """The images directly in a folder, sorted by name; what is hidden or no image is passed over. A link to nothing
    is not: it may be an image that was never fetched."""
    with os.scandir(folder) as entries:
        named = [entry for entry in entries if is_image_file(entry.name, extensions)]
    lost = sorted(entry.name for entry in named if not os.path.exists(entry.path))
    if lost:
        raise UserError(
            f"{folder}: links to nothing: {first_few(lost)}; fetch what they name, or remove them"
        )
    return [folder / name for name in sorted(entry.name for entry in named if entry.is_file())]


def split_of(files: Sequence[Sequence[Path]]) -> ImageSplit:
    """Files by class -> one side of a data set."""
    labels = np.repeat(np.arange(len(files), dtype=np.int64), [len(paths) for paths in files])
    return ImageSplit([path for paths in files for path in paths], labels)


def first_few(names: Iterable[str]) -> str:
    """`3 (a, b, c)` or `12 (a, b, c, d, e, ...)`: for errors about many things at once."""
    every = list(names)
    return f"{len(every)} ({', '.join(every[:5])}{', ...' if len(every) > 5 else ''})"


def _held_out(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """(train, test). Sorted by a hash of the names: the same on every machine and wherever the folder lies,
    and not every fifth frame of a film whose pictures are numbered."""
    ranked = sorted(files, key=lambda path: hashlib.sha256(os.fsencode(path.name)).digest())
    test = set(ranked[::_HELD_OUT])
    return [path for path in files if path not in test], sorted(test)


def _files(folder: Path, classes: Sequence[str], at_least: int) -> list[list[Path]]:
    files = [image_files(folder / name) for name in classes]
    few = [name for name, paths in zip(classes, files, strict=True) if len(paths) < at_least]
    if few:
        need = "no image files" if at_least == 1 else f"fewer than {at_least} image files"
        raise UserError(
            f"class folders with {need} in {folder}: {first_few(few)}; add images "
            f"({', '.join(sorted(EXTENSIONS))}) or remove the folders"
        )
    return files


def load_folder(root: Path, argument: str) -> ImageData:
    """The root is not used: PATH is taken as it is written."""
    if not argument:
        raise UserError("data set 'folder' needs the path of a folder: folder:PATH")
    path = Path(argument).expanduser()
    if not path.is_dir():
        raise UserError(f"there is no folder at {path.absolute()} (from 'folder:{argument}')")
    tests = [name for name in ("test", "val") if class_folders(path / name)]
    classes = class_folders(path / "train")
    if classes and tests:
        train, test = _given_split(path, classes, path / tests[0])
    elif classes:
        raise UserError(
            f"{path} has train/ with class folders, but neither test/ nor val/ with any; add one, or name "
            f"{path / 'train'} itself: a fifth of the images of each class is then held out for testing"
        )
    else:
        classes = class_folders(path)
        if not classes:
            raise UserError(f"{path} has no class folders: put the images of each class into {path}/<class>/")
        pairs = [_held_out(files) for files in _files(path, classes, at_least=2)]
        train, test = split_of([pair[0] for pair in pairs]), split_of([pair[1] for pair in pairs])
    for side in (train, test):  # a file that is no image is said now, not phases later
        image_sizes(tuple(map(Path, side.images)))
    names = tuple(classes)
    return ImageData("folder", names, names, train, test, PHOTO_PREPARATION)


def _given_split(path: Path, classes: list[str], test_folder: Path) -> tuple[ImageSplit, ImageSplit]:
    test_classes = class_folders(test_folder)
    for here, there, these, those in (
        (path / "train", test_folder, classes, test_classes),
        (test_folder, path / "train", test_classes, classes),
    ):
        alone = sorted(set(these) - set(those))
        if alone:
            raise UserError(f"classes in {here} that are missing in {there}: {first_few(alone)}")
    return (
        split_of(_files(path / "train", classes, at_least=1)),
        split_of(_files(test_folder, classes, at_least=1)),
    )


DATA_SETS.register("folder")(
    DataSet(
        load=load_folder,
        summary="your own images, folder:PATH: PATH/<class>/, or PATH/train/<class>/ and PATH/test/<class>/",
        class_order="natural",
    )
)
