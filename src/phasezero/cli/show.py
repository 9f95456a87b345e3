"""`phasezero show`: print a table of finished runs and draw their curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasezero.cli.options import Runs, check_file, load_torch, paths_with, warn
from phasezero.errors import UserError, unknown
from phasezero.steps import working

if TYPE_CHECKING:
    from phasezero.records.run import Record


def show(
    runs: Runs,
    head: Annotated[bool, typer.Option("--head", help="Use the head for all methods.")] = False,
    nearest_mean: Annotated[bool, typer.Option("--nearest-mean", help="Use the nearest mean for all.")] = False,
    form: Annotated[str, typer.Option("--format", help="terminal, markdown, latex or csv.")] = "terminal",
    figure: Annotated[Path | None, typer.Option(help="Draw accuracy curves to this .png, .svg or .pdf file.")] = None,
) -> None:
    """Print the accuracies of finished runs: iCaRL by its nearest-mean classifier, other methods by their head."""
    load_torch()
    from phasezero.identity import each_seed_once, group_by_identity
    from phasezero.records.run import FILE_NAME, load_records
    from phasezero.report.curves import draw_curves
    from phasezero.report.grid import FORMATS

    if head and nearest_mean:
        raise UserError("choose one of --head and --nearest-mean")
    if form not in FORMATS:
        raise unknown("table format", form, FORMATS)
    if figure is not None:
        check_file("--figure", figure)
    said: list[str] = []
    with working("reading records"):
        found = each_seed_once(load_records(paths_with(FILE_NAME, runs), said.append), said.append)
    for message in said:
        warn(message)
    records = [record for _, record in found]
    classifier = "nearest_mean" if nearest_mean else "head" if head else None
    if figure is not None:  # first, because its suffix may be wrong
        with working("drawing the curves"):
            draw_curves(group_by_identity(records), figure, classifier=classifier)
    print_results(records, classifier, form)


def print_results(records: Sequence[Record], classifier: str | None = None, form: str = "terminal") -> None:
    """Print the table of runs, and warnings about incomparable numbers (to stderr where the table may be piped)."""
    from rich.console import Console

    from phasezero.report.grid import print_grid
    from phasezero.report.tables import comparison_warnings, results_grid

    console = Console()
    print_grid(results_grid(records, classifier=classifier), form, console)
    for warning in comparison_warnings(records, classifier):
        if form == "terminal":
            console.print(f"warning: {warning}", markup=False, highlight=False)
        else:
            warn(warning)
