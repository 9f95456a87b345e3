"""Compare exact classifiers by the number of photos per class (results/cpu/photos_choices.json).

python tools/photo_choices.py results/cpu/photos_choices.json caltech101-30 --features features.safetensors

The folder has train/ and val/ with a folder for each class. A learner learns 50 classes, then 10 more five times, in
several orders of the classes. Its settings are the defaults. Accuracies are those on val/ of the classes learned so
far. The features of the embedded backbone are computed once and kept in a file; learners look them up. A run that is
already in the record is not repeated.
"""

from __future__ import annotations

import json
import platform
import random
from pathlib import Path
from typing import Any

import arguments
import numpy as np
import torch
from learn_photos import SIZES, pairs_of
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phasezero import Learner, __version__
from phasezero.records.files import write_whole

FORMAT = "phasezero-photo-choices-1"
COUNTS, METHODS = "1,2,5,10,20", "ncm,slda,ridge,fecam"


class Lookup(nn.Module):
    """A backbone for images that hold the row of their features as a colour, coarse enough to survive JPEG."""

    image_size, mean, std = 8, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)

    def __init__(self, features: Tensor) -> None:
        super().__init__()
        self.features = features

    def forward(self, images: Tensor) -> Tensor:
        high, middle, low = ((255 * images[:, :, 4, 4]).round().long() // 16).unbind(1)
        return self.features[(high * 16 + middle) * 16 + low]


def image_of(row: int) -> np.ndarray:
    assert row < 16**3
    return np.full((9, 9, 3), [16 * (row >> shift & 15) + 8 for shift in (8, 4, 0)], np.uint8)


def features_of(folder: Path, kept: Path) -> Tensor:
    """Return the features of all photos, train/ first; read them from a file if it is there."""
    names = sorted(path.name for path in (folder / "train").iterdir())
    pairs = [pair for part in ("train", "val") for pair in pairs_of(folder / part, names)]
    if not kept.exists():
        learner = Learner("ncm", progress=lambda what, done, total: print(what, done, total, flush=True))
        learner.fit(pairs[:2])
        save_file({"features": learner._features([path for path, _ in pairs], "all photos")}, kept)
    found = load_file(kept)["features"]
    assert len(found) == len(pairs), f"{kept} has the features of other photos"
    return found


def learn_in_phases(learner: Learner, seed: int, count: int, folder: Path) -> list[dict[str, Any]]:
    """Learn `count` photos of each class, phase by phase, and return what `evaluate` finds after each phase."""
    names = sorted(path.name for path in (folder / "train").iterdir())
    rows: dict[str, dict[str, list[int]]] = {"train": {}, "val": {}}
    total = 0
    for part, by_class in rows.items():
        for name in names:
            by_class[name] = list(range(total, total := total + len(pairs_of(folder / part, [name]))))
    order = names.copy()
    random.Random(seed).shuffle(order)  # as in learn_photos.py
    for name in names:  # smaller numbers of photos are a part of the larger
        random.Random(f"{seed} {name}").shuffle(rows["train"][name])
    start, found = 0, []
    for size in SIZES:
        new = [(image_of(row), name) for name in order[start : start + size] for row in rows["train"][name][:count]]
        learner = learner.add_classes(new) if start else learner.fit(new)
        start += size
        found.append(learner.evaluate([(image_of(row), name) for name in order[:start] for row in rows["val"][name]]))
    return found


def measure(method: str, seed: int, count: int, folder: Path, features: Tensor) -> dict[str, Any]:
    learner = Learner(method, backbone=Lookup(features), device="cpu")
    accuracies = [100 * one["accuracy"] for one in learn_in_phases(learner, seed, count, folder)]
    state = learner.model_.head.state_dict().values()
    return {
        "method": method,
        "order": seed,
        "photos_per_class": count,
        "accuracy": [round(value, 2) for value in accuracies],
        "average": round(sum(accuracies) / len(accuracies), 2),
        "state_bytes": sum(tensor.numel() * tensor.element_size() for tensor in state),
    }


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--features", type=Path, required=True, help="file of features, made if it is missing")
    parser.add_argument("--orders", default="0,1,2")
    parser.add_argument("--counts", default=COUNTS)
    parser.add_argument("--methods", default=METHODS)
    wanted = parser.parse_args()
    runs = json.loads(wanted.out.read_text())["runs"] if wanted.out.exists() else []
    features = features_of(wanted.folder, wanted.features)
    for method in wanted.methods.split(","):
        for seed in arguments.numbers(wanted.orders):
            for count in arguments.numbers(wanted.counts):
                if any((run["method"], run["order"], run["photos_per_class"]) == (method, seed, count) for run in runs):
                    continue
                runs.append(measure(method, seed, count, wanted.folder, features))
                print(runs[-1], flush=True)
                facts = {
                    "format": FORMAT,
                    "photos": wanted.folder.name,
                    "sizes": list(SIZES),
                    "features": "efficientnet-lite0, frozen, one view of each photo",
                    "versions": {
                        "phasezero": __version__,
                        "torch": torch.__version__,
                        "python": platform.python_version(),
                    },
                    "runs": runs,
                }
                write_whole(wanted.out, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
