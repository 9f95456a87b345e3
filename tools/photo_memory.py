"""Measure what kept photos are worth to methods that train the network (results/cpu/photos_memory.json).

python tools/photo_memory.py results/cpu/photos_memory.json caltech101-30 --note "shared machine"

The folder has train/ and val/ with a folder for each class. A learner learns 10 classes, then 5 more four times, in
several orders of the classes. To finish on a CPU it takes 30 of the classes, small images and few epochs. The rest are
a learner's defaults. Accuracies are those on val/ of the classes learned so far. A run that is already in the record is
not repeated.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import arguments
from learn_photos import pairs_of

from phasezero import Learner
from phasezero.engine.device import environment
from phasezero.records.files import write_whole

FORMAT = "phasezero-photo-memory-1"
SIZES = (10, 5, 5, 5, 5)
COUNTS, METHODS = "0,1,2,5,10,20", "lucir,finetune"
SETTINGS = {"network.image_size": 112, "epochs": 5}


def measure(method: str, seed: int, kept: int, folder: Path) -> tuple[Learner, dict[str, Any]]:
    """Learn the classes phase by phase with `kept` exemplars of each, and test after each phase."""
    names = sorted(path.name for path in (folder / "train").iterdir())
    random.Random(seed).shuffle(names)  # as in learn_photos.py
    learner, start, started = Learner(method, memory=f"per_class:{kept}", settings=SETTINGS, device="cpu"), 0, 0.0
    accuracies, old = [], None
    for size in SIZES:
        new, began = pairs_of(folder / "train", names[start : start + size]), time.perf_counter()
        learner = learner.add_classes(new) if start else learner.fit(new)
        started, start = started + time.perf_counter() - began, start + size
        found = learner.evaluate(pairs_of(folder / "val", names[:start]))
        accuracies.append(100 * found["accuracy"])
        old = found["by_phase"][0]
    return learner, {
        "method": method,
        "order": seed,
        "photos_kept_per_class": kept,
        "accuracy": [round(value, 2) for value in accuracies],
        "average": round(sum(accuracies) / len(accuracies), 2),
        "last_of_first_classes": round(100 * old, 2),
        "seconds": round(started, 1),
    }


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--orders", default="0")
    parser.add_argument("--counts", default=COUNTS)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--note", default="")
    wanted = parser.parse_args()
    runs = json.loads(wanted.out.read_text())["runs"] if wanted.out.exists() else []
    for seed in arguments.numbers(wanted.orders):
        for method in wanted.methods.split(","):
            for kept in arguments.numbers(wanted.counts):
                if any((r["method"], r["order"], r["photos_kept_per_class"]) == (method, seed, kept) for r in runs):
                    continue
                learner, found = measure(method, seed, kept, wanted.folder)
                runs.append(found)
                print(found, flush=True)
                facts = {
                    "format": FORMAT,
                    "note": wanted.note,
                    "photos": f"{wanted.folder.name}, 20 of each class to learn and 10 for testing",
                    "sizes": list(SIZES),
                    "settings": SETTINGS,
                    "environment": environment(learner._place),
                    "runs": runs,
                }
                write_whole(wanted.out, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
