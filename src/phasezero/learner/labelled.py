"""The forms in which a learner takes images: folders, pairs, arrays, lists and torch data sets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from phasezero.data.files import Item
from phasezero.data.folder import class_files, class_folders, image_files
from phasezero.errors import UserError
from phasezero.validation import check_printable

Name = str | int
"""A class, as the user calls it."""


@dataclass(frozen=True)
class Labelled:
    """Images and their classes."""

    items: list[Item]
    names: list[Name]

    def by_class(self) -> dict[Name, list[Item]]:
        """Return the images of each class; classes are sorted."""
        found: dict[Name, list[Item]] = {}
        for item, name in zip(self.items, self.names, strict=True):
            found.setdefault(name, []).append(item)
        return {name: found[name] for name in sorted(found, key=lambda name: (isinstance(name, str), name))}


def labelled(data: Any, labels: Any = None) -> Labelled:
    """Return the images and classes of any supported form; `labels` are given apart from arrays and lists."""
    if labels is not None:
        names = [_name(label) for label in np.asarray(labels, dtype=object).reshape(-1)]
        items = images(data)
        if len(items) != len(names):
            raise UserError(f"{len(items)} images but {len(names)} labels: give a label for each image")
        return _checked(items, names)
    if isinstance(data, str | os.PathLike):
        return _folder(Path(data))
    if isinstance(data, torch.utils.data.Dataset):
        return _checked(*_columns(_dataset(data)))
    if isinstance(data, Sequence) and not isinstance(data, np.ndarray) and all(map(_is_pair, data)):
        return _checked(*_columns((image(item), _name(label)) for item, label in data))
    raise UserError(
        f"labelled images are expected: a folder of class folders, (image, label) pairs, a torch Dataset, or images "
        f"with labels; got {type(data).__name__}"
    )


def images(data: Any) -> list[Item]:
    """Return images without labels: a file, a folder, an array, or a list of files, arrays or Pillow images."""
    if isinstance(data, str | os.PathLike):
        path = Path(data)
        if path.is_dir():
            found = [
                file for folder in sorted({path, *filter(Path.is_dir, path.rglob("*"))}) for file in image_files(folder)
            ]
            if not found:
                raise UserError(f"{path}: no image files in this folder or below it")
            return list(found)
        return [path]
    if isinstance(data, Image.Image):
        return [image(data)]
    if isinstance(data, torch.Tensor):
        data = data.numpy(force=True)
    if isinstance(data, np.ndarray) and data.dtype != object:
        if data.dtype != np.uint8 or data.ndim not in (3, 4):
            raise UserError(f"images must be uint8 [N, H, W, C] or [N, H, W], got {data.dtype} {data.shape}")
        return [image(pixels) for pixels in data]
    return [image(item) for item in data]


def image(item: Any) -> Item:
    """Return an image in one of the forms that the program reads."""
    if isinstance(item, str | os.PathLike):
        return Path(item)
    if isinstance(item, bytes):
        return item
    if isinstance(item, Image.Image):
        return np.asarray(item.convert("RGB"))
    pixels = item.numpy(force=True) if isinstance(item, torch.Tensor) else np.asarray(item)
    if pixels.dtype != np.uint8 or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3))):
        raise UserError(
            f"an image must be a file, a Pillow image, or uint8 [H, W] or [H, W, 3], got {pixels.dtype} {pixels.shape}"
        )
    if not pixels.size:
        raise UserError(f"an image has no pixels: its shape is {pixels.shape}")
    return np.ascontiguousarray(pixels)


def _folder(path: Path) -> Labelled:
    if not path.is_dir():
        raise UserError(f"no folder at {path.absolute()}")
    inner = path / "train" if (path / "train").is_dir() and class_folders(path / "train") else path
    names = class_folders(inner)
    if not names:
        raise UserError(f"{path} has no class folders: put the images of each class into {path}/<class>/")
    files = class_files(inner, names)
    return _checked(
        [file for own in files for file in own], [name for name, own in zip(names, files, strict=True) for _ in own]
    )


def _dataset(data: Any) -> Iterator[tuple[Item, Name]]:
    classes = getattr(data, "classes", None)  # as torchvision's data sets have them
    for index in range(len(data)):
        item, label = data[index]
        yield image(item), _name(label if classes is None else classes[int(label)])


def _is_pair(entry: Any) -> bool:
    return isinstance(entry, tuple | list) and len(entry) == 2


def _columns(pairs: Iterable[tuple[Item, Name]]) -> tuple[list[Item], list[Name]]:
    items, names = [], []
    for item, name in pairs:
        items.append(item)
        names.append(name)
    return items, names


def _name(label: Any) -> Name:
    if isinstance(label, torch.Tensor | np.generic):
        label = label.item()
    if isinstance(label, float) and label.is_integer():  # as scikit-learn, which takes 1.0 for a class
        return int(label)
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise UserError(f"a class is a text or a whole number and cannot be continuous, got {label!r}")
    return label


def _checked(items: list[Item], names: list[Name]) -> Labelled:
    if not items:
        raise UserError("no images were given")
    if len(kinds := {type(name) for name in names}) > 1:
        raise UserError(
            f"classes are either texts or whole numbers, got both: {sorted(kind.__name__ for kind in kinds)}"
        )
    for name in set(names):
        check_printable("class", str(name))
        if not str(name):
            raise UserError("a class has an empty name")
    return Labelled(items, names)
