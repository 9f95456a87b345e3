"""`phasezero report`: finished runs as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.analysis.record import analysis_name, read_analysis
from phasezero.commands.options import warn
from phasezero.results.page import write_page
from phasezero.results.record import load_records


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Record files, or folders of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "phasezero report",
) -> None:
    """One self-contained HTML page of finished runs: curves, tables against the paper, confusion matrices."""
    found = load_records(runs, warn)
    beside = [sorted(path.parent.glob(analysis_name("*"))) for path, _ in found]
    records = [record for _, record in found]
    write_page(records, out, [[read_analysis(file) for file in files] for files in beside], title=title)
    print(out)
