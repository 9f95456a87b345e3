"""Whether the fast engines train as well as the plain one (notebook/speed.md).

    python tools/compare_engines.py OUT.json --root DATA [--engines eager,compiled] [--seeds 0,1,2,3,4,5,6,7]

The same short training of LUCIR+CwD's phase 0 on CIFAR-100 (50 classes, 8 epochs with the drops at 4 and 6) by each
engine from the same seeds: the accuracies in pairs, their mean difference and its standard error.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product
from statistics import mean, stdev
from typing import Any

import arguments

from phasezero import run
from phasezero.config import RunConfig, parse_assignments
from phasezero.data.catalog import load_data
from phasezero.engine import stage
from phasezero.presets import preset
from phasezero.records.files import write_whole

FORMAT = "phasezero-engines-1"
SHORT = {
    "protocol.phase_sizes": [50],
    "training.first.epochs": 8,
    "training.first.milestones": [4, 6],
    "engine.precision": "fp16",
}


def short_run(engine: str, seed: int, settings: dict[str, Any]) -> RunConfig:
    config = preset("lucir+cwd/cifar100/b50s10").override({**SHORT, "engine.engine": engine, **settings})
    return replace(config, name=f"short/{engine}", seed=seed)


def compare(rows: list[dict[str, Any]], one: str, other: str) -> dict[str, float | None]:
    """Compare two engines: the differences other - one, seed by seed."""
    found = {(row["engine"], row["seed"]): row["accuracy"] for row in rows}
    seeds = sorted(seed for engine, seed in found if engine == one)
    differences = [found[other, seed] - found[one, seed] for seed in seeds]
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else None
    return {"mean_difference": mean(differences), "standard_error": error, "n": len(differences)}


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("--engines", default="eager,compiled")
    parser.add_argument("--seeds", type=arguments.numbers, default=list(range(8)))
    parser.add_argument("--set", action="append", default=[], help="key=value of every run, as YAML")
    wanted = parser.parse_args()
    stage.COMPILATION_PAYS = 0  # type: ignore[attr-defined]  # the loss is compiled, too, as in a long run
    settings, engines = parse_assignments(wanted.set), wanted.engines.split(",")
    data, rows = load_data("cifar100", wanted.root), []
    for seed, engine in product(wanted.seeds, engines):
        record = run(short_run(engine, seed, settings), data=data).record
        phase = record["phases"][0]
        rows.append(
            {
                "engine": engine,
                "seed": seed,
                "accuracy": phase["accuracy"]["head"],
                "loss": phase["loss"]["train"],
                "seconds": phase["seconds"]["total"],
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    report = {
        "format": FORMAT,
        "settings": SHORT | settings,
        "environment": record["environment"],
        "rows": rows,
        "differences": {f"{other} - {engines[0]}": compare(rows, engines[0], other) for other in engines[1:]},
    }
    write_whole(wanted.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
