"""ImageNet (ILSVRC 2012) and the three subsets of 100 classes that published work calls "ImageNet100".

The lists are in class_lists.json: `imagenet` is the 1000 wnids, sorted; each `imagenet100-*` is in the order
in which its authors' code presents the classes, so their class order is `natural`:

- cwd: the first 100 of the seed-1993 shuffle of the 1000 classes (Yujun-Shi/CwD).
- lucir: the same 100 classes, sorted and shuffled again with seed 1993 (LUCIR, AANets); only 26 of the first
  50 classes are also among the first 50 of `cwd`.
- podnet: the first 100 wnids of the alphabet, shuffled with seed 1993; 9 of them are in the other subset.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from phasezero.data import folder
from phasezero.data.catalog import Load, register_data
from phasezero.data.images import ImageData
from phasezero.errors import UserError
from phasezero.records.files import read_file

_WNID = re.compile(r"n\d{8}")
# The root itself, its own folder under the root, and the layout of Kaggle's archive.
_PLACES = ("", "imagenet", "ILSVRC/Data/CLS-LOC")
_TRUTH_FILES = ("LOC_val_solution.csv", "*val*.txt", "synsets.txt")

_WHAT_IS_NEEDED = (
    "either sort the images into val/<wnid>/, or put one of these next to val/: LOC_val_solution.csv (Kaggle); "
    "val_ground_truth.txt with lines 'ILSVRC2012_val_00000001.JPEG n01751748'; "
    "imagenet_2012_validation_synset_labels.txt with one wnid per image, in the order of the images"
)


@cache
def class_list(name: str) -> tuple[str, ...]:
    lists = json.loads(package_files("phasezero.data").joinpath("class_lists.json").read_text("utf-8"))
    return tuple(lists[name])


def _base(root: Path) -> Path | None:
    """Return the folder that contains train/ and val/."""
    places = (root / place for place in _PLACES)
    return next((p for p in places if (p / "train").is_dir() and (p / "val").is_dir()), None)


def imagenet_present(name: str, root: Path) -> bool:
    base, wnids = _base(root), class_list(name)
    return base is not None and all((base / "train" / wnid).is_dir() for wnid in (wnids[0], wnids[-1]))


def load_imagenet(name: str, root: Path, argument: str = "") -> ImageData:
    base, wnids = _base(root), class_list(name)
    if base is None:
        looked = ", ".join(str(root / place) for place in _PLACES)
        raise UserError(
            f"{name} not found: none of {looked} has both train/ and val/; download ImageNet from "
            f"image-net.org (ILSVRC 2012, after registration) and unpack it to train/<wnid>/ and val/"
        )
    train = folder.class_files(base / "train", wnids)
    in_folders = any((base / "val" / wnid).is_dir() for wnid in wnids)
    test = folder.class_files(base / "val", wnids) if in_folders else _by_truth(root, base, wnids)
    sides = folder.split_of(train), folder.split_of(test)
    folder.check_files(*sides)
    return ImageData(name, wnids, wnids, *sides, folder.PHOTO_PREPARATION)


def _by_truth(root: Path, base: Path, wnids: tuple[str, ...]) -> list[list[Path]]:
    """Sort the flat validation folder, as ILSVRC distributes it, into classes by a ground-truth file."""
    images = folder.image_files(base / "val")
    if not images:
        raise UserError(f"{base / 'val'} has neither images nor class folders; {_WHAT_IS_NEEDED}")
    source, truth = _find_truth(root, base, images)
    unnamed = [path.name for path in images if path.stem not in truth]
    if unnamed:
        raise UserError(f"images of {base / 'val'} that {source} does not name: {folder.first_few(unnamed)}")
    by_class: dict[str, list[Path]] = {wnid: [] for wnid in wnids}
    for path in images:
        if (wnid := truth[path.stem]) in by_class:
            by_class[wnid].append(path)
    empty = [wnid for wnid, paths in by_class.items() if not paths]
    if empty:
        raise UserError(f"classes without images in {base / 'val'} by {source}: {folder.first_few(empty)}")
    return list(by_class.values())


def _find_truth(root: Path, base: Path, images: list[Path]) -> tuple[Path, dict[str, str]]:
    """Return the first unambiguous ground-truth file, and its wnid for the stem of each image."""
    places = dict.fromkeys([base, base / "val", root, base / "ILSVRC2012_devkit_t12" / "data"])
    reasons = []
    for pattern in _TRUTH_FILES:
        for path in (found for place in places for found in sorted(place.glob(pattern))):
            truth = _read_truth(path, images)
            if isinstance(truth, dict):
                return path, truth
            reasons.append(f"{path} {truth}")
    found = f" ({'; '.join(dict.fromkeys(reasons))})" if reasons else ""
    raise UserError(
        f"{base / 'val'} has no class folders, and no file says which class its images have{found}: {_WHAT_IS_NEEDED}"
    )


def _read_truth(path: Path, images: list[Path]) -> dict[str, str] | str:
    """Return the wnid of each stem, or the reason why the file cannot be used."""
    with io.StringIO(read_file(path, "ground truth").decode("utf-8", "replace"), newline="") as file:
        if path.suffix == ".csv":  # ImageId,PredictionString: a wnid and a box, several times
            rows = [[row[0], *row[1].split()[:1]] for row in csv.reader(file) if len(row) > 1][1:]
        else:
            rows = [line.split() for line in file if line.strip()]
    if rows and all(len(row) == 2 and _WNID.fullmatch(row[1]) for row in rows):
        return {Path(name).stem: wnid for name, wnid in rows}
    if not rows or any(len(row) != 1 for row in rows):
        return "is not a list of images and wnids"
    lines = [row[0] for row in rows]
    if all(line.isdigit() for line in lines):
        # The devkit's own numbers follow meta.mat, not the sorted wnids: guessing would mislabel everything.
        return "has ILSVRC2012 ids, which only the devkit's meta.mat translates to wnids"
    if not all(_WNID.fullmatch(line) for line in lines):
        return "is not a list of wnids"
    if len(lines) != len(images):
        return f"has {len(lines)} lines for {len(images)} images"
    if len(set(lines)) == len(lines) > 1:
        return "names every wnid once: a list of classes, not of images"
    return {image.stem: wnid for image, wnid in zip(images, lines, strict=True)}


_PHOTOS: dict[str, Any] = {"gpu_memory": folder.PHOTO_GPU_MEMORY, "seconds": {"cpu": 1.0, "cuda": 5e-4}}  # guesses
_HUNDRED: dict[str, Any] = {**_PHOTOS, "recipe": folder.PHOTO_RECIPE, "family": "imagenet100", "size": (100, 1290)}


def _list(name: str, facts: dict[str, Any]) -> tuple[dict[str, Any], Load]:
    """Return what is registered for a class list: facts and the function that loads it."""
    return {**facts, "present": partial(imagenet_present, name)}, partial(load_imagenet, name)


_all, _load_all = _list("imagenet", _PHOTOS)
# The paper's LUCIR rows used CwD's list. It is not known which list its other rows used.
_cwd, _load_cwd = _list("imagenet100-cwd", {**_HUNDRED, "paper_name": "ImageNet100", "paper_methods": ("lucir",)})
_lucir, _load_lucir = _list("imagenet100-lucir", {**_HUNDRED, "instead_of": "imagenet100-cwd"})
_podnet, _load_podnet = _list("imagenet100-podnet", {**_HUNDRED, "instead_of": "imagenet100-cwd"})

register_data(
    "imagenet",
    "ImageNet (2012): 1000 classes, 1.28 million photos",
    recipe=replace(folder.PHOTO_RECIPE, base=100, steps=(100, 50)),
    class_order="seed1993",
    paper_name="ImageNet",
    size=(1000, 1281),
    **_all,
)(_load_all)
register_data("imagenet100-cwd", "100 ImageNet classes in CwD's order", **_cwd)(_load_cwd)
register_data("imagenet100", "a variant of imagenet100-cwd: another name of it", presets=False, **_cwd)(_load_cwd)
register_data("imagenet100-lucir", "CwD's 100 classes in the order of LUCIR and AANets", **_lucir)(_load_lucir)
register_data("imagenet100-podnet", "the first 100 ImageNet classes in PODNet's order", **_podnet)(_load_podnet)
