"""Run thousands of bad inputs through the command and count what it does; see results/cpu/bad_inputs.json.

python tools/bad_inputs.py --count 3000 --out results/cpu/bad_inputs.json
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attempts import Outcome, run_case
from damage import KINDS

from phasezero import __version__
from phasezero.records.files import write_whole

FINE = ("rejected", "accepted")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", action="store_true", help="Print every input and its outcome.")
    given = parser.parse_args()
    started, counts, worst = time.monotonic(), Counter[tuple[str, str]](), list[Outcome]()
    for number in range(given.count):
        kind = given.kinds[number % len(given.kinds)]
        with tempfile.TemporaryDirectory() as folder:
            outcome = run_case(kind, Random(f"{given.seed} {number}"), Path(folder))
        counts[kind, outcome.result] += 1
        if given.show or outcome.result not in FINE:
            print(f"{number} {kind}: {outcome.case.what!r} {outcome.result}: {outcome.told}", flush=True)
            print(f"    {' '.join(outcome.case.arguments)[:300]!r}", flush=True)
        if outcome.result not in FINE:
            worst.append(outcome)
    by_kind = {
        kind: {result: count for (own, result), count in sorted(counts.items()) if own == kind} for kind in given.kinds
    }
    totals = Counter[str]()
    for own in by_kind.values():
        totals.update(own)
    report = {
        "format": "phasezero-bad-inputs-1",
        "phasezero": __version__,
        "python": platform.python_version(),
        "seed": given.seed,
        "inputs": given.count,
        "outcomes": dict(totals),
        "by_kind": by_kind,
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(report, indent=1))
    if given.out is not None:
        write_whole(given.out, json.dumps(report, indent=1) + "\n")
    return int(bool(worst))


if __name__ == "__main__":
    sys.exit(main())
