"""`phasezero verify`: train a phase of a finished run again and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import Root


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    phase: Annotated[int, typer.Option(min=0, help="The phase; above 0 for runs made with --keep-phases.")] = 0,
    root: Root = None,
) -> None:
    """Train a phase of a finished run again and compare it with the record; exit with 1 if it differs."""
    from rich.console import Console

    from phasezero.config import RunConfig
    from phasezero.data.catalog import load_data
    from phasezero.engine.setup import check
    from phasezero.records.run import read_record
    from phasezero.runs.progress import Display
    from phasezero.runs.verify import verify_run

    config = RunConfig.from_record(read_record(run)["config"])
    data = load_data(config.protocol.data, root)
    with Display(Console(), [config], [check(config, data)]) as display:
        found = verify_run(run, phase, data=data, callback=display.run(0))
    for text in found.conditions:
        print(f"other conditions: {text}")
    for text in found.differences:
        print(f"differs: {text}")
    if found.differences:
        print(f"phase {phase} differs from the record, by {found.points:+.2f} points of accuracy")
        raise typer.Exit(1)
    print(f"phase {phase} equals the record, bit for bit")
