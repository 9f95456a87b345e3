"""A deadline, which runs check before they start and after each phase."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from phasezero.errors import UserError


class OutOfTimeError(Exception):
    """A run was stopped, or not started, because of a time limit. Its finished phases are in its checkpoint."""


@dataclass(frozen=True)
class Deadline:
    at: float
    clock: Callable[[], float] = time.time  # wall-clock time, the same in every process

    def allows(self, seconds: float) -> bool:
        """Tell whether work of this duration would be finished in time."""
        return self.clock() + seconds <= self.at


def parse_duration(text: str) -> float:
    """Parse a duration such as `30m`, `1h30m` or `90s` into seconds."""
    found = re.fullmatch(r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", text)
    if not found or not text:
        raise UserError(f"duration {text!r}: write hours, minutes, seconds, such as 30m, 1h30m or 90s")
    hours, minutes, seconds = (int(count or 0) for count in found.groups())
    return float(3600 * hours + 60 * minutes + seconds)
