"""A time by which to have stopped: runs ask before they start, and after each phase before they continue."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from phasezero.errors import UserError

_UNITS = {"h": 3600, "m": 60, "s": 1}


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
    if not re.fullmatch(r"([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?", text) or not text:
        raise UserError(f"duration {text!r}: write hours, minutes, seconds, such as 30m, 1h30m or 90s")
    return float(sum(int(count) * _UNITS[unit] for count, unit in re.findall(r"(\d+)([hms])", text)))
