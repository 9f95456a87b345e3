"""A time by which to have stopped: runs ask before they start, and after each phase before they continue."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from phasezero.errors import UserError


class OutOfTimeError(Exception):
    """A run was stopped, or not started, for lack of time. What it had finished is in its checkpoint."""


@dataclass(frozen=True)
class Deadline:
    at: float
    clock: Callable[[], float] = time.time  # of the day: the same in every process of the machine

    def allows(self, seconds: float) -> bool:
        """Tell whether something that takes so long would be finished in time."""
        return self.clock() + seconds <= self.at


def parse_duration(text: str) -> float:
    """Return the seconds that a text such as `30m`, `1h30m` or `90s` means."""
    found = re.fullmatch(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", text)
    if not found or not text:
        raise UserError(f"duration {text!r}: write hours, minutes, seconds, such as 30m, 1h30m or 90s")
    hours, minutes, seconds = (int(count or 0) for count in found.groups())
    return float(3600 * hours + 60 * minutes + seconds)
