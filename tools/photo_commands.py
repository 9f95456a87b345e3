"""Time the commands on photos, as a user runs them (results/cpu/photo_commands.json).

python tools/photo_commands.py results/cpu/photo_commands.json caltech101-30 --note "nothing else ran on the machine"

The folder has train/ and val/ with a folder for each class. `learn` takes 50 classes and then 10 more five times, each
in a process of its own, and `evaluate` measures the model on val/ after each. A copy of the model of 50 classes learns
a single class more. `predict` on a photo is timed cold, from the start of the process to its end, and warm, in a
process that has named a photo before. Each photo is new. Seconds are those of a clock on the wall.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import arguments
from learn_photos import SIZES

from phasezero import Learner
from phasezero.data.folder import image_files
from phasezero.engine.device import environment
from phasezero.records.files import write_whole

FORMAT = "phasezero-photo-commands-1"
COLD, WARM = 10, 100


def timed(*words: str | Path) -> tuple[str, float]:
    """Run a command of phasezero, and return what it prints and its seconds."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "phasezero", *map(str, words)], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout, seconds


def folder_of(classes: list[Path], where: Path) -> Path:
    """Return a new folder that has these class folders."""
    where.mkdir()
    for folder in classes:
        (where / folder.name).symlink_to(folder, target_is_directory=True)
    return where


def measure(photos: Path, place: Path, seed: int) -> tuple[dict[str, Any], Learner]:
    classes = sorted((photos / "train").resolve().iterdir())
    random.Random(seed).shuffle(classes)  # as in learn_photos.py
    model, start = place / "model", 0
    learned, accuracies = [], []
    for phase, size in enumerate(SIZES):
        new = folder_of(classes[start : start + size], place / f"photos{phase}")
        learned.append(timed("learn", new, "--model", model)[1])
        start += size
        said = timed("evaluate", "--model", model, photos / "val")[0]
        accuracies.append(float(re.findall(r": ([\d.]+) % of", said)[0]))
        print(start, learned[-1], accuracies[-1], flush=True)
        if not phase:
            shutil.copytree(model, place / "copy")
    one = timed("learn", folder_of(classes[SIZES[0] : SIZES[0] + 1], place / "one"), "--model", place / "copy")[1]
    tested = [path for folder in sorted((photos / "val").iterdir()) for path in image_files(folder)]
    random.Random(seed).shuffle(tested)
    cold = [timed("predict", "--model", model, path)[1] for path in tested[:COLD]]
    learner, warm = Learner.load(model, device="cpu"), []
    for path in tested[COLD : COLD + WARM + 1]:
        began = time.perf_counter()
        learner.top([path], 1)
        warm.append(time.perf_counter() - began)
    warm = warm[1:]  # the first warms up
    return {
        "order": seed,
        "accuracy": accuracies,
        "average": round(statistics.mean(accuracies), 2),
        "learn_seconds": [round(value, 1) for value in learned],
        "learn_seconds_total": round(sum(learned), 1),
        "add_one_class_seconds": round(one, 1),
        "predict_cold_seconds": [round(value, 2) for value in cold],
        "predict_warm_ms": {
            "median": round(1000 * statistics.median(warm), 1),
            "p95": round(1000 * statistics.quantiles(warm, n=20)[-1], 1),
            "largest": round(1000 * max(warm), 1),
            "photos": len(warm),
        },
    }, learner


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--orders", default="0")
    parser.add_argument("--note", default="")
    wanted = parser.parse_args()
    runs = []
    for seed in arguments.numbers(wanted.orders):
        with tempfile.TemporaryDirectory() as place:
            found, learner = measure(wanted.folder, Path(place), seed)
        print(found, flush=True)
        runs.append(found)
    facts = {
        "format": FORMAT,
        "note": wanted.note,
        "photos": wanted.folder.name,
        "sizes": list(SIZES),
        "environment": environment(learner._place),
        "runs": runs,
    }
    write_whole(wanted.out, json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
