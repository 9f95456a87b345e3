"""Run committed CPU records again and compare them bit for bit: does this version give what an earlier one gave?

python tools/rerun_records.py results/cpu/rerun.json results/glyphs --seeds 0

Everything but clocks, versions and the machine is compared. Records agree only on the processor and the version of
torch that made them: others round differently. Each row of the report names a record and the fields that differ.
"""

from __future__ import annotations

import json
from pathlib import Path

import arguments

from phasezero import __version__
from phasezero.config import RunConfig, leaves
from phasezero.engine.device import processor_name
from phasezero.records.files import write_whole
from phasezero.records.run import comparable_part, find_records, read_record
from phasezero.runs.run import Job

FORMAT = "phasezero-rerun-1"


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seeds", type=arguments.numbers, default=[0])
    wanted = parser.parse_args()
    rows = []
    for path in find_records(wanted.folders):
        before = read_record(path)
        if before["environment"]["device"] != "cpu" or before["seed"] not in wanted.seeds:
            continue
        config = RunConfig.from_record(before["config"])
        after = Job(config, root=wanted.root).run().record
        before["config"] = config.to_dict()  # with the settings that it is too old to name
        found, made = (dict(leaves(comparable_part(one))) for one in (before, after))
        differ = sorted(key for key in found.keys() | made.keys() if found.get(key) != made.get(key))
        rows.append({"name": before["name"], "seed": before["seed"], "made_by": before["phasezero"], "differ": differ})
        print(json.dumps(rows[-1]), flush=True)
    if not rows:
        raise SystemExit("no record of a CPU run with these seeds")
    machine = {"phasezero": __version__, "torch": after["environment"]["torch"], "device_name": processor_name()}
    report = {"format": FORMAT, "environment": machine, "rows": rows}
    write_whole(wanted.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
