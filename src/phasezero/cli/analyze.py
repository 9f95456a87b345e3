"""`phasezero analyze`: feature statistics of trained models, as data, tables and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from phasezero.cli.options import Device, Root, Store, load_torch, parse_numbers, paths_with, warn
from phasezero.errors import UserError
from phasezero.steps import Steps

ABOUT_COMPUTING = ("root", "future", "floor", "store", "device")
"""Options of the computation, which --read rejects."""


def analyze(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of analyses with --read.")],
    root: Root = None,
    phase: Annotated[
        list[int] | None, typer.Option(help="The model after this phase (default: last; all with --read). Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output folder (default: next to the records).")] = None,
    k: Annotated[str | None, typer.Option(help="Compare alpha_k for these k, such as 1,2,5.")] = None,
    split: Annotated[Literal["train", "test"], typer.Option(help="Images that tables and figures use.")] = "train",
    features: Annotated[Literal["raw", "unit"], typer.Option(help="Raw or unit-length features.")] = "raw",
    later: Annotated[bool, typer.Option("--later", help="Compare only classes that came after phase 0.")] = False,
    future: Annotated[bool, typer.Option("--future", help="Also measure classes of later phases.")] = False,
    floor: Annotated[float, typer.Option(help="Smallest eigenvalue in the information proxy.")] = 1e-12,
    store: Store = None,
    device: Device = "auto",
    read: Annotated[bool, typer.Option("--read", help="Show existing analyses; compute nothing.")] = False,
) -> None:
    """Measure how the features of each class scatter in trained models, and compare models."""
    load_torch()
    from phasezero.analysis.study import analyse_runs
    from phasezero.identity import each_seed_once
    from phasezero.records.analysis import analysis_name, find_analyses, read_analysis
    from phasezero.records.files import writable
    from phasezero.records.run import FILE_NAME, find_records, read_record
    from phasezero.report.analyses import show_analyses

    ks = sorted(parse_numbers("--k", k)) if k is not None else None
    if ks and ks[0] == 0:
        raise UserError(f"--k {k!r}: the first eigenvalue is number 1")
    if not 0 < floor < math.inf:
        raise UserError(f"--floor {floor:g}: must be above zero and finite")
    if read:
        check_read(context, phase or [])
    if missing := [path for path in runs if not path.exists()]:
        raise UserError(f"{missing[0]}: no such file or folder")
    runs = paths_with(analysis_name("*") if read else FILE_NAME, runs)
    paths = find_analyses(runs) if read else find_records(runs)
    if not read and (others := [path for path in paths if path.name != FILE_NAME]):
        raise UserError(f"{others[0]}: a run's folder is expected (or --read, for an analysis)")
    if read:
        known = each_seed_once(((path, read_analysis(path)) for path in paths), warn)
        folders = [path.parent for path, _ in known]
    else:
        folders = [path.parent for path, _ in each_seed_once(((path, read_record(path)) for path in paths), warn)]
    folder = out or Path(os.path.commonpath(folders))
    with writable(folder):
        if read:
            analyses = [found for _, found in known if not phase or found["phase"] in phase]
        else:
            options = {"root": root, "store": store, "device": device, "floor": floor, "future": future}
            with Steps() as steps:
                analyses = list(analyse_runs(folders, phase or [-1], out, ks or (), progress=steps, **options))
        if not analyses:
            raise UserError(f"no analysis of phase {', '.join(map(str, phase or []))} found")
        several = len(analyses) > len(set(folders))  # --read without --phase: several phases of a run
        phases = sorted({found["phase"] for found in analyses}) if phase or several else []
        show_analyses(analyses, folder, split=split, form=features, later=later, phases=phases, ks=ks, warn=warn)


def check_read(context: typer.Context, phases: Sequence[int]) -> None:
    """Raise UserError for options that do not apply to existing analyses."""
    for name in ABOUT_COMPUTING:
        # Only options on the command line: the environment may name a store.
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE":
            raise UserError(f"--{name} has no effect with --read, which computes nothing; leave one of them out")
    if min(phases, default=0) < 0:
        raise UserError(f"--phase {min(phases)} with --read: name the phase itself, counted from 0")
