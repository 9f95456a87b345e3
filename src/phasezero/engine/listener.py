"""Those who watch a run: a progress bar, a log, several at once. They see it and never change it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phasezero.data.stream import Phase
from phasezero.engine.outcome import PhaseResult
from phasezero.results.record import PhaseRecord


class Listener(Protocol):
    def reused(self, phase: PhaseRecord) -> None:
        """Phase 0 was found in a store, with this record; then the run begins with the next."""

    def started(self, phases: int, total_images: int) -> None:
        """The run begins: so many phases, so many images to train on in all, epochs counted."""

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        """An epoch over so many images has ended."""

    def phase(self, result: PhaseResult) -> None:
        """A phase has been trained and evaluated."""


class Listeners:
    """Several listeners as one."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = listeners

    def reused(self, phase: PhaseRecord) -> None:
        for one in self.listeners:
            one.reused(phase)

    def started(self, phases: int, total_images: int) -> None:
        for one in self.listeners:
            one.started(phases, total_images)

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        for one in self.listeners:
            one.epoch(phase, stage, epoch, epochs, loss, images)

    def phase(self, result: PhaseResult) -> None:
        for one in self.listeners:
            one.phase(result)


class OracleEpochs:
    """What a run's listener hears of the oracle trained within its phase 0: epochs of a stage of that name.

    They count no images, for those of the run itself were announced; the oracle's own start and end are not
    the run's.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def reused(self, phase: PhaseRecord) -> None:
        pass

    def started(self, phases: int, total_images: int) -> None:
        pass

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.listener.epoch(phase, f"oracle {stage}", epoch, epochs, loss, 0)

    def phase(self, result: PhaseResult) -> None:
        pass
