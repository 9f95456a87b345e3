"""`phasezero results`: write RESULTS.md from a folder of records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import check_file, warn
from phasezero.errors import UserError


def results(
    folder: Annotated[Path, typer.Argument(help="Folder with records at any depth.")] = Path("results"),
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write (default: print).")] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also draw the paper's figures to FOLDER/figures.")
    ] = False,
) -> None:
    """Compare every cell of the paper's tables with the records in a folder: gap, n, and whether it is verified."""
    from phasezero.paper.results import write_results
    from phasezero.records.files import write_whole

    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder")
    if out is not None:
        check_file("--out", out)
    text = write_results(folder, out.parent if out else Path(), warn, figures=figures)
    if out is None:
        print(text, end="")
        return
    write_whole(out, text)
    print(out)
