"""The files beside runs: a table, a picture and a page that `phasezero run` leaves, and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from phasezero.errors import UserError
from phasezero.identity import settings_of
from phasezero.records.analysis import Analysis, analysis_name, read_analysis
from phasezero.records.files import write_whole
from phasezero.records.run import Record
from phasezero.report.curves import draw_curves
from phasezero.report.page import write_page
from phasezero.report.tables import markdown_table

VIEWS = ("results.md", "curves.png", "report.html")


def write_views(folder: Path, records: Sequence[Record]) -> dict[str, Path]:
    """Write the views of these runs; return their paths by what they are."""
    if not records:
        return {}
    table, picture, page = (folder / name for name in VIEWS)
    write_whole(table, markdown_table(records))
    draw_curves(records, picture)
    write_page(records, page, title=f"phasezero: {folder.resolve().name}")
    return {"table": table, "picture": picture, "page": page}


def analyses_beside(path: Path, record: Record, warn: Callable[[str], None]) -> Iterator[Analysis]:
    """Yield the analyses beside a run's record; leave out, with a warning, what is damaged, a copy or another run's."""
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
