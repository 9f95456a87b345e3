"""Live progress of runs in a terminal: a bar for each run with the time left, a line for each finished phase."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from phasezero.engine.listener import Listener
from phasezero.engine.outcome import PhaseResult
from phasezero.results.paper import published_classifier
from phasezero.results.record import PhaseRecord

SPEED_SECONDS = 3600
"""Of the past, from which time left is foretold. Two epochs must fit in; rich's own 30 s hold not one of ImageNet."""

FOR_LOSS, FOR_ELAPSED, FOR_BAR = 92, 100, 112
"""Columns of a terminal from which on there is room for these; run, phase and time left are always there."""


def make_progress(console: Console) -> Progress:
    whole = Column(no_wrap=True)
    return Progress(
        SpinnerColumn(table_column=whole),
        _Name(),  # alone not whole: the one that gives way
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
    """A task's description, shortened to the room there is."""

    def render(self, task: Task) -> RenderableType:
        return _Shortened(task.description)


@dataclass(frozen=True)
class _Shortened:
    """One line, its middle left out where it must be: both ends of a run's title tell it from others."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, len(self.text)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        cut = len(self.text) - options.max_width
        if cut <= 0:
            yield Text(self.text)
        else:
            head = options.max_width // 2
            yield Text(f"{self.text[:head]}…{self.text[head + cut + 1 :]}", no_wrap=True, overflow="crop")


class _Roomy(ProgressColumn):
    """A column that a narrow terminal does without."""

    def __init__(self, column: ProgressColumn, console: Console, least: int) -> None:
        super().__init__(table_column=column.get_table_column())
        self.column, self.console, self.least = column, console, least

    def render(self, task: Task) -> RenderableType:
        return self.column(task) if self.console.width >= self.least else Text()


class TotalProgress:
    """The bar over all runs. It counts images: what is planned, corrected by what a run says when it starts, and by
    what it had in the end: a method may set images aside (BiC).
    """

    def __init__(self, progress: Progress, planned: Sequence[int]) -> None:
        self.progress, self.planned = progress, list(planned)
        self.finished = 0
        self.task = progress.add_task("all", total=sum(planned), now="", loss="")
        self.show()

    def show(self, images: int = 0) -> None:
        now = f"{self.finished}/{len(self.planned)} runs"
        self.progress.update(self.task, total=sum(self.planned), advance=images, now=now)

    def watch(self, place: int) -> Listener:
        """The listener of one run."""
        return _Share(self, place)


class _Share:
    def __init__(self, whole: TotalProgress, place: int) -> None:
        self.whole, self.place, self.phases, self.images = whole, place, 0, 0

    def reused(self, phase: PhaseRecord) -> None:
        pass

    def started(self, phases: int, total_images: int) -> None:
        self.phases = phases
        self.whole.planned[self.place] = total_images  # less than planned: a shared phase 0, a checkpoint
        self.whole.show()

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.images += images
        self.whole.show(images)

    def phase(self, result: PhaseResult) -> None:
        if result.phase.index == self.phases - 1:
            self.whole.finished += 1
            self.whole.planned[self.place] = self.images
            self.whole.show()


MOST_BARS = 12
"""With more runs than this, the bar of a finished one goes."""


class RunProgress:
    """A listener of the trainer. The bar counts images, so that a long phase weighs what it costs."""

    def __init__(self, progress: Progress, config: RunConfig, place: int, runs: int) -> None:
        self.progress = progress
        self.phases, self.images = 0, 0
        self.stays = runs <= MOST_BARS
        self.title = f"[{place + 1}/{runs}] {config.name} seed {config.seed}"
        self.classifier = published_classifier(config.method.name)
        self.task = progress.add_task(self.title, total=None, now="", loss="")

    def reused(self, phase: PhaseRecord) -> None:
        self._line(0, phase["seen_classes"], phase["accuracy"], "from the store")

    def started(self, phases: int, total_images: int) -> None:
        self.phases = phases
        self.progress.update(self.task, total=total_images)

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        now = f"phase {phase.index}/{self.phases - 1} {stage} {epoch + 1}/{epochs}"
        self.images += images
        self.progress.update(self.task, advance=images, now=now, loss=f"loss {loss:.3f}")

    def phase(self, result: PhaseResult) -> None:
        if result.phase.index == self.phases - 1:
            self.progress.update(self.task, total=self.images, now="done", loss="", visible=self.stays)
        seconds = f"{result.seconds['total']:.1f} s"
        self._line(result.phase.index, result.phase.seen, result.accuracies, seconds)

    def _line(self, phase: int, classes: int, accuracies: Mapping[str, Any], how: str) -> None:
        """The accuracy is that of the table in the end: by the method's own classifier where it was measured."""
        own = accuracies.get(self.classifier)
        accuracy = accuracies["head"] if own is None else own
        line = f"{self.title}: phase {phase}, {classes} classes, accuracy {accuracy:.2f} % ({how})"
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
