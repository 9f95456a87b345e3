"""Summarise the records of many runs in one small file: name, seed, accuracies and seconds of each run.

python tools/summarise_records.py results/cpu/study_glyphs.json runs/reproduced

For runs whose records are not kept because a command makes them again.
"""

from __future__ import annotations

import json
from pathlib import Path

import arguments

from phasezero.methods import classifier_of
from phasezero.records.files import write_whole
from phasezero.records.run import find_records, read_record
from phasezero.report.tables import computing_seconds

FORMAT = "phasezero-summary-1"


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    wanted = parser.parse_args()
    rows, machines = [], dict[str, None]()
    for path in find_records(wanted.folders):
        record = read_record(path)
        metrics = record["summary"].get(classifier_of(record["method"])) or record["summary"]["head"]
        machine = {key: record["environment"][key] for key in ("phasezero", "torch", "device_name", "precision")}
        machines[json.dumps(machine)] = None
        first = record["phases"][0]["accuracy"]["head"]
        numbers = [metrics["average_incremental_accuracy"], metrics["last_accuracy"], first, computing_seconds(record)]
        average, last, start, seconds = (round(number, 6) for number in numbers)
        row = {"name": record["name"], "seed": record["seed"], "average": average, "last": last}
        rows.append({**row, "phase_0": start, "seconds": seconds})
    lines = ",\n  ".join(map(json.dumps, rows))
    text = f'{{\n "format": "{FORMAT}",\n "environments": [{", ".join(machines)}],\n "rows": [\n  {lines}\n ]\n}}\n'
    write_whole(wanted.out, text)


if __name__ == "__main__":
    main()
