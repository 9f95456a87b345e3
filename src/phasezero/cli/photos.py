"""What the commands on photos share: checks before any work, and progress of steps that take longer than a second."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from phasezero.errors import UserError
from phasezero.validation import printable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from phasezero.data.files import Item

LONG = 1.0  # seconds: shorter steps have no line
SOON = 0.3  # seconds until a bar appears
EVERY = 10.0  # seconds between lines without a terminal
FEW = 3


class Steps:
    """Show the progress of steps on stderr: bars on a terminal, plain lines without one.

    It is called as `Learner(progress=...)` is: with what is done, how much of it is done, and how much there is.
    """

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.what, self.started, self.told = "", 0.0, 0.0
        self.bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what != self.what:
            self._end()
            self.what, self.started, self.told = what, now, now
        if self.on_terminal:
            self._draw(done, total, now - self.started)
        elif done >= total and now - self.started > LONG:
            print(f"{what}: {total:,} in {now - self.started:.1f} s", file=sys.stderr)
        elif done < total and now - self.told > EVERY:
            print(f"{what}: {done:,} of {total:,}", file=sys.stderr)
            self.told = now
        if done >= total:
            self._end()

    def _draw(self, done: int, total: int, seconds: float) -> None:
        if self.bar is None and done < total and seconds > SOON:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns: Any = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
            progress = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            progress.start()
            self.bar = progress, progress.add_task(self.what, total=total)
        if self.bar is not None:
            self.bar[0].update(self.bar[1], completed=done)

    def _end(self) -> None:
        if self.bar is not None:
            self.bar[0].stop()
        self.what, self.bar = "", None


def check_readable(items: Sequence[Item], steps: Steps) -> None:
    """Raise UserError that names the files that are no images, before any work is done."""
    from phasezero.data.files import unreadable_images

    paths = [item for item in items if isinstance(item, Path)]
    errors = unreadable_images(paths, lambda done: steps("opening photos", done, len(paths)))
    if len(errors) == 1:
        raise UserError(printable(str(errors[0])))
    if errors:
        more = f"; and {len(errors) - FEW} more" if len(errors) > FEW else ""
        raise UserError(printable(f"{len(errors)} photos: {'; '.join(map(str, errors[:FEW]))}{more}"))
