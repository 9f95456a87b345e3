"""`phasezero report`: finished runs as one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from phasezero.analysis.record import Analysis, analysis_name, read_analysis
from phasezero.commands.options import warn
from phasezero.errors import UserError
from phasezero.results.page import write_page
from phasezero.results.record import load_records


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Record files, or folders of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "phasezero report",
) -> None:
    """One self-contained HTML page of finished runs: curves, tables against the paper, confusion matrices."""
    found = load_records(runs, warn)
    records = [record for _, record in found]
    write_page(records, out, [list(analyses_beside(path)) for path, _ in found], title=title)
    print(out)


def analyses_beside(record: Path) -> Iterator[Analysis]:
    """The sound ones; a damaged one is left out aloud."""
    for path in sorted(record.parent.glob(analysis_name("*"))):
        try:
            yield read_analysis(path)
        except UserError as error:
            warn(f"{error}; left out")
