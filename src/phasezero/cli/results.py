"""`phasezero results`: RESULTS.md from a folder of records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import check_file, warn
from phasezero.errors import UserError


def results(
    folder: Annotated[Path, typer.Argument(help="A folder with records at any depth.")] = Path("results"),
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; else printed.")] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Also draw the paper's figures, into FOLDER/figures.")
    ] = False,
) -> None:
    """Every cell of the paper beside the records in a folder: the gap, n, verified or why not."""
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
