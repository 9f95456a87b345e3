"""The one exception that is meant for people.

Anything a user can get wrong (a name, a path, a number that does not fit) raises `UserError`; the command
prints its message without a traceback and exits with code 2. Whatever else escapes is a fault of ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_NAMED = 50  # in a message


class UserError(ValueError):
    """Bad input: says what was wrong, where, and what to do."""


def unknown(kind: str, name: object, known: Iterable[str]) -> UserError:
    """The error for a name nobody knows, with the nearest one that somebody does."""
    choices = sorted(known)
    if nearest := difflib.get_close_matches(str(name), choices, n=1, cutoff=0.5):
        hint = f"did you mean {nearest[0]!r}?"
    elif len(choices) > MOST_NAMED:  # presets
        hint = f"`phasezero list` names the {len(choices)} there are"
    else:
        hint = f"known: {', '.join(choices) or 'none'}"
    return UserError(f"unknown {kind} {str(name)!r}; {hint}")
