"""CIFAR-100 (Krizhevsky 2009): 100 classes of 500 + 100 images of 32 x 32, in its python format.

The published files are pickles, and a pickle can run any code. Each file is therefore compared with its published md5
before it is opened, and is then read by an unpickler that knows numpy arrays and nothing else.
"""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from phasezero.data.catalog import Recipe, register_data
from phasezero.data.download import download, extract_tar, md5_of
from phasezero.data.images import ImageData, ImageSplit, Preparation, View
from phasezero.errors import UserError
from phasezero.records.files import read_file
from phasezero.steps import working

FOLDER = "cifar-100-python"
MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
URL = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
ARCHIVE_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"

# Mean, std and crop of LUCIR, AANets and CwD. The std is not that of the pixels (.267, .256, .276): it is the
# mean of the stds of single images [computed], but every number they published was made with it.
PREPARATION = Preparation((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023), size=32, view=View("pad", padding=4))


class _ArrayUnpickler(pickle.Unpickler):
    """Rebuild dictionaries, lists, strings, numbers and numpy arrays; reject any other global."""

    def find_class(self, module: str, name: str) -> Any:
        # numpy 2 moved the function that the files name; asking an array for it works with every version.
        reconstruct = np.empty(0).__reduce__()[0]
        known = {"_reconstruct": reconstruct, "ndarray": np.ndarray, "dtype": np.dtype}
        if module not in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray") or name not in known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return known[name]


def _has_files(folder: Path, verify: bool = False) -> bool:
    """Tell whether the files are in a folder and, if `verify` is set, have the published md5."""
    paths = {folder / name: md5 for name, md5 in MD5.items()}
    return all(path.is_file() and (not verify or md5_of(path) == md5) for path, md5 in paths.items())


def _folder(root: Path) -> Path:
    """Return where the files are or should be: in the root's own folder, or in the root if it is that folder."""
    inner = root / FOLDER
    is_that_folder = root.name == FOLDER or _has_files(root)
    return root if is_that_folder and not inner.is_dir() else inner


def _read(root: Path, name: str) -> dict[str, Any]:
    path, command = _folder(root) / name, f"phasezero data get cifar100 --root {root}"
    if not path.is_file():
        raise UserError(f"CIFAR-100 not found: {path} is missing; run: {command}")
    content = read_file(path, "file of CIFAR-100")  # once: what is checked is what is unpickled
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != MD5[name]:
        raise UserError(
            f"{path} has md5 {found}, expected {MD5[name]}; it is damaged or a different file "
            f"and was not opened; delete it and run: {command}"
        )
    try:
        # latin1: the files were written by Python 2, whose strings hold the pixels.
        entries: dict[str, Any] = _ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
    except pickle.UnpicklingError as error:
        raise UserError(f"{path} is not a file of arrays ({error}); nothing in it was run") from error
    return entries


def _split(root: Path, name: str) -> ImageSplit:
    entries = _read(root, name)
    planes = np.asarray(entries["data"], dtype=np.uint8).reshape(-1, 3, 32, 32)  # red, green, blue planes
    images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
    return ImageSplit(images, np.asarray(entries["fine_labels"], dtype=np.int64))


def get_cifar100(root: Path) -> None:
    """Download (169 MB), check and unpack the files, unless they are already there and have the right md5."""
    folder, state = _folder(root), "already"
    if not _has_files(folder, verify=True):
        base = folder.parent if folder.name == FOLDER else root
        folder, state = base / FOLDER, "now"
        archive = base / "cifar-100-python.tar.gz"
        fetched = download(URL, archive, md5=ARCHIVE_MD5)
        with working("unpacking"):
            extract_tar(archive, base, [f"{FOLDER}/{name}" for name in MD5])
            complete = _has_files(folder, verify=True)
        if not complete:
            raise UserError(f"the files unpacked into {folder} differ from the published files; check the disk")
        if fetched:  # keep an archive that was there before
            archive.unlink()
    Console(stderr=True).print(f"CIFAR-100 is {state} in {folder}, md5 as published", soft_wrap=True)


@register_data(
    "cifar100",
    "CIFAR-100: 100 classes, 60,000 images (169 MB download)",
    recipe=Recipe("resnet18-cifar"),
    class_order="seed1993",
    paper_name="CIFAR100",
    size=(100, 500),
    seconds={"cpu": 6e-2, "cuda": 2.5e-5},  # results/h200/bench.json
    present=lambda root: _has_files(_folder(root)),
    download=get_cifar100,
)
def load_cifar100(root: Path, argument: str = "") -> ImageData:
    """Load the published files after checking their md5."""
    names = tuple(str(name) for name in _read(root, "meta")["fine_label_names"])
    return ImageData("cifar100", names, names, _split(root, "train"), _split(root, "test"), PREPARATION)


HELD_OUT = 10  # every tenth image of a class


@register_data(
    "cifar100-heldout",
    "a variant of cifar100: a tenth of train is for testing",
    recipe=Recipe("resnet18-cifar"),
    class_order="seed1993",
    family="cifar100",
    size=(100, 450),
    seconds={"cpu": 6e-2, "cuda": 2.5e-5},
    presets=False,
    present=lambda root: _has_files(_folder(root)),
    download=get_cifar100,
)
def load_heldout(root: Path, argument: str = "") -> ImageData:
    """Split the training images to choose settings without the test images, which are not read."""
    names, train = tuple(str(name) for name in _read(root, "meta")["fine_label_names"]), _split(root, "train")
    place = np.empty(len(train), np.int64)  # of each image within its class
    for label in range(len(names)):
        own = np.flatnonzero(train.labels == label)
        place[own] = np.arange(len(own))
    held_out = place % HELD_OUT == HELD_OUT - 1
    rest, chosen = (ImageSplit(train.pixels[part], train.labels[part]) for part in (~held_out, held_out))
    return ImageData("cifar100-heldout", names, names, rest, chosen, PREPARATION)
