"""Measure a learner on a folder of photos: 50 classes, then 10 more five times, in several orders of the classes.

python tools/learn_photos.py results/cpu/learn_caltech101.json caltech101-30 --seeds 0,1,2 --methods ridge,ncm

The folder has train/ and val/ with a folder for each class. Accuracies are those on val/ of the classes learned so far.
"""

from __future__ import annotations

import json
import platform
import random
import time
from pathlib import Path
from typing import Any

import arguments
import torch

from phasezero import Learner, __version__
from phasezero.data.folder import image_files
from phasezero.engine.device import processor_name
from phasezero.records.files import write_whole

FORMAT = "phasezero-learn-photos-1"
SIZES = (50, 10, 10, 10, 10, 10)
Pairs = list[tuple[Path, str]]


def pairs_of(folder: Path, names: list[str]) -> Pairs:
    return [(path, name) for name in names for path in image_files(folder / name)]


def measure(method: str, folder: Path, names: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    """Learn the classes phase by phase. A frozen backbone sees each test photo once, as in `Trainer`."""
    learner, start = Learner(method, settings=settings), 0
    accuracies, seconds = [], []
    for size in SIZES:
        new, began = pairs_of(folder / "train", names[start : start + size]), time.perf_counter()
        learner = learner.add_classes(new) if start else learner.fit(new)
        seconds.append(time.perf_counter() - began)
        start += size
        if start == SIZES[0]:
            tested = learner._features([path for path, _ in pairs_of(folder / "val", names)], "")
        truth = [names.index(name) for _, name in pairs_of(folder / "val", names[:start])]
        order = torch.tensor([names.index(str(name)) for name in learner.classes_])
        found = order[learner._scores(tested[: len(truth)]).argmax(1)]
        accuracies.append(100 * float((found == torch.tensor(truth)).double().mean()))
    check = learner.evaluate(pairs_of(folder / "val", names))["accuracy"]
    assert abs(100 * check - accuracies[-1]) < 0.3, "photos classified one by one differ from their features"
    numbers = sum(getattr(learner.model_.head, name).numel() for name in learner.model_.head.statistics)
    return {
        "method": method,
        "settings": settings,
        "accuracy": [round(value, 2) for value in accuracies],
        "average": round(sum(accuracies) / len(accuracies), 2),
        "seconds": [round(value, 1) for value in seconds],
        "seconds_total": round(sum(seconds), 1),
        "kept_numbers": numbers,
        "temperature": learner._calibration.temperature,
        "held_out": [entry["held_out_accuracy"] for entry in learner.history_],
    }


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--methods", default="ridge")
    parser.add_argument("--set", action="append", default=[], help="method.width=4096, for every run")
    parser.add_argument("--note", default="")
    wanted = parser.parse_args()
    settings = {key: json.loads(value) for key, _, value in (text.partition("=") for text in wanted.set)}
    before = json.loads(wanted.out.read_text())["runs"] if wanted.out.exists() else []
    runs = []
    for method in wanted.methods.split(","):
        for seed in map(int, wanted.seeds.split(",")):
            names = sorted(path.name for path in (wanted.folder / "train").iterdir())
            random.Random(seed).shuffle(names)
            runs.append({"seed": seed, **measure(method, wanted.folder, names, settings), "note": wanted.note})
            print(runs[-1])
    facts = {
        "format": FORMAT,
        "photos": wanted.folder.name,
        "sizes": list(SIZES),
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
        "versions": {"phasezero": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "runs": [*before, *runs],
    }
    write_whole(wanted.out, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
