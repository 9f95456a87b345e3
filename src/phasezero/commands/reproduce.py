"""`phasezero reproduce`: a table or figure of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from phasezero.board import boards
from phasezero.commands.options import parse_numbers, parse_parallel, parse_words
from phasezero.config import parse_assignments
from phasezero.engine.deadline import parse_duration
from phasezero.reproduce import conduct
from phasezero.reproduce.plan import Filters
from phasezero.reproduce.targets import TARGETS


def reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET...", help="table1, fig2, ...; all.")
    ] = None,
    data: Annotated[str, typer.Option(help="Instead of the paper's data: glyphs, cifar100, ...")] = "",
    method: Annotated[str, typer.Option(help="Only these: lucir, lucir+cwd, ...")] = "",
    step: Annotated[str, typer.Option(help="Only these S: 10,5.")] = "",
    seeds: Annotated[str, typer.Option(help="0,1,2; else as many as the paper's.")] = "",
    out: Annotated[Path, typer.Option(help="Where runs, tables and figures go.")] = Path("runs/reproduced"),
    records: Annotated[
        list[Path] | None, typer.Option(help="Further folders of records to take runs from; may be repeated.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; else $PHASEZERO_DATA, ./data.")
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(help="Finished phase-0 states; else phase0 in --out.", envvar="PHASEZERO_STORE"),
    ] = None,
    parallel: Annotated[
        str, typer.Option(help="Runs at once; auto: as many as the device carries.")
    ] = "auto",
    time_limit: Annotated[str, typer.Option(help="30m, 1h30m: start no phase that would not fit.")] = "",
    full: Annotated[bool, typer.Option("--full", help="Train glyphs as long as their presets say.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any field of every run.")
    ] = None,
    tensorboard: Annotated[Path | None, typer.Option(help="Write TensorBoard's files here.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
) -> None:
    """Tables and figures of the paper, beside its numbers. The same command goes on where it stopped."""
    if not targets:
        for target in TARGETS.values():
            print(f"{target.name:8}{target.title}")
        return
    console = Console()
    left = conduct.reproduce(
        conduct.Wish(
            targets=tuple(targets),
            data=parse_words(data),
            seeds=parse_numbers("--seeds", seeds) if seeds else (),
            filters=Filters(parse_words(method), parse_numbers("--step", step) if step else ()),
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
        watch=boards(tensorboard) if tensorboard else None,
        console=console,
    )
    if left and not dry_run:
        console.print(f"{len(left)} runs are left for lack of time; the same command goes on with them")
