"""Errors. The command prints a `UserError` without a traceback and exits with code 2. Other exceptions are bugs."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

MOST_NAMED = 50  # in a message
LONGEST_NAME = 200


class UserError(ValueError):
    """Bad input: says what is wrong, where, and what to do.

    >>> from phasezero import UserError, preset
    >>> try:
    ...     preset("lucyr/glyphs/b50s10")
    ... except UserError as error:
    ...     print(error)
    unknown method 'lucyr'; did you mean 'lucir'?
    """


class DivergenceError(RuntimeError):
    """The loss became NaN or far too large, or all outputs of the network became equal."""


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name; it suggests the nearest known name."""
    choices, text = sorted(known), name if isinstance(name, str) else reprlib.repr(name)
    text = text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}..."
    if nearest := difflib.get_close_matches(text, choices, n=1, cutoff=0.5):
        hint = f"did you mean {nearest[0]!r}?"
    elif len(choices) > MOST_NAMED:
        hint = f"`phasezero list` shows all {len(choices)}"
    else:
        hint = f"known: {', '.join(choices) or 'none'}"
    return UserError(f"unknown {kind} {text!r}; {hint}")
