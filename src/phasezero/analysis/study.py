"""A study: runs trained through the ordinary session, and the analyses of their models beside their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from phasezero.analysis.measure import analyse_run
from phasezero.analysis.record import Analysis, analysis_name, read_analysis, write_analysis
from phasezero.config import RunConfig
from phasezero.presets import standard_name
from phasezero.session import run_all, run_folder


def nested_configs(config: RunConfig, sizes: Sequence[int]) -> list[RunConfig]:
    """Phase 0 alone, of the first 10, 25, ... classes of one class order: the paper's nested models (Sec. 3.2).

    Names have the terms' weights in them (`lucir+cwd:0.5/cifar100/sizes10`), so that studies of eta can share a
    folder.
    """
    protocols = [replace(config.protocol, phase_sizes=(size,)) for size in sizes]
    cut = [replace(config, protocol=protocol) for protocol in protocols]
    return [replace(one, name=_weighted_name(one)) for one in cut]


def _weighted_name(config: RunConfig) -> str:
    method, _, rest = standard_name(config).partition("/")
    return "+".join([method.partition("+")[0], *(term.label for term in config.initial)]) + f"/{rest}"


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
    """Trains what is not trained yet and analyses what is not analysed yet; phase -1 is a run's last.

    Everything is in `out`, as `phasezero run --out` leaves it, with the analyses beside the records. What is
    there is taken as it is, so a stopped study goes on.
    """
    keep = set(phases) != {-1}
    written = run_all(
        configs,
        root=root,
        out=out,
        resume=True,
        store=store,
        keep_phases=keep,
        parallel=parallel,
        console=console,
    )
    analyses = []
    for config, record in zip(configs, written.records, strict=True):
        folder = run_folder(out, config)
        for phase in phases:
            path = folder / analysis_name(phase % len(record["phases"]))
            looked_at = record["data"]["classes"] if future else 0
            if not path.exists() or len(read_analysis(path)["classes"]) < looked_at:
                made = analyse_run(folder, phase=phase, root=root, store=store, future=future)
                write_analysis(path, made)
            analyses.append(read_analysis(path))
    return analyses
