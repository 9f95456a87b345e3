"""Reports of what a learner does, for progress bars."""

from __future__ import annotations

from phasezero.data.loader import ImageSource
from phasezero.data.stream import Phase
from phasezero.engine.callbacks import Callback
from phasezero.steps import Progress


class EpochProgress(Callback):
    """Report each epoch."""

    def __init__(self, report: Progress) -> None:
        self.report = report

    def on_batch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.report(f"training ({stage})", epoch, epochs)

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.report(f"training ({stage})", epoch + 1, epochs)


SOLVING = "computing the classifier"
"""A step without parts, which follows the features where a method is exact."""


def watch(source: ImageSource, report: Progress | None, what: str, total: int, then: str = "") -> None:
    """Report the images of a source that are evaluated, and that another step follows."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        known, done = done, min(done + count, total)
        if report is not None and known < total:
            report(what, done, total)
            if then and done == total:
                report(then, 0, 1)

    source.watch = add
