"""`phasezero report`: finished runs as one page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from phasezero.errors import UserError
from phasezero.results.page import write_page
from phasezero.results.record import find_records, read_record

ANALYSIS = "analysis.json"


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Record files, or folders of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "phasezero report",
) -> None:
    """One self-contained HTML page of finished runs: curves, tables against the paper, confusion matrices."""
    paths = find_records(runs)
    records = [read_record(path) for path in paths]
    write_page(records, out, [read_analysis(path.parent / ANALYSIS) for path in paths], title=title)
    print(out)


def read_analysis(path: Path) -> dict[str, Any] | None:
    """What `phasezero analyze` left beside a record, if it did."""
    if not path.exists():
        return None
    try:
        analysis = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not an analysis to read ({error})") from error
    if not isinstance(analysis, dict):
        raise UserError(f"{path}: not an analysis (the file holds no JSON object)")
    return analysis
