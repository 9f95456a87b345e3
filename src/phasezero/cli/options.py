"""Options that several commands share, and their parsers."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from phasezero.errors import UserError
from phasezero.steps import in_lines, working
from phasezero.validation import check_printable, whole_number

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Record files, or folders of runs.")]
Root = Annotated[Path | None, typer.Option(help="Folder of data sets (default: $PHASEZERO_DATA or ./data).")]
Store = Annotated[
    Path | None, typer.Option(help="Folder that stores and shares finished phase-0 states.", envvar="PHASEZERO_STORE")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a field: training.first.lr=0.2. Repeatable.")
]
Parallel = Annotated[str, typer.Option(help="Number of parallel runs; auto fits the cores or the GPU.")]
TensorBoard = Annotated[Path | None, typer.Option(help="Write TensorBoard logs to this folder.")]
SaveEvery = Annotated[float, typer.Option(min=0, help="Seconds after which the state of training is saved again.")]
AllowChanges = Annotated[
    bool, typer.Option("--allow-changes", help="Continue with other versions, device, precision or threads.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Model = Annotated[Path, typer.Option("--model", "-m", help="Folder of the model.")]
Photos = Annotated[Path, typer.Argument(metavar="PHOTOS", help="Folder with a folder of photos for each class.")]

VIEWS = ("*.png", "*.svg", "*.pdf", "*-caption.txt", "*.md", "*.html", "*.csv", "*.tex", "comparison*.json")
"""Files that commands make from runs and write next to them."""


def warn(message: str) -> None:
    """Print a warning to stderr, because stdout may be piped."""
    print(in_lines(f"phasezero: warning: {message}", sys.stderr), file=sys.stderr)


def load_torch() -> None:
    """Import torch, which takes seconds, and say so on a terminal."""
    with working("starting"):
        import torch  # noqa: F401


def check_empty(words: Sequence[str]) -> None:
    """Raise UserError for an empty argument, which as a path would mean the current folder."""
    for before, word in zip(["phasezero", *words], words, strict=False):
        if not word or re.fullmatch(r"--[a-z-]+=", word):
            raise UserError(f"{word.rstrip('=') or before}: empty argument (unset shell variable?)")


def counted(count: int, word: str) -> str:
    """Return `1 photo`, `2 photos` or `2 classes`."""
    return f"{count:,} {word if count == 1 else word + ('es' if word.endswith('s') else 's')}"


def check_file(option: str, path: Path) -> None:
    """Raise UserError for an output file that is a folder or cannot be printed, before any work is done."""
    check_printable(option, str(path))
    if path.is_dir():
        raise UserError(f"{option} {path}: this is a folder; name a file in it")


def paths_with(pattern: str, paths: Sequence[Path]) -> list[Path]:
    """Return the paths that can contain a file of this name.

    A shell expands `runs/*` to everything in the folder. Figures and tables that commands write next to runs are
    skipped. Folders of stopped runs are left out with a warning.
    """
    empty = [path for path in paths if path.is_dir() and next(path.rglob(pattern), None) is None]
    views = [path for path in paths if path.is_file() and any(map(path.match, VIEWS))]
    kept = [path for path in paths if path not in empty + views]
    if not kept:
        return list(paths)
    for path in empty:
        warn(f"{path}: no {pattern} in this folder or below it; left out")
    return kept


def parse_parallel(text: str) -> int | None:
    """Parse `auto` (None) or a number of runs."""
    if text == "auto":
        return None
    count = whole_number(text)
    if not count:
        raise UserError(f"--parallel {text!r}: write auto or a number of runs")
    return count


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Parse distinct whole numbers separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    numbers = tuple(number for part in parts if (number := whole_number(part)) is not None)
    if len(numbers) != len(parts):
        raise UserError(f"{option} {text!r}: write whole numbers separated by commas, such as 0,1,2")
    if len(set(numbers)) != len(numbers):
        raise UserError(f"{option} {text!r}: a number is given twice")
    return numbers
