"""Callbacks watch a run and never change it. A progress bar, a log and TensorBoard are callbacks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from phasezero.data.stream import Phase
from phasezero.engine.evaluate import Predictions
from phasezero.records.run import PhaseRecord


@dataclass(frozen=True)
class PhaseResult:
    """The results of a trained phase."""

    phase: Phase
    predictions: Predictions
    """Predictions on the test images of all seen classes."""
    record: PhaseRecord
    """The phase's block of the run's record: accuracies, losses, seconds."""


class Callback:
    """Base of callbacks: override the methods for the events to watch.

    >>> from phasezero import Callback, run
    >>> class Losses(Callback):
    ...     def on_epoch_end(self, phase, stage, epoch, epochs, loss, images):
    ...         print(phase.index, stage, f"{epoch + 1}/{epochs}")
    >>> result = run(getfixture("tiny_config"), data=getfixture("toy_data"), callback=Losses())
    0 train 1/1
    1 train 1/1
    """

    def on_phase_reused(self, record: PhaseRecord) -> None:
        """Handle a phase 0 that was found in a store, with this record; the run begins with phase 1."""

    def on_run_start(self, phases: int, images: int) -> None:
        """Handle the start of a run, given its phases and the images to train on in all epochs of all phases."""

    def on_batch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        """Handle the progress of an epoch: its mean loss and the images that count so far.

        Called a few times a second, and only on a CPU: a GPU would have to wait for the answer.
        """

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        """Handle the end of an epoch with its mean loss; `images` count towards the images of the run."""

    def on_activity(self, phase: Phase, what: str, images: int) -> None:
        """Handle what a phase does besides training: `images` more images were evaluated for `what`.

        `what` is `features`, `exemplars` or `test`, or `waiting` for another run that trains the same phase 0. Each
        begins with a call of no images.
        """

    def on_phase_end(self, result: PhaseResult) -> None:
        """Handle the end of a phase, which was trained and evaluated."""


def _forwarded(name: str) -> Any:
    return lambda callback, *facts: callback.forward(name, *facts)


class ForwardingCallback(Callback):
    """Base of callbacks that forward every call."""

    forward: Callable[..., None]
    """The function to call with the name of a method and its arguments."""

    on_phase_reused = _forwarded("on_phase_reused")
    on_run_start = _forwarded("on_run_start")
    on_batch_end = _forwarded("on_batch_end")
    on_epoch_end = _forwarded("on_epoch_end")
    on_activity = _forwarded("on_activity")
    on_phase_end = _forwarded("on_phase_end")


class CallbackList(ForwardingCallback):
    """Forward calls to several callbacks."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = list(callbacks)

    def forward(self, name: str, *facts: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, name)(*facts)


class OracleCallback(Callback):
    """Forward the progress of an oracle or a teacher that a run trains first, whose images the run did not announce."""

    def __init__(self, callback: Callback, model: str = "oracle") -> None:
        self.callback, self.model = callback, model

    def on_epoch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.callback.on_epoch_end(phase, f"{self.model} {stage}", epoch, epochs, loss, 0)

    def on_batch_end(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.callback.on_batch_end(phase, f"{self.model} {stage}", epoch, epochs, loss, 0)

    def on_activity(self, phase: Phase, what: str, images: int) -> None:
        self.callback.on_activity(phase, f"{self.model} {what}", 0)


REPORT_EVERY = 0.25
"""Seconds between reports of progress."""


class Pause:
    """Tell when the next report of progress is due."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def over(self) -> bool:
        now = time.monotonic()
        if now - self.last < REPORT_EVERY:
            return False
        self.last = now
        return True


class Activity:
    """Report evaluated images to a callback, with what they are evaluated for."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self.pause, self.images = callback, Pause(), 0
        self.now: tuple[Phase, str] | None = None

    def begin(self, phase: Phase, what: str) -> None:
        """Report that something else begins."""
        if self.now != (phase, what):
            self.end()
            self.now = phase, what
            self.callback.on_activity(phase, what, 0)

    def add(self, images: int) -> None:
        """Count evaluated images, and report them a few times a second."""
        self.images += images
        if self.pause.over():
            self._report()

    def end(self) -> None:
        """Report the images that were not reported yet."""
        self._report()
        self.now = None

    def _report(self) -> None:
        if self.now is not None and self.images:
            self.callback.on_activity(*self.now, self.images)
        self.images = 0
