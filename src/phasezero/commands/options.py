"""What several commands read from their options."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from phasezero.bounds import whole_number
from phasezero.errors import UserError
from phasezero.results.jsonfile import read_json

VIEW_ENDINGS = frozenset({".png", ".svg", ".pdf", ".md", ".html", ".csv", ".tex"})
"""Of what commands make of runs and leave beside them."""


def warn(message: str) -> None:
    """Beside what a command prints, which may be piped."""
    print(f"phasezero: warning: {message}", file=sys.stderr)


def refuse_empty(words: Sequence[str]) -> None:
    """Nobody means one: a folder so named would be the current one, where a shell's variable was not set."""
    for before, word in zip(["phasezero", *words], words, strict=False):
        if not word or re.fullmatch(r"--[a-z-]+=", word):
            raise UserError(f"{word.rstrip('=') or before}: an empty word follows; is a variable not set?")


def refuse_folder(option: str, path: Path) -> None:
    """Where a file is to be written: said before the work, not after."""
    if path.is_dir():
        raise UserError(f"{option} {path}: that is a folder; name a file in it")


def those_with(pattern: str, paths: Sequence[Path]) -> list[Path]:
    """Of several paths those that may hold a file so named. A shell writes `runs/*` out as all that lies there:
    pictures and tables, which commands leave beside runs, are passed over, and stopped runs are missed aloud."""
    empty = [path for path in paths if path.is_dir() and next(path.rglob(pattern), None) is None]
    kept = [path for path in paths if path not in empty and not (path.is_file() and _is_a_view(path))]
    if not kept:
        return list(paths)
    for path in empty:
        warn(f"{path}: no {pattern} in this folder or below it; left out")
    return kept


def _is_a_view(path: Path) -> bool:
    """Of runs, made by another command. What is damaged may be anything."""
    if path.suffix in VIEW_ENDINGS:
        return True
    try:
        return str(read_json(path, "record").get("format")).startswith("phasezero-comparison-")
    except UserError:
        return False


def parse_parallel(text: str) -> int | None:
    if text == "auto":
        return None
    count = whole_number(text)
    if not count:
        raise UserError(f"--parallel {text!r}: say auto, or how many runs at once")
    return count


def parse_words(text: str) -> tuple[str, ...]:
    """`a,b`: a list; empty for none."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """`0,1,2`: different numbers, at least one."""
    parts = [part.strip() for part in text.split(",")]
    numbers = tuple(number for part in parts if (number := whole_number(part)) is not None)
    if len(numbers) != len(parts):
        raise UserError(f"{option} {text!r}: write whole numbers separated by commas, such as 0,1,2")
    if len(set(numbers)) != len(numbers):
        raise UserError(f"{option} {text!r}: a number is named twice")
    return numbers
