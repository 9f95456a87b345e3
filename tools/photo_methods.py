"""Compare methods on photos of Caltech-101: 50 classes, then 10 more five times, five exemplars per class.

python tools/photo_methods.py runs/photos --root DATA --jobs 8 --seconds 480

The folder DATA has caltech101-30 (tools/caltech101.py). The settings of each kind of method are chosen among candidates
on held-out photos (16 of 20 per class to learn, 4 to compare, order 0), and then run on the test photos in three orders
of the classes, those of tools/learn_photos.py. Each run becomes a record. `choices.json` has every candidate.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import arguments

from phasezero import load_plugin, preset, run, write_record
from phasezero.methods import classifier_of
from phasezero.records.files import write_whole
from phasezero.records.run import find_records

FORMAT = "phasezero-photo-methods-1"
CLASSES, SEEDS = 100, (0, 1, 2)
Settings = Mapping[str, Any]


def both(**values: Any) -> Settings:
    return {f"training.{part}.{key}": value for part in ("first", "later") for key, value in values.items()}


# `usual` is what a learner does (learner/recipe.py).
PRETRAINED: Settings = {"network.weights": "efficientnet-lite0", "network.backbone_lr": 0.1, **both(lr=0.05)}
SCRATCH: Settings = {"network.name": "resnet18", "first.epochs": 100, "later.epochs": 30, **both(lr=0.1, batch_size=64)}
CANDIDATES: dict[str, Sequence[tuple[str, Settings]]] = {
    "lucir": [
        ("usual", PRETRAINED),
        ("backbone 0.3", {**PRETRAINED, "network.backbone_lr": 0.3}),
        ("backbone 0.02", {**PRETRAINED, "network.backbone_lr": 0.02}),
        ("lr 0.02", {**PRETRAINED, **both(lr=0.02)}),
        ("later lr 0.01", {**PRETRAINED, "training.later.lr": 0.01}),
        ("40 epochs", {**PRETRAINED, "epochs": 40}),
    ],
    "finetune": [
        ("usual", PRETRAINED),
        ("backbone 0.3", {**PRETRAINED, "network.backbone_lr": 0.3}),
        ("backbone 0.02", {**PRETRAINED, "network.backbone_lr": 0.02}),
        ("later lr 0.01", {**PRETRAINED, "training.later.lr": 0.01}),
    ],
    "joint": [("usual", PRETRAINED), ("backbone 0.3", {**PRETRAINED, "network.backbone_lr": 0.3})],
    "ridge": [
        ("usual", {**PRETRAINED, "method.width": 0}),
        ("backbone 0.3", {**PRETRAINED, "method.width": 0, "network.backbone_lr": 0.3}),
        ("backbone 0.02", {**PRETRAINED, "method.width": 0, "network.backbone_lr": 0.02}),
    ],
    "scratch lucir": [("usual", SCRATCH), ("augment", {**SCRATCH, "+": "augment"})],
}
# On a chosen phase 0: the methods that use it. CwD's eta is chosen too, at the settings of LUCIR.
ETAS = (0.02, 0.1, 0.5)
FROZEN: Settings = {"network.weights": "efficientnet-lite0", "network.backbone_lr": 0.0}


def job(place: str, method: str, settings: Settings, seed: int, held_out: bool) -> dict[str, Any]:
    """Describe a run, as plain values for another process."""
    plain = {key: value for key, value in settings.items() if key != "+"}
    label = "+".join(filter(None, [method, settings.get("+")]))
    return {"place": place, "label": label, "settings": plain, "seed": seed, "held_out": held_out}


def train(root: str, out: str, wanted: dict[str, Any]) -> tuple[dict[str, Any], float, str]:
    """Train a run, write its record, and return its average accuracy in percent, or what went wrong."""
    load_plugin(str(Path(__file__).with_name("caltech101.py")))
    order = list(range(CLASSES))
    random.Random(wanted["seed"]).shuffle(order)
    data = "caltech101-heldout" if wanted["held_out"] else "caltech101"
    try:
        config = preset(f"{wanted['label']}/{data}/b50s10r5,{assignments(wanted['settings'])}", seed=wanted["seed"])
        config = config.override({"protocol.class_order": order})
        record = run(config, root=root).record
        write_record(Path(out) / wanted["place"] / f"seed{wanted['seed']}" / "record.json", record)
    except Exception:
        return wanted, float("nan"), traceback.format_exc()
    return wanted, average(record), ""


def assignments(settings: Settings) -> str:
    """Return settings as a preset writes them; epochs first, because they scale milestones."""
    ordered = sorted(settings.items(), key=lambda entry: not entry[0].endswith("epochs"))
    return ",".join(f"{key}={value}" for key, value in ordered)


def average(record: Any) -> float:
    summary = record["summary"]
    metrics = summary.get(classifier_of(record["method"])) or summary["head"]
    return float(metrics["average_incremental_accuracy"])


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no run after this time")
    parser.add_argument("--held-out-seconds", type=float, default=float("inf"), help="the same for held-out photos")
    parser.add_argument("--set", action="append", default=[], help="for every run, such as epochs=1 to try it out")
    wanted = parser.parse_args()
    extra = dict(text.split("=", 1) for text in wanted.set)
    started = time.perf_counter()
    pool = ProcessPoolExecutor(wanted.jobs, multiprocessing.get_context("spawn"))

    def finish(jobs: list[dict[str, Any]], until: float) -> dict[str, float]:
        """Train runs in parallel and return average accuracies by place and seed; the others are late or failed."""
        found: dict[str, float] = {}
        waiting = [one | {"settings": {**one["settings"], **extra}} for one in jobs][::-1]
        running = set()
        while waiting or running:
            while waiting and len(running) < wanted.jobs and time.perf_counter() - started < until:
                running.add(pool.submit(train, str(wanted.root), str(wanted.out), waiting.pop()))
            if not running:
                break
            done = next(as_completed(running))
            running.remove(done)
            one, accuracy, problem = done.result()
            print(
                f"{time.perf_counter() - started:6.1f} s  {one['place']} seed {one['seed']}: {accuracy:.2f}", flush=True
            )
            if problem:
                print(problem, file=sys.stderr, flush=True)
            else:
                found[f"{one['place']} {one['seed']}"] = accuracy
        return found

    def candidates(kind: str, entries: Sequence[tuple[str, Settings]]) -> list[dict[str, Any]]:
        return [job(place_of(kind, name), method_of(kind), settings, 0, True) for name, settings in entries]

    plain = [one for kind, entries in CANDIDATES.items() for one in candidates(kind, entries)]
    longest_first = sorted(plain, key=lambda one: "scratch" not in one["place"] and "joint" not in one["place"])
    held = finish(longest_first, wanted.held_out_seconds)
    chosen = {kind: best(kind, entries, held) for kind, entries in CANDIDATES.items()}
    with_cwd = [(f"eta {eta}", {**chosen[kind], "+": joined(chosen[kind], eta)}) for kind in ("lucir",) for eta in ETAS]
    held |= finish(candidates("lucir+cwd", with_cwd), wanted.held_out_seconds)
    chosen["lucir+cwd"] = best("lucir+cwd", with_cwd, held)
    scratch = chosen["scratch lucir"]
    tests = [
        ("ridge-frozen", "ridge", {**FROZEN, "method.width": 0, "method.choose_once": True}),
        ("ncm-frozen", "ncm", FROZEN),
        ("ridge-adapted", "ridge", chosen["ridge"]),
        *((kind, kind, chosen[kind]) for kind in ("lucir", "finetune", "joint")),
        ("lucir+cwd", "lucir", chosen["lucir+cwd"]),
        ("scratch-lucir", "lucir", scratch),
        ("scratch-lucir+cwd", "lucir", {**scratch, "+": joined(scratch, 0.5)}),
        ("scratch-ridge", "ridge", scratch),
    ]
    jobs = [job(f"test/{place}", method, settings, seed, False) for seed in SEEDS for place, method, settings in tests]
    jobs.sort(key=lambda one: one["seed"] > 0 and "scratch" in one["place"])  # these last, if time is short
    tested = finish(jobs, wanted.seconds)
    facts = {
        "format": FORMAT,
        "held_out": {key.rsplit(" ", 1)[0]: round(value, 2) for key, value in sorted(held.items())},
        "not_run": sorted({one["place"] for one in plain} - {key.rsplit(" ", 1)[0] for key in held}),
        "chosen": chosen,
        "test": {key: round(value, 2) for key, value in sorted(tested.items())},
        "records": len(list(find_records([wanted.out]))),
        "seconds": round(time.perf_counter() - started, 1),
    }
    write_whole(wanted.out / "choices.json", json.dumps(facts, indent=1) + "\n")
    pool.shutdown()


def place_of(kind: str, name: str) -> str:
    return f"heldout/{kind}-{name}".replace(" ", "-")


def method_of(kind: str) -> str:
    return kind.split()[-1].split("+")[0]


def joined(settings: Settings, eta: float) -> str:
    return "+".join(filter(None, [settings.get("+"), f"cwd:{eta}"]))


def best(kind: str, entries: Sequence[tuple[str, Settings]], held: Mapping[str, float]) -> Settings:
    """Return the candidate with the highest average accuracy on held-out photos; the first if none was run."""
    return max(entries, key=lambda entry: held.get(f"{place_of(kind, entry[0])} 0", float("-inf")))[1]


if __name__ == "__main__":
    main()
