"""`phasezero show`: tables and a picture of finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasezero.cli.options import Runs, check_file, paths_with, warn
from phasezero.errors import UserError, unknown

if TYPE_CHECKING:
    from phasezero.records.run import Record


def show(
    runs: Runs,
    head: Annotated[bool, typer.Option("--head", help="The head's numbers for all methods.")] = False,
    nearest_mean: Annotated[bool, typer.Option("--nearest-mean", help="That classifier's for all.")] = False,
    form: Annotated[str, typer.Option("--format", help="terminal, markdown, latex, csv")] = "terminal",
    figure: Annotated[Path | None, typer.Option(help="Draw the curves: .png, .svg or .pdf.")] = None,
) -> None:
    """Tables (and a picture) of finished runs, by each method's own classifier: iCaRL's is the nearest mean."""
    from phasezero.identity import group_by_identity
    from phasezero.records.run import FILE_NAME, load_records
    from phasezero.report.curves import draw_curves
    from phasezero.report.grid import FORMATS

    if head and nearest_mean:
        raise UserError("choose one of --head and --nearest-mean")
    if form not in FORMATS:
        raise unknown("table format", form, FORMATS)
    if figure is not None:
        check_file("--figure", figure)
    records = [record for _, record in load_records(paths_with(FILE_NAME, runs), warn)]
    classifier = "nearest_mean" if nearest_mean else "head" if head else None
    if figure is not None:  # first: its name may be wrong
        draw_curves(group_by_identity(records), figure, classifier=classifier)
    print_results(records, classifier, form)


def print_results(records: Sequence[Record], classifier: str | None = None, form: str = "terminal") -> None:
    """Print the table of runs, and what makes their numbers incomparable: a text is piped without the warnings."""
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
