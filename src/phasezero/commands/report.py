"""`phasezero report`: finished runs as one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from phasezero.analysis.record import Analysis, analysis_name, read_analysis
from phasezero.commands.options import refuse_folder, those_with, warn
from phasezero.errors import UserError
from phasezero.results.page import write_page
from phasezero.results.record import FILE_NAME, Record, load_records


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Record files, or folders of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "phasezero report",
) -> None:
    """One self-contained HTML page of finished runs: curves, tables against the paper, confusion matrices."""
    refuse_folder("--out", out)
    found = load_records(those_with(FILE_NAME, runs), warn)
    records = [record for _, record in found]
    write_page(records, out, [list(analyses_beside(path, record)) for path, record in found], title=title)
    print(out)


def analyses_beside(path: Path, record: Record) -> Iterator[Analysis]:
    """Those of this run, one a phase; a damaged one, a copy or another run's is left out aloud."""
    for beside in sorted(path.parent.glob(analysis_name("*"))):
        try:
            analysis = read_analysis(beside)
        except UserError as error:
            warn(f"{error}; left out")
            continue
        if (analysis["seed"], analysis["config"]) != (record["seed"], record["config"]):
            warn(f"{beside}: not of the run whose {path.name} lies beside it; left out")
        elif beside.name != (usual := analysis_name(analysis["phase"])):
            warn(f"{beside}: of phase {analysis['phase']}, so its name should be {usual}; left out")
        else:
            yield analysis
