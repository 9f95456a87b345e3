"""Live progress of runs in a terminal: a bar for each run with the time left, a line for each finished phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import Callback, PhaseResult
from phasezero.methods import classifier_of
from phasezero.records.run import PhaseRecord

SPEED_SECONDS = 3600
"""Seconds from which the time left is estimated. They must cover two epochs, and an ImageNet epoch takes minutes."""

FOR_LOSS, FOR_ELAPSED, FOR_BAR = 92, 100, 112
"""The smallest terminal width that shows each column. Run, phase and time left are always shown."""


def make_progress(console: Console) -> Progress:
    """Return the live display for a console."""
    whole = Column(no_wrap=True)
    return Progress(
        SpinnerColumn(table_column=whole),
        _Name(),  # the only column that may be shortened
        _Roomy(BarColumn(bar_width=14, table_column=whole), console, FOR_BAR),
        TextColumn("{task.fields[now]}", markup=False),
        _Roomy(TextColumn("{task.fields[loss]}", markup=False), console, FOR_LOSS),
        _Roomy(TimeElapsedColumn(table_column=whole), console, FOR_ELAPSED),
        TextColumn("left"),
        TimeRemainingColumn(table_column=whole),
        console=console,
        speed_estimate_period=SPEED_SECONDS,
    )


class _Name(ProgressColumn):
    """Show a task's description, shortened to the available room."""

    def render(self, task: Task) -> RenderableType:
        return _Shortened(task.description)


@dataclass(frozen=True)
class _Shortened:
    """Draw a line, shortened in the middle if needed, because both ends of a title distinguish runs."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, len(self.text)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        cut, head = len(self.text) - options.max_width, options.max_width // 2
        text = self.text if cut <= 0 else f"{self.text[:head]}…{self.text[head + cut + 1 :]}"
        yield Text(text, no_wrap=True, overflow="crop")


class _Roomy(ProgressColumn):
    """Show a column only in a terminal of a certain width."""

    def __init__(self, column: ProgressColumn, console: Console, least: int) -> None:
        super().__init__(table_column=column.get_table_column())
        self.column, self.console, self.least = column, console, least

    def render(self, task: Task) -> RenderableType:
        return self.column(task) if self.console.width >= self.least else Text()


class TotalProgress:
    """Show the bar over all runs, if there are several. It counts the images planned for each run.

    A run corrects its plan when it starts (phase 0 may be shared) and when it ends (BiC sets images aside).
    """

    def __init__(self, progress: Progress, planned: Mapping[int, int]) -> None:
        self.progress, self.planned, self.finished = progress, dict(planned), 0
        self.task = progress.add_task("all", total=None, now="", loss="", visible=len(planned) > 1)
        self.advance(0)

    def advance(self, images: int) -> None:
        now = f"{self.finished}/{len(self.planned)} runs"
        self.progress.update(self.task, total=sum(self.planned.values()), advance=images, now=now)

    def correct(self, run: int, images: int, *, finished: bool) -> None:
        self.planned[run] = images
        self.finished += finished
        self.advance(0)


MOST_BARS = 12
"""With more runs than this, the bar of a finished run disappears."""


class RunProgress(Callback):
    """Show the bar of a run, and advance the bar over all runs. Both count images, so a long phase weighs more."""

    def __init__(self, total: TotalProgress, config: RunConfig, place: int, runs: int) -> None:
        self.progress, self.place, self.total = total.progress, place, total
        self.phases, self.images = 0, 0
        self.stays = runs <= MOST_BARS
        self.title = f"[{place + 1}/{runs}] {config.name} seed {config.seed}"
        self.classifier = classifier_of(config.method.name)
        self.task = self.progress.add_task(self.title, total=None, now="", loss="")

    def on_phase_reused(self, record: PhaseRecord) -> None:
        self._print(record, "from the store")

    def on_run_start(self, phases: int, images: int) -> None:
        self.phases = phases
        self.progress.update(self.task, total=images)
        self.total.correct(self.place, images, finished=False)

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        now = f"phase {phase.index}/{self.phases - 1} {stage} {epoch + 1}/{epochs}"
        self.images += images
        self.progress.update(self.task, advance=images, now=now, loss=f"loss {loss:.3f}")
        self.total.advance(images)

    def on_phase_end(self, result: PhaseResult) -> None:
        if result.phase.index == self.phases - 1:
            self.progress.update(self.task, total=self.images, now="done", loss="", visible=self.stays)
            self.total.correct(self.place, self.images, finished=True)
        self._print(result.record, f"{result.record['seconds']['total']:.1f} s")

    def _print(self, record: PhaseRecord, how: str) -> None:
        """Print the accuracy that the final table shows: by the method's own classifier where it was measured."""
        accuracies, classes = record["accuracy"], record["seen_classes"]
        own = accuracies.get(self.classifier)
        accuracy = accuracies["head"] if own is None else own
        line = f"{self.title}: phase {record['phase']}, {classes} classes, accuracy {accuracy:.2f} % ({how})"
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
