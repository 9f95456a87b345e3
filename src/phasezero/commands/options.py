"""What several commands read from their options."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from phasezero.bounds import whole_number
from phasezero.errors import UserError


def warn(message: str) -> None:
    """Beside what a command prints, which may be piped."""
    print(f"phasezero: warning: {message}", file=sys.stderr)


def refuse_empty(words: Sequence[str]) -> None:
    """Nothing is never meant: a folder that is named so would be the current one, and its variable was not set."""
    for before, word in zip(["phasezero", *words], words, strict=False):
        if not word or re.fullmatch(r"--[a-z-]+=", word):
            raise UserError(f"{word.rstrip('=') or before}: an empty word follows; is a variable not set?")


def refuse_folder(option: str, path: Path) -> None:
    """Where a file is to be written: said before the work, not after."""
    if path.is_dir():
        raise UserError(f"{option} {path}: that is a folder; name a file in it")


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
