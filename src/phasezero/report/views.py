"""The files that `phasezero run` writes next to its runs: a table, a figure and an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phasezero.identity import group_by_identity
from phasezero.records.files import write_whole
from phasezero.records.run import Record
from phasezero.report.curves import draw_curves
from phasezero.report.grid import markdown
from phasezero.report.page import write_page
from phasezero.report.tables import results_grid

VIEWS = ("results.md", "curves.png", "report.html")


def write_views(folder: Path, records: Sequence[Record]) -> dict[str, Path]:
    """Write the views of these runs; return their paths by label."""
    if not records:
        return {}
    table, picture, page = (folder / name for name in VIEWS)
    write_whole(table, markdown(results_grid(records)))
    draw_curves(group_by_identity(records), picture)
    write_page(records, page, title=f"phasezero: {folder.resolve().name}")
    return {"table": table, "picture": picture, "page": page}
