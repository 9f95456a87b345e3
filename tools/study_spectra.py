"""Measure what the study of CwD does to the features of classes that come later.

python tools/study_spectra.py results/cpu/study_spectra_glyphs.json runs/reproduced

For each run of `phasezero reproduce study` with a frozen phase 0 (ncm): the share of variance of the first direction
(alpha_1) and the sum of log eigenvalues (the proxy of information), means over the classes after phase 0, with unit
features of training images.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import arguments

from phasezero.analysis.measure import analyse_run
from phasezero.identity import cwd_weight
from phasezero.records.files import write_whole
from phasezero.records.run import find_records, read_record

FORMAT = "phasezero-study-spectra-1"


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("folder", type=Path)
    wanted = parser.parse_args()
    rows = []
    for path in find_records([wanted.folder]):
        record = read_record(path)
        if record["method"] != "ncm":
            continue
        analysis = analyse_run(path.parent, phase=len(record["phases"]) - 1, root=wanted.root)
        later, unit = slice(analysis["phase_sizes"][0], None), analysis["train"]["unit"]
        first = analysis["k"].index(1)
        facts = {"epochs": record["config"]["training"]["first"]["epochs"], "eta": cwd_weight(record)}
        alpha = fmean(by_k[first] for by_k in unit["alpha"][later])
        information = fmean(unit["information"]["by_class"][later])
        row = {**facts, "seed": record["seed"], "alpha_1": round(alpha, 4), "information": round(information, 1)}
        rows.append(row)
        print(json.dumps(row), flush=True)
    rows.sort(key=lambda row: (row["epochs"], row["eta"], row["seed"]))
    lines = ",\n  ".join(map(json.dumps, rows))
    write_whole(wanted.out, f'{{\n "format": "{FORMAT}",\n "rows": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
