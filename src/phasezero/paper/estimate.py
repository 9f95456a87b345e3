"""Estimate how long runs take: images to train on, times seconds per image from records or from built-in guesses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phasezero.config import RunConfig, leaves
from phasezero.data.catalog import find_data_set
from phasezero.engine.checkpoint import finished_phases, read_facts
from phasezero.engine.device import Device
from phasezero.engine.setup import evaluated_by_phase, images_by_phase, stream_of, teachers_of, trains_an_oracle
from phasezero.engine.store import phase_zero_of
from phasezero.errors import UserError
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS, later_cost
from phasezero.records.run import Record, device_share
from phasezero.runs.session import CHECKPOINT, run_folder
from phasezero.runs.work import FORWARD, guessed_seconds

TESTED = 5
"""Training images for each test image."""


class Pace:
    """Seconds per image, from records of the same device, network and (if there are any) method."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.sums: dict[tuple[str, str, str, bool], tuple[float, int]] = {}
        """Seconds and images, by device, network, what is trained (`*`: anything) and whether it is phase 0."""
        for record in records:
            environment, share = record["environment"], device_share(record)
            network = str(dict(leaves(record["config"])).get("network.name", "unknown"))  # from another program
            for phase in record["phases"]:
                first = phase["phase"] == 0
                terms = [term.partition(":")[0] for term in record["initial"]] if first else []
                if any(term in STRATEGIES and STRATEGIES[term].looks_ahead for term in terms):
                    continue  # may include an oracle's training
                epochs = len(next(iter(phase["loss"].values()), []))  # a method's first stage is its main stage
                for what in ("+".join([record["method"], *terms]), "*"):
                    key = environment["device_name"], network, what, first
                    seconds, images = self.sums.get(key, (0.0, 0))
                    seconds += phase["seconds"].get("total", 0.0) * share
                    self.sums[key] = seconds, images + phase["train_images"] * epochs

    def of(self, config: RunConfig, device: Device, *, first: bool) -> tuple[float, bool]:
        """Return the seconds per image, and whether they come from a record."""
        terms = [term.name for term in config.initial] if first else []
        for what in ("+".join([config.method.name, *terms]), "*"):
            seconds, images = self.sums.get((device.description, config.network.name, what, first), (0.0, 0))
            if images:
                return seconds / images, True
        machine = "cuda" if device.torch.type == "cuda" else "cpu"
        guess = guessed_seconds(config, machine)
        return guess * (1.0 if first else later_cost(config.method.name, machine)), False


@dataclass(frozen=True)
class Estimate:
    seconds: list[float]
    """Seconds of each run. The first run that needs a shared phase 0 includes its time."""
    next_phase: list[float]
    """Seconds of the next phase of each run. An unfinished phase 0 counts for every run that needs it."""
    guessed: bool
    """Whether any part was not measured on this machine."""

    def total(self, workers: int) -> float:
        """Return the seconds of all runs, so many at once."""
        return max(sum(self.seconds) / max(workers, 1), *self.seconds, 0.0)


def estimate(
    configs: Sequence[RunConfig], records: Iterable[Record], out: Path, workers: int = 1, store: Path | None = None
) -> Estimate:
    """Estimate runs in this order, `workers` at once, without phases that are in the store or checkpointed in `out`."""
    pace, stored = Pace(records), set(_stored(store))
    paid = set(stored)
    seconds, next_phase, guessed = [], [], False
    for config in configs:
        device = Device.choose(config.engine)
        protocol, (classes, images) = config.protocol, find_data_set(config.protocol.data).size
        if not classes:  # data of unknown size: assume what the run needs
            classes, images = sum(protocol.phase_sizes) or protocol.base + protocol.step, 500
        stream = stream_of(protocol, classes)
        sizes = [images] * len(stream.order)
        first, *later = images_by_phase(config, stream, sizes)
        done = finished_phases(run_folder(out, config) / CHECKPOINT, config)
        first_pace, first_known = pace.of(config, device, first=True)
        later_pace, later_known = pace.of(config, device, first=False)
        if not METHODS[config.method.name].trains_later:
            tested = [images // TESTED] * len(stream.order)
            later, later_pace = evaluated_by_phase(config, stream, sizes, tested)[1:], first_pace * FORWARD
            later_known = first_known
        packed = workers if device.torch.type == "cuda" else 1  # a GPU is shared
        wanted = {} if done else dict(_phase_zeros(config, first, len(stream.order), images))
        unpaid = sum(cost for phase_zero, cost in wanted.items() if phase_zero not in paid) * first_pace * packed
        unfinished = sum(cost for phase_zero, cost in wanted.items() if phase_zero not in stored) * first_pace * packed
        paid |= wanted.keys()
        costs = [cost * later_pace * packed for cost in later[max(done - 1, 0) :]]
        guessed = guessed or not (first_known and (later_known or not later))
        seconds.append(unpaid + sum(costs))
        next_phase.append(unfinished or next(iter(costs), 0.0))
    return Estimate(seconds, next_phase, guessed)


def _stored(store: Path | None) -> Iterator[str]:
    """Yield the settings of each phase 0 in a store."""
    for path in sorted(store.glob("*.safetensors")) if store else []:
        with contextlib.suppress(UserError):  # damaged: it will be trained again
            yield phase_zero_of(RunConfig.from_record(read_facts(path)["config"]))


def _phase_zeros(config: RunConfig, own: int, classes: int, images: int) -> Iterator[tuple[str, int]]:
    """Yield each phase 0 that a run needs, with its images: its own, and those of its teachers and its oracle."""
    yield phase_zero_of(config), own
    for teacher in teachers_of(config):
        yield from _phase_zeros(teacher, own, classes, images)
    if trains_an_oracle(config):
        oracle = replace(config, initial=(), protocol=replace(config.protocol, phase_sizes=(classes,)))
        yield phase_zero_of(oracle), config.training.first.epochs * classes * images
