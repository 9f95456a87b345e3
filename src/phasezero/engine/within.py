"""The state within a phase: what is under way, and how it is described for a file and continued from it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.engine.device import Device
from phasezero.engine.stage_run import StageRun
from phasezero.errors import UserError
from phasezero.nets import IncrementalModel


class SavedState(NamedTuple):
    """A state within a phase, as it is on disk."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


class Keeper(Protocol):
    """What decides when a state is saved, and saves it."""

    def due(self) -> bool:
        """Tell whether the state should be saved now."""

    def keep(self, state: SavedState | None) -> None:
        """Save the state (None: a state that is not worth keeping); raise StoppedError if a stop was requested."""


class Clock:
    """Measure seconds by name; each lap waits for the device."""

    def __init__(self, device: Device) -> None:
        self.device, self.last = device, time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        self.device.synchronize()
        before, self.last = self.last, time.perf_counter()
        self.laps[name] = self.laps.get(name, 0.0) + self.last - before


@dataclass
class UnderWay:
    """A phase that is being trained."""

    phase: Phase
    clock: Clock
    stage: int = 0
    """The number of finished stages."""
    run: StageRun | None = None
    """The stage under way."""
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Of finished stages: the mean loss of each epoch, by stage."""
    train_images: int = 0
    features: dict[int, Tensor] = field(default_factory=dict)
    """Features of classes that were computed after training, by position."""
    is_trained: bool = False
    """Whether all stages are finished."""

    def state(self, model: IncrementalModel, capture_seconds: float) -> SavedState | None:
        """Return the state, between two steps; None if the loss is not finite."""
        if self.run is not None and not self.run.is_finite():
            return None
        facts = {
            "phase": self.phase.index,
            "stage": self.stage,
            "finished": self.losses,
            "train_images": self.train_images,
            "laps": self.clock.laps,
            "open_lap": time.perf_counter() - self.clock.last,
            "capture_seconds": capture_seconds,
        }
        tensors = {f"features.{position}": own for position, own in self.features.items()}
        if self.run is not None or self.losses:  # otherwise the model is still that of the phase before
            tensors |= {f"model.{name}": tensor for name, tensor in trained_state(model).items()}
        if self.run is not None:
            facts, tensors = facts | self.run.facts(), tensors | self.run.tensors()
        return SavedState(facts, tensors)

    def restore(self, saved: SavedState, model: IncrementalModel) -> None:
        """Continue from a saved state; the model has been prepared as at the start of the phase."""
        own = {name.removeprefix("model."): t for name, t in saved.tensors.items() if name.startswith("model.")}
        if own:  # without statistics, because another method that shares phase 0 may have left it
            load_trained(model, own)
        facts, features = saved.facts, "features."
        self.stage, self.train_images = facts["stage"], facts["train_images"]
        self.losses = {name: list(values) for name, values in facts["finished"].items()}
        self.features = {int(name.removeprefix(features)): t for name, t in saved.tensors.items() if features in name}
        self.clock.laps, self.clock.last = dict(facts["laps"]), time.perf_counter() - facts["open_lap"]


def trained_state(model: IncrementalModel) -> dict[str, Tensor]:
    """Return the state of a model as training leaves it, without statistics that are computed afterwards."""
    computed = {f"head.{name}" for name in model.head.statistics}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in computed}


def load_trained(model: IncrementalModel, state: Mapping[str, Tensor]) -> None:
    """Load what `trained_state` returned, of this method or of another with the same phase 0."""
    if state.keys() != trained_state(model).keys():
        raise UserError("the stored phase 0 has other tensors than this model; remove it from the store")
    model.load_state_dict(state, strict=False)
