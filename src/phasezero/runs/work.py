"""The work of a run, and how fast it is done: the share that is done and the time left."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from phasezero.config import RunConfig
from phasezero.data.catalog import find_data_set
from phasezero.engine.setup import Setup
from phasezero.methods import later_cost
from phasezero.nets.resnet import SECONDS

Kind = Literal["first", "later", "evaluation"]
"""Training in phase 0, training in later phases, evaluation."""
SIMILAR: dict[Kind, tuple[Kind, ...]] = {
    "first": ("first", "later"),
    "later": ("later", "first"),
    "evaluation": ("evaluation", "first", "later"),
}
"""The kinds whose speed predicts that of a kind, the best first."""

UNKNOWN = {"cpu": 6e-2, "cuda": 1e-4}
"""Seconds per image in phase 0, for data without an estimate."""
FORWARD = 1 / 3
"""Time to evaluate an image relative to training on it, until it is measured."""
FADES = 60.0
"""Seconds of work after which an earlier measurement counts half: the speed changes when other runs start or end."""


def guessed_seconds(config: RunConfig, machine: str) -> float:
    """Return the built-in guess of the seconds per image in phase 0 on `cpu` or `cuda`."""
    usual = find_data_set(config.protocol.data).seconds.get(machine, UNKNOWN[machine])
    return SECONDS.get(config.network.name, {}).get(machine, usual)


class Speed:
    """Measure the seconds per unit of work, by kind. A unit is a guessed second."""

    def __init__(self) -> None:
        self.seconds, self.units = defaultdict[Kind, float](float), defaultdict[Kind, float](float)

    def add(self, kind: Kind, seconds: float, units: float) -> None:
        fading = 0.5 ** (seconds / FADES)
        self.seconds[kind] = self.seconds[kind] * fading + seconds
        self.units[kind] = self.units[kind] * fading + units

    def of(self, kind: Kind) -> float | None:
        """Return the seconds per unit, or None if this kind was not measured."""
        return self.seconds[kind] / self.units[kind] if self.units[kind] else None


class Work:
    """Count the work of a run that is done, and measure its speed.

    `reuses` says that another run trains this phase 0. `shared` is the speed of all runs.
    """

    def __init__(
        self,
        config: RunConfig,
        setup: Setup,
        shared: Speed,
        *,
        reuses: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        machine = setup.device.torch.type
        guess, later = guessed_seconds(config, machine), later_cost(config.method.name, machine)
        self.weights: dict[Kind, float] = {"first": guess, "later": guess * later, "evaluation": guess * FORWARD}
        self.planned = [
            {self._training(phase): float(images), "evaluation": float(evaluated)}
            for phase, (images, evaluated) in enumerate(zip(setup.images, setup.evaluated, strict=True))
        ]
        if reuses:
            self.planned[0]["first"] = 0.0
        self.own, self.shared, self.clock = Speed(), shared, clock
        self.phase, self.done, self.epoch = 0, defaultdict[Kind, float](float), 0
        self.last: float | None = None
        self.trains = self.ended = False

    @staticmethod
    def _training(phase: int) -> Kind:
        return "later" if phase else "first"

    def start(self) -> None:
        """Start to measure."""
        self.last = self.clock()

    def train(self, phase: int, images: int, *, ends: bool) -> None:
        """Count the images of the current epoch so far; `ends` says that this is all of it."""
        self._enter(phase)
        new, self.epoch = images - self.epoch, 0 if ends else images
        if new > 0 or self.trains:  # a later stage counts no images, but its time belongs to the phase
            self.trains = True
            self._count(self._training(phase), max(new, 0))
        else:  # an oracle or a teacher, before the run's own training
            self.last = self.clock()

    def evaluate(self, phase: int, images: int) -> None:
        """Count evaluated images."""
        self._enter(phase)
        if images:
            self._count("evaluation", images)

    def finish(self, phase: int) -> None:
        """Count a phase as done."""
        self.phase, self.done, self.epoch, self.trains = phase + 1, defaultdict(float), 0, False
        self.ended = self.phase >= len(self.planned)

    def _enter(self, phase: int) -> None:
        if phase != self.phase:  # a resumed run
            self.finish(phase - 1)

    def _count(self, kind: Kind, images: float) -> None:
        now, before = self.clock(), self.last
        if before is not None:
            for speed in (self.own, self.shared):
                speed.add(kind, now - before, images * self.weights[kind])
        self.last = now
        self.done[kind] += images

    def left(self) -> dict[Kind, float]:
        """Return the units of work that are left, by kind."""
        units = defaultdict[Kind, float](float)
        for place, planned in enumerate(self.planned[self.phase :]):
            for kind, images in planned.items():
                images -= self.done[kind] if place == 0 else 0
                units[kind] += max(images, 0.0) * self.weights[kind]
        return units

    @property
    def total(self) -> float:
        return sum(images * self.weights[kind] for planned in self.planned for kind, images in planned.items())

    @property
    def share(self) -> float:
        """Return the share of the work that is done."""
        return 1.0 if self.ended else 1 - sum(self.left().values()) / (self.total or 1.0)

    def seconds_left(self) -> float | None:
        """Return the estimated seconds until the run ends, or None if nothing comparable was measured."""
        seconds = 0.0
        for kind, units in self.left().items():
            measured = (speed.of(similar) for similar in SIMILAR[kind] for speed in (self.own, self.shared))
            pace = next((one for one in measured if one is not None), None)
            if units and pace is None:
                return None
            seconds += units * (pace or 0.0)
        since = self.clock() - self.last if self.last is not None else 0.0
        return max(seconds - since, 0.0)
