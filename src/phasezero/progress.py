"""Live progress of runs in a terminal: a bar for each run with the time left, a line for each finished phase."""

from __future__ import annotations

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.outcome import PhaseResult


def make_progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[now]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )


class RunProgress:
    """A listener of the trainer. The bar counts images, so that a long phase weighs what it costs."""

    def __init__(self, progress: Progress, config: RunConfig, place: str) -> None:
        self.progress = progress
        self.phases = 0
        self.title = f"{place} {config.name} seed {config.seed}"
        self.task = progress.add_task(self.title, total=None, now="")

    def started(self, phases: int, total_images: int) -> None:
        self.phases = phases
        self.progress.update(self.task, total=total_images)

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        now = f"phase {phase.index}/{self.phases - 1} {stage} {epoch + 1}/{epochs} loss {loss:.3f}"
        self.progress.update(self.task, advance=images, now=now)

    def phase(self, result: PhaseResult) -> None:
        accuracy = 100 * float((result.predictions.truth == result.predictions.head).mean())
        line = (
            f"{self.title}: phase {result.phase.index}, {result.phase.seen} classes, "
            f"accuracy {accuracy:.2f} % ({result.seconds['total']:.1f} s)"
        )
        if result.phase.index == self.phases - 1:
            self.progress.update(self.task, now="done")
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
