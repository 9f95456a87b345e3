"""`phasezero run`: train phase by phase."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from phasezero.cli.options import (
    AllowChanges,
    Parallel,
    Root,
    SaveEvery,
    Settings,
    Store,
    TensorBoard,
    load_torch,
    parse_numbers,
    parse_parallel,
    warn,
)
from phasezero.errors import UserError
from phasezero.steps import working


def run(
    presets: Annotated[
        list[str] | None, typer.Argument(metavar="[PRESET]...", help="E.g. lucir+cwd/glyphs/b50s10.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Data set: glyphs, cifar100, folder:PATH, ...")] = None,
    method: Annotated[str | None, typer.Option(help="Method; see phasezero list.")] = None,
    initial: Annotated[
        list[str] | None, typer.Option(help="Phase-0 strategy: augment, cwd:0.5, ... or none. Repeatable.")
    ] = None,
    base: Annotated[int | None, typer.Option(help="B: number of classes in phase 0.")] = None,
    step: Annotated[int | None, typer.Option(help="S: number of classes in each later phase.")] = None,
    memory: Annotated[str | None, typer.Option(help="Exemplars to keep: per_class:20 or total:2000.")] = None,
    class_order: Annotated[str | None, typer.Option(help="Class order: seed1993, natural, podnet-1, ...")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds of the runs: 0,1,2 (default: the preset's).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of every phase; milestones scale with them.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32, tf32, bf16, fp16.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, eager, captured, compiled.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    root: Root = None,
    out: Annotated[Path | None, typer.Option(help="Output folder (default: runs/<date and time>).")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML configuration to use instead of a preset.")] = None,
    settings: Settings = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing records.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the stopped runs in --out.")] = False,
    allow_changes: AllowChanges = False,
    save_every: SaveEvery = 60,
    store: Store = None,
    keep_phases: Annotated[bool, typer.Option("--keep-phases", help="Keep a checkpoint of every phase.")] = False,
    parallel: Parallel = "auto",
    tensorboard: TensorBoard = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the configurations and stop.")] = False,
) -> None:
    """Train phase by phase; without arguments, a first comparison on the embedded glyphs."""
    load_torch()
    from dataclasses import replace

    from rich.console import Console

    from phasezero.cli.show import print_results
    from phasezero.config import parse_assignments
    from phasezero.presets import choose_configs
    from phasezero.records.files import writable
    from phasezero.report.views import VIEWS, write_views
    from phasezero.runs.session import lost_phases, run_all
    from phasezero.runs.tensorboard import tensorboard_callbacks

    named = {
        "protocol.memory": memory,
        "protocol.class_order": class_order,
        "protocol.base": base,
        "protocol.step": step,
        "engine.precision": precision,
        "engine.engine": engine,
        "engine.device": device,
        "epochs": epochs,
    }
    assignments: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    assignments |= parse_assignments(settings or [])
    chosen = choose_configs(presets or [], config, data, method, initial or [], assignments)
    numbers = parse_numbers("--seeds", seeds) if seeds is not None else None
    jobs = [replace(job, seed=seed) for job in chosen for seed in numbers or [job.seed]]
    if resume and out is None:
        raise UserError("--resume needs --out, the folder of the runs to continue")
    if resume and overwrite:
        raise UserError("--resume keeps existing runs and --overwrite replaces them; choose one of the two")
    if dry_run:
        print("---\n".join(job.to_yaml() for job in jobs), end="")
        return
    callbacks = tensorboard_callbacks(tensorboard) if tensorboard else None
    with writable(tensorboard, "--tensorboard"):
        session = run_all(
            jobs,
            root=root,
            out=out,
            overwrite=overwrite,
            resume=resume,
            store=store,
            keep_phases=keep_phases,
            parallel=parse_parallel(parallel),
            console=Console(),
            make_callback=callbacks,
            views=VIEWS,
            save_every=save_every,
            allow_changes=allow_changes,
        )
    with working("drawing the curves and the page"):
        views = write_views(session.folder, session.records)
    print_results(session.records)
    found = [*session.paths.values()]
    label, place = ("record", found[0]) if len(found) == 1 else (f"{len(found)} records", session.folder)
    for name, path in ({label: place} | views).items():
        Console(soft_wrap=True).print(f"{name:>{max(len(label), 7)}}: {path}", markup=False, highlight=False)
    for path, record in zip(session.paths.values(), session.records, strict=True) if keep_phases else ():
        if lost := lost_phases(path.parent, record):
            phases = ", ".join(map(str, lost))
            warn(f"{path.parent}: phase {phases} was finished without --keep-phases, so its state is gone")
