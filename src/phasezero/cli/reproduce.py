"""`phasezero reproduce`: reproduce a table or figure of the paper."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

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
)
from phasezero.steps import in_lines


def reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET...", help="table1, fig2, ... or all (default: list them).")
    ] = None,
    data: Annotated[str, typer.Option(help="Data set instead of the paper's: glyphs, cifar100, ...")] = "",
    method: Annotated[str, typer.Option(help="Only these methods: lucir, lucir+cwd or any METHOD[+TERM].")] = "",
    step: Annotated[str, typer.Option(help="Only these S, such as 10,5.")] = "",
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0,1,2 (default: as many as in the paper).")] = "",
    out: Annotated[Path, typer.Option(help="Output folder for runs, tables and figures.")] = Path("runs/reproduced"),
    records: Annotated[list[Path] | None, typer.Option(help="Also use records in this folder. Repeatable.")] = None,
    root: Root = None,
    store: Store = None,
    parallel: Parallel = "auto",
    time_limit: Annotated[str, typer.Option(help="Start no phase that would not finish within, say, 1h30m.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Train on glyphs for as many epochs as the presets.")] = False,
    allow_changes: AllowChanges = False,
    save_every: SaveEvery = 60,
    settings: Settings = None,
    tensorboard: TensorBoard = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Print each missing run with its time.")] = False,
) -> None:
    """Reproduce tables and figures of the paper. Repeat the command to continue after a stop."""
    from phasezero.paper.targets import TARGETS

    if not targets:
        for target in TARGETS.values():
            print(in_lines(f"{target.name:8}{target.title}", sys.stdout, " " * 8))
        return
    load_torch()
    from rich.console import Console

    from phasezero.config import parse_assignments
    from phasezero.engine.deadline import parse_duration
    from phasezero.paper.plan import Request
    from phasezero.paper.reproduce import reproduce as reproduce_targets
    from phasezero.runs.tensorboard import tensorboard_callbacks

    console = Console()
    left = reproduce_targets(
        Request(
            targets=tuple(targets),
            data=parse_words(data),
            seeds=parse_numbers("--seeds", seeds) if seeds else (),
            methods=parse_words(method),
            steps=parse_numbers("--step", step) if step else (),
            settings=parse_assignments(settings or []),
            full=full,
        ),
        out=out,
        records=records or [],
        root=root,
        store=store,
        parallel=parse_parallel(parallel),
        time_limit=parse_duration(time_limit) if time_limit else None,
        dry_run=dry_run,
        save_every=save_every,
        allow_changes=allow_changes,
        listed=listed,
        make_callback=tensorboard_callbacks(tensorboard) if tensorboard else None,
        console=console,
    )
    if left and not dry_run:
        console.print(f"time limit reached with {len(left)} runs left; repeat the command to continue")


def parse_words(text: str) -> tuple[str, ...]:
    """Parse words separated by commas; an empty text has no words."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
