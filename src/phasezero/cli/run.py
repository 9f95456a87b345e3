"""`phasezero run`: train, phase by phase."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from phasezero.cli.options import Parallel, Root, Settings, Store, TensorBoard, parse_numbers, parse_parallel, warn
from phasezero.errors import UserError


def run(
    presets: Annotated[list[str] | None, typer.Argument(metavar="[PRESET]...")] = None,
    data: Annotated[str | None, typer.Option(help="glyphs, cifar100, imagenet100-cwd, folder:PATH, ...")] = None,
    method: Annotated[str | None, typer.Option(help="The method; see phasezero list.")] = None,
    initial: Annotated[
        list[str] | None, typer.Option(help="A phase-0 term with its weight, cwd:0.5; none; may be repeated.")
    ] = None,
    base: Annotated[int | None, typer.Option(help="B: classes of phase 0.")] = None,
    step: Annotated[int | None, typer.Option(help="S: classes of each later phase.")] = None,
    memory: Annotated[str | None, typer.Option(help="per_class:20 or total:2000.")] = None,
    class_order: Annotated[str | None, typer.Option(help="seed1993, natural, podnet-1, ...")] = None,
    seeds: Annotated[str | None, typer.Option(help="One run for each: 0,1,2; else the preset's, 0.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of every phase; milestones move with it.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32, tf32, bf16, fp16.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, eager, captured, compiled.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1.")] = None,
    root: Root = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; else runs/<date and time>.")] = None,
    config: Annotated[Path | None, typer.Option(help="A configuration as YAML, instead of a preset.")] = None,
    settings: Settings = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace records that are there.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue with what --out holds.")] = False,
    store: Store = None,
    keep_phases: Annotated[
        bool, typer.Option("--keep-phases", help="Keep a checkpoint of every phase, for phasezero analyze.")
    ] = False,
    parallel: Parallel = "auto",
    tensorboard: TensorBoard = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the configurations and stop.")] = False,
) -> None:
    """Train, phase by phase. Without a preset: LUCIR and LUCIR+CwD on the embedded glyphs."""
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
    jobs = [replace(one, seed=seed) for one in chosen for seed in numbers or [one.seed]]
    if resume and out is None:
        raise UserError("--resume continues in the folder that --out names; say which")
    if resume and overwrite:
        raise UserError("choose one of --resume, which keeps what is there, and --overwrite, which replaces it")
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
        )
    paths = session.paths | write_views(session.folder, session.records)
    print_results(session.records)
    for label, path in paths.items():
        Console(soft_wrap=True).print(f"{label:>8}: {path}", markup=False, highlight=False)
    for path, record in zip(session.paths.values(), session.records, strict=True) if keep_phases else ():
        if lost := lost_phases(path.parent, record):
            phases = ", ".join(map(str, lost))
            warn(f"{path.parent}: phase {phases} was finished without --keep-phases, so its state is gone")
