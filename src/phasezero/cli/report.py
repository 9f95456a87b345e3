"""`phasezero report`: finished runs as one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasezero.cli.options import Runs, check_file, paths_with, warn
from phasezero.errors import UserError

if TYPE_CHECKING:
    from phasezero.records.analysis import Analysis
    from phasezero.records.run import Record


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "phasezero report",
) -> None:
    """One self-contained HTML page of finished runs: curves, tables against the paper, confusion matrices."""
    from phasezero.records.run import FILE_NAME, load_records
    from phasezero.report.page import write_page

    check_file("--out", out)
    found = load_records(paths_with(FILE_NAME, runs), warn)
    records = [record for _, record in found]
    write_page(records, out, [list(analyses_beside(path, record)) for path, record in found], title=title)
    print(out)


def analyses_beside(path: Path, record: Record) -> Iterator[Analysis]:
    """Yield the analyses of this run, one a phase; leave out a damaged one, a copy or another run's with a warning."""
    from phasezero.identity import settings_of
    from phasezero.records.analysis import analysis_name, read_analysis

    for beside in sorted(path.parent.glob(analysis_name("*"))):
        try:
            analysis = read_analysis(beside)
        except UserError as error:
            warn(f"{error}; left out")
            continue
        own, its = ((one["seed"], settings_of(one["config"])) for one in (record, analysis))
        if own != its:
            warn(f"{beside}: not of the run whose {path.name} lies beside it; left out")
        elif beside.name != (usual := analysis_name(analysis["phase"])):
            warn(f"{beside}: of phase {analysis['phase']}, so its name should be {usual}; left out")
        else:
            yield analysis
