"""`phasezero report`: write an HTML page of finished runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import Runs, check_file, load_torch, paths_with, warn
from phasezero.steps import working


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "phasezero report",
) -> None:
    """Write a self-contained HTML page of finished runs: results beside the paper, curves, confusion matrices."""
    load_torch()
    from phasezero.identity import each_seed_once
    from phasezero.records.run import FILE_NAME, load_records
    from phasezero.report.page import analyses_beside, write_page

    check_file("--out", out)
    repeated: list[str] = []
    said: list[str] = []
    with working("reading records"):
        found = each_seed_once(load_records(paths_with(FILE_NAME, runs), said.append), repeated.append)
        analyses = [list(analyses_beside(path, record, said.append)) for path, record in found]
    for message in said + repeated:
        warn(message)
    with working("writing the page"):
        write_page([record for _, record in found], out, analyses, title=title, repeated=repeated)
    print(out)
