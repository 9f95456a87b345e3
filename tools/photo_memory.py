"""Measure what kept photos are worth to methods that train a classifier (results/cpu/photos_memory.json).

python tools/photo_memory.py results/cpu/photos_memory.json caltech101-30 --features features.safetensors

The folder has train/ and val/ with a folder for each class. A learner learns 50 classes, then 10 more five times, in
several orders of the classes, with a number of exemplars of each class. The backbone is frozen, so features are
computed once (tools/photo_choices.py), and training changes the classifier alone. The rest are a learner's defaults.
Accuracies are those on val/ of the classes learned so far. A run that is already in the record is not repeated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import arguments
from learn_photos import SIZES
from photo_choices import Lookup, features_of, learn_in_phases
from torch import Tensor

from phasezero import Learner
from phasezero.engine.device import environment
from phasezero.records.files import write_whole

FORMAT = "phasezero-photo-memory-1"
COUNTS, METHODS = "0,1,2,5,10,20", "lucir,finetune"
PHOTOS = 20  # of each class; two are held out


def measure(method: str, seed: int, kept: int, folder: Path, features: Tensor) -> tuple[Learner, dict[str, Any]]:
    learner = Learner(method, backbone=Lookup(features), backbone_lr=0.0, memory=f"per_class:{kept}", device="cpu")
    found = learn_in_phases(learner, seed, PHOTOS, folder)
    accuracies = [100 * one["accuracy"] for one in found]
    return learner, {
        "method": method,
        "order": seed,
        "photos_kept_per_class": kept,
        "accuracy": [round(value, 2) for value in accuracies],
        "average": round(sum(accuracies) / len(accuracies), 2),
        "last_by_phase": [round(100 * share, 2) for share in found[-1]["by_phase"]],
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
    for seed in arguments.numbers(wanted.orders):
        for method in wanted.methods.split(","):
            for kept in arguments.numbers(wanted.counts):
                if any((r["method"], r["order"], r["photos_kept_per_class"]) == (method, seed, kept) for r in runs):
                    continue
                learner, found = measure(method, seed, kept, wanted.folder, features)
                runs.append(found)
                print(found, flush=True)
                facts = {
                    "format": FORMAT,
                    "photos": f"{wanted.folder.name}, {PHOTOS} of each class, of which 2 are held out",
                    "sizes": list(SIZES),
                    "features": "efficientnet-lite0, frozen, one view of each photo",
                    "environment": environment(learner._place),
                    "runs": runs,
                }
                write_whole(wanted.out, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
