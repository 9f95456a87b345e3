"""`phasezero analyze`: what the models of finished runs have learned, as data, tables and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from phasezero.cli.options import Device, Root, Store, parse_numbers, paths_with, warn
from phasezero.errors import UserError

ABOUT_COMPUTING = ("root", "future", "floor", "store", "device")
"""Options that change nothing where nothing is computed."""


def analyze(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; with --read, of analyses.")],
    root: Root = None,
    phase: Annotated[
        list[int] | None, typer.Option(help="The model after this phase, else the last (--read: all); may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; else analyses go beside the records.")] = None,
    k: Annotated[str | None, typer.Option(help="Which alpha_k to compare: 1,2,5,10,20.")] = None,
    split: Annotated[Literal["train", "test"], typer.Option(help="Images of tables and figures.")] = "train",
    features: Annotated[Literal["raw", "unit"], typer.Option(help="Their features.")] = "raw",
    later: Annotated[bool, typer.Option("--later", help="Compare only the classes that came after phase 0.")] = False,
    future: Annotated[bool, typer.Option("--future", help="Look at the classes that are still to come, too.")] = False,
    floor: Annotated[float, typer.Option(help="Of eigenvalues, for the information proxy.")] = 1e-12,
    store: Store = None,
    device: Device = "auto",
    read: Annotated[
        bool, typer.Option("--read", help="Compute nothing: tables and figures of analyses that are there.")
    ] = False,
) -> None:
    """How the features of each class scatter in trained models, and how models compare in that."""
    from phasezero.analysis.study import analyse_runs
    from phasezero.records.analysis import analysis_name, find_analyses, read_analysis
    from phasezero.records.files import writable
    from phasezero.records.run import FILE_NAME, find_records
    from phasezero.report.analyses import show_analyses

    ks = sorted(parse_numbers("--k", k)) if k is not None else None
    if ks and ks[0] == 0:
        raise UserError(f"--k {k!r}: the first eigenvalue is number 1")
    if not 0 < floor < math.inf:
        raise UserError(f"--floor {floor:g}: must be above zero and finite")
    if read:
        check_read(context, phase or [])
    if missing := [path for path in runs if not path.exists()]:
        raise UserError(f"{missing[0]}: there is no such file or folder")
    runs = paths_with(analysis_name("*") if read else FILE_NAME, runs)
    paths = find_analyses(runs) if read else find_records(runs)
    if not read and (others := [path for path in paths if path.name != FILE_NAME]):
        raise UserError(f"{others[0]}: a run's folder is expected (or --read, for an analysis)")
    folders = [path.parent for path in paths]
    folder = out or Path(os.path.commonpath(folders))
    with writable(folder):
        if read:
            analyses = [one for one in map(read_analysis, paths) if not phase or one["phase"] in phase]
        else:
            options = {"root": root, "store": store, "device": device, "floor": floor, "future": future}
            analyses = list(analyse_runs(folders, phase or [-1], out, ks or (), **options))
        if not analyses:
            raise UserError(f"no analysis of phase {', '.join(map(str, phase or []))} is there")
        several = len(analyses) > len(set(folders))  # of a run; read, without --phase
        phases = sorted({one["phase"] for one in analyses}) if phase or several else []
        show_analyses(analyses, folder, split=split, form=features, later=later, phases=phases, ks=ks, warn=warn)


def check_read(context: typer.Context, phases: Sequence[int]) -> None:
    """Raise UserError for options that existing analyses cannot follow."""
    for name in ABOUT_COMPUTING:
        # Given by hand: the environment may name a store all the same.
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE":
            raise UserError(
                f"--{name} with --read: nothing is computed, so it would change nothing; leave out one of them"
            )
    if min(phases, default=0) < 0:
        raise UserError(f"--phase {min(phases)} with --read: name the phase itself, counted from 0")
