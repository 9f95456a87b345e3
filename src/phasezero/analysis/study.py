"""Analyses of many runs: of existing runs, or of a study that trains missing runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from phasezero.analysis.measure import DEFAULT_K, analyse_run, phase_of
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.presets import with_name
from phasezero.records.analysis import Analysis, analysis_name, read_analysis, write_analysis
from phasezero.records.files import slug
from phasezero.records.run import read_record
from phasezero.runs.session import run_all, run_folder


def nested_configs(config: RunConfig, sizes: Sequence[int]) -> list[RunConfig]:
    """Return phase 0 alone, on the first 10, 25, ... classes of a class order: the paper's nested models (Sec. 3.2)."""
    protocols = [replace(config.protocol, phase_sizes=(size,)) for size in sizes]
    return [with_name(replace(config, protocol=protocol)) for protocol in protocols]


def study(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    phases: Sequence[int] = (-1,),
    root: Path | None = None,
    store: Path | None = None,
    parallel: int | None = None,
    future: bool = False,
    console: Console | None = None,
) -> list[Analysis]:
    """Train and analyse what is missing in `out`; phase -1 is the last phase of a run.

    Analyses are written next to the records, as `phasezero run --out` writes them. A stopped study continues.
    """
    keep = set(phases) != {-1}
    written = run_all(
        configs, root=root, out=out, resume=True, store=store, keep_phases=keep, parallel=parallel, console=console
    )
    analyses = []
    for config, record in zip(configs, written.records, strict=True):
        folder, looked_at = run_folder(out, config), record["data"]["classes"] if future else 0
        for phase in phases:
            path = folder / analysis_name(phase % len(record["phases"]))
            found = read_analysis(path) if path.exists() else None
            if found is None or len(found["classes"]) < looked_at:
                found = analyse_run(folder, phase=phase, root=root, store=store, future=future)
                write_analysis(path, found)
            analyses.append(found)
    return analyses


def analyse_runs(
    folders: Iterable[Path], phases: Sequence[int], out: Path | None, ks: Sequence[int], **options: Any
) -> Iterator[Analysis]:
    """Yield the analyses of each run, each written to a file next to its record or by its name under `out`.

    `ks` are measured in addition to the usual k. The other options are those of `analyse_run`. What can be checked is
    checked before the first analysis.
    """
    planned: dict[Path, tuple[Path, int]] = {}
    for folder, wanted in product(folders, phases):
        record = read_record(folder)
        phase = phase_of(record, wanted, folder)
        place = out / slug(record["name"]) / f"seed{record['seed']}" if out else folder
        path = place / analysis_name(phase)
        if planned.setdefault(path, (folder, phase)) != (folder, phase):
            raise UserError(f"{folder} and {planned[path][0]} would both write {path}; analyse them separately")
    for path, (folder, phase) in planned.items():
        analysis = analyse_run(folder, phase=phase, ks=(*DEFAULT_K, *ks), **options)
        write_analysis(path, analysis)
        yield analysis
