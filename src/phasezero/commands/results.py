"""`phasezero results`: RESULTS.md from a folder of records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from phasezero.commands.options import warn
from phasezero.errors import UserError
from phasezero.reproduce.illustrate import draw_figures
from phasezero.reproduce.ledger import read_results, write_results
from phasezero.results.files import write_whole
from phasezero.session import writable


def results(
    folder: Annotated[Path, typer.Argument(help="A folder with records at any depth.")] = Path("results"),
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; else printed.")] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also draw the claims' figures, into FOLDER/figures.")
    ] = False,
) -> None:
    """Every cell of the paper beside the records in a folder: the gap, n, verified or why not."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder")
    if figures:
        with writable(folder):
            drawn = draw_figures(folder, read_results(folder, warn)[0])
        for path in drawn:
            print(f"wrote {path}", file=sys.stderr)
    text = write_results(folder, out.parent if out else Path(), warn)
    if out is None:
        print(text, end="")
        return
    write_whole(out, text)
