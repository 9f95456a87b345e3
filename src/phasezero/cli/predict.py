"""`phasezero predict`: name the class of photos."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from phasezero.cli.options import Device, Model
from phasezero.cli.photos import check_readable
from phasezero.errors import UserError
from phasezero.steps import Steps
from phasezero.validation import no_formula, printable


def predict(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE...", help="Photos, or folders of photos.")],
    model: Model,
    top: Annotated[int, typer.Option(min=1, help="Show the K most probable classes.", metavar="K")] = 1,
    reject: Annotated[
        float | None,
        typer.Option(help="Answer `unknown` where this share of held-out photos would be rejected, such as 0.05."),
    ] = None,
    form: Annotated[Literal["table", "csv", "json"], typer.Option("--format", help="table, csv or json.")] = "table",
    device: Device = "auto",
) -> None:
    """Name the class of each photo, with its probability."""
    from phasezero.learner import Learner
    from phasezero.learner.labelled import images as photos_of
    from phasezero.learner.learner import UNKNOWN

    if missing := [path for path in images if not path.exists()]:
        raise UserError(f"{printable(str(missing[0]))}: no such file or folder")
    with Steps() as steps:
        items = [item for path in images for item in photos_of(path)]
        check_readable(items, steps)
        learner = Learner.load(model, device=device)
        learner.progress = steps
        limit = 0.0 if reject is None else learner.threshold(reject)
        found = learner.top(items, top)
    rows = [
        {
            "file": str(item),
            "class": UNKNOWN if best[0][1] < limit else best[0][0],
            "probability": best[0][1],
            "top": [{"class": name, "probability": share} for name, share in best],
        }
        for item, best in zip(items, found, strict=True)
    ]
    {"table": print_table, "csv": print_csv, "json": print_json}[form](rows, top)


def print_json(rows: Sequence[dict[str, Any]], top: int) -> None:
    tops = [[{**one, "probability": _digits(one["probability"])} for one in row["top"]] for row in rows]
    rounded = [
        {**row, "probability": _digits(row["probability"]), "top": best} for row, best in zip(rows, tops, strict=True)
    ]
    print(json.dumps(rounded, indent=1))


def print_csv(rows: Sequence[dict[str, Any]], top: int) -> None:
    """Print a line for each photo; the K most probable classes follow the answer if K is not 1."""
    places = range(1, min(top, len(rows[0]["top"])) + 1) if top > 1 else ()
    header = ["file", "class", "probability", *(f"{what}_{k}" for k in places for what in ("class", "probability"))]
    lines = [header]
    for row in rows:
        fields = [row["file"], row["class"], row["probability"]]
        fields += [value for k in places for value in row["top"][k - 1].values()]
        lines.append([_field(value) for value in fields])
    csv.writer(sys.stdout, lineterminator="\n").writerows(lines)


def _field(value: Any) -> str:
    return no_formula(printable(value)) if isinstance(value, str) else str(_digits(value))


def _digits(share: float) -> float:
    """Round a probability for a file. A table rounds the exact value, not this."""
    return round(share, 6)


def print_table(rows: Sequence[dict[str, Any]], top: int) -> None:
    files = [printable(row["file"]) for row in rows]
    width = max(map(len, files))
    for file, row in zip(files, rows, strict=True):
        shares = [f"{one['class']} {100 * one['probability']:.1f} %" for one in row["top"]]
        text = ", ".join(shares)
        print(printable(f"{file:<{width}}  {text if row['class'] == row['top'][0]['class'] else f'unknown ({text})'}"))
