"""Live progress of runs in a terminal: a bar for each run with the time left, a line for each finished phase."""

from __future__ import annotations

from collections.abc import Sequence

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
from phasezero.engine.listener import Listener
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


class TotalProgress:
    """The bar over all runs. It counts images: what is planned, corrected by what a run says when it starts."""

    def __init__(self, progress: Progress, planned: Sequence[int]) -> None:
        self.progress, self.planned = progress, list(planned)
        self.finished = 0
        self.task = progress.add_task("all", total=sum(planned), now="")
        self.show()

    def show(self, images: int = 0) -> None:
        now = f"{self.finished}/{len(self.planned)} runs"
        self.progress.update(self.task, total=sum(self.planned), advance=images, now=now)

    def watch(self, place: int) -> Listener:
        """The listener of one run."""
        return _Share(self, place)


class _Share:
    def __init__(self, whole: TotalProgress, place: int) -> None:
        self.whole, self.place, self.phases = whole, place, 0

    def started(self, phases: int, total_images: int) -> None:
        self.phases = phases
        self.whole.planned[self.place] = total_images  # less than planned: a shared phase 0, a checkpoint
        self.whole.show()

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.whole.show(images)

    def phase(self, result: PhaseResult) -> None:
        if result.phase.index == self.phases - 1:
            self.whole.finished += 1
            self.whole.show()


MOST_BARS = 12
"""With more runs than this, the bar of a finished one goes."""


class RunProgress:
    """A listener of the trainer. The bar counts images, so that a long phase weighs what it costs."""

    def __init__(self, progress: Progress, config: RunConfig, place: int, runs: int) -> None:
        self.progress = progress
        self.phases = 0
        self.stays = runs <= MOST_BARS
        self.title = f"[{place + 1}/{runs}] {config.name} seed {config.seed}"
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
            self.progress.update(self.task, now="done", visible=self.stays)
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
