"""Output for people: lines in the width of a terminal, and the progress of steps that take longer than a second."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bars, TaskID

Progress = Callable[[str, int, int], None]
"""Called with what is done, how many of its steps are done, and how many there are."""

LONG = 1.0  # seconds: shorter steps have no line
SOON = 0.3  # seconds until a bar appears
EVERY = 10.0  # seconds between lines without a terminal


class Steps:
    """Show the progress of steps on stderr: bars on a terminal, plain lines without one.

    It is called as `Learner(progress=...)` is: with what is done, how much of it is done, and how much there is. A step
    of a single part shows that it is under way.
    """

    def __init__(self) -> None:
        self.on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.what, self.started, self.told = "", 0.0, 0.0
        self.bar: tuple[Bars, TaskID] | None = None

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
            print(f"{what}: {f'{total:,} in ' * (total > 1)}{now - self.started:.1f} s", file=sys.stderr)
        elif done < total and now - self.told > EVERY:
            print(f"{what}: {done:,} of {total:,}", file=sys.stderr)
            self.told = now
        if done >= total:
            self._end()

    def _draw(self, done: int, total: int, seconds: float) -> None:
        if self.bar is None and done < total and (seconds > SOON or total == 1):  # of one part there is no second call
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


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal what is being done, for a step whose parts are not counted."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield
        return
    with console.status(f"{what} ..."):
        yield


def in_lines(text: str, stream: TextIO, indent: str = "") -> str:
    """Return a text with line breaks between words where the stream is a terminal; `indent` starts further lines."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    kept = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": indent}
    return "\n".join(textwrap.fill(line, width, **kept) for line in text.splitlines())  # type: ignore[arg-type]
