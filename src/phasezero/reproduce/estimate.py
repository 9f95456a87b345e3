"""How long runs will take: images to train on, times the seconds that an image took in records, or a stated guess."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phasezero.config import RunConfig, leaves
from phasezero.data.stream import make_stream
from phasezero.engine.checkpoint import finished_phases, read_facts
from phasezero.engine.device import Device
from phasezero.engine.workload import images_by_phase, trains_an_oracle
from phasezero.errors import UserError
from phasezero.presets import family_of
from phasezero.reproduce.plan import phase_zero_of
from phasezero.results.record import PhaseRecord, Record
from phasezero.session import CHECKPOINT, run_folder

# (classes, training images of a class) of the data sets that targets are run on.
SIZES = {"glyphs": (100, 168), "cifar100": (100, 500), "imagenet100": (100, 1290), "imagenet": (1000, 1281)}

# Seconds an image of a phase 0, where no record tells: a CPU core, or an H200 with captured steps
# (docs/speed.md); ImageNet's photos are guessed, and so is the sphere's network on a GPU. A later phase has a
# teacher, and some methods do more.
GUESSES = {
    "cpu": {"glyphs": 3e-4, "cifar100": 6e-2, "imagenet100": 1.0, "imagenet": 1.0},
    "cuda": {"glyphs": 2e-5, "cifar100": 2.5e-5, "imagenet100": 5e-4, "imagenet": 5e-4},
}
OTHER_NETWORKS = {
    "cpu": {("glyphs", "alexnet-3d"): 2.4e-3, ("cifar100", "alexnet-3d"): 2.4e-3},
    "cuda": {("glyphs", "alexnet-3d"): 1e-5, ("cifar100", "alexnet-3d"): 1e-5},
}
"""Where a target's network is not the data set's usual one."""
LATER = {
    "cpu": {"*": 1.7, "bic": 2.3, "podnet": 3.8, "aanet": 4.1},
    "cuda": {"*": 1.2, "podnet": 1.6, "aanet": 2.6},
}
"""Times the seconds an image of a phase 0, evaluation included: Table 1 on glyphs, CIFAR100 on an H200."""


@dataclass
class _Sum:
    seconds: float = 0.0
    images: int = 0


Kind = tuple[str, str, str, bool]
"""Device, network, what is trained, whether it is phase 0."""


class Pace:
    """Seconds an image, as records have it: by method where there is one, else by network, on the same device."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.sums: dict[Kind, _Sum] = {}
        for record in records:
            device, settings = record["environment"]["device_name"], dict(leaves(record["config"]))
            network = str(settings.get("network.name", "unknown"))  # a record made elsewhere need not say
            share = _share(record)
            for phase in record["phases"]:
                first = phase["phase"] == 0
                label = "+".join([record["method"], *map(_plain, record["initial"] if first else [])])
                if "mimic" in label:  # such a phase 0 may hold the training of an oracle
                    continue
                for what in (label, "*"):
                    one = self.sums.setdefault((device, network, what, first), _Sum())
                    one.seconds += phase["seconds"].get("total", 0.0) * share
                    one.images += _images(phase)

    def of(self, config: RunConfig, device: Device, *, first: bool) -> tuple[float, bool]:
        """(seconds an image, whether a record says so)."""
        terms = [term.name for term in config.initial] if first else []
        for what in ("+".join([config.method.name, *terms]), "*"):
            known = self.sums.get((device.description, config.network.name, what, first))
            if known is not None and known.images:
                return known.seconds / known.images, True
        machine, family = "cuda" if device.torch.type == "cuda" else "cpu", family_of(config.protocol.data)
        guess = OTHER_NETWORKS[machine].get((family, config.network.name), GUESSES[machine][family])
        later = LATER[machine].get(config.method.name, LATER[machine]["*"])
        return guess * (1.0 if first else later), False


def _share(record: Record) -> float:
    """The part of a GPU that a run had to itself. On a CPU runs side by side have cores of their own."""
    timing = record["timing"]
    if record["environment"]["device"] == "cpu" or not timing["seconds_total"]:
        return 1.0
    return timing.get("share_seconds", timing["seconds_total"]) / timing["seconds_total"]


def _plain(term: str) -> str:
    return term.partition(":")[0]


def _images(phase: PhaseRecord) -> int:
    main = next(iter(phase["loss"].values()), [])  # a method's first stage is its main one
    return phase["train_images"] * len(main)


@dataclass(frozen=True)
class Estimate:
    seconds: list[float]
    """Of each run beside the others, in the order given; whoever comes first pays for a shared phase 0."""
    next_phase: list[float]
    """Of the phase that each would begin with: what must fit for anything to be gained. A phase 0 counts in full
    where nobody has finished it yet: whoever was to train it for others may be stopped before."""
    guessed: bool
    """Whether any of it is no measurement of this machine."""


def estimate(
    configs: Sequence[RunConfig],
    records: Iterable[Record],
    out: Path,
    workers: int = 1,
    store: Path | None = None,
) -> Estimate:
    """So many runs at once, in this order, with a store; phases that it or a checkpoint in `out` holds are done."""
    pace, stored = Pace(records), set(_stored(store))
    paid = set(stored)
    seconds, next_phase, guessed = [], [], False
    for config in configs:
        device = Device.choose(config.engine)
        classes, images = SIZES[family_of(config.protocol.data)]
        protocol = config.protocol
        stream = make_stream(
            classes, protocol.class_order, protocol.base, protocol.step, protocol.phase_sizes
        )
        first, *later = images_by_phase(config, stream, [images] * len(stream.order))
        done = finished_phases(run_folder(out, config) / CHECKPOINT, config)
        first_pace, first_known = pace.of(config, device, first=True)
        later_pace, later_known = pace.of(config, device, first=False)
        packed = workers if device.torch.type == "cuda" else 1  # a GPU is shared
        wanted = {} if done else dict(_phase_zeros(config, first, len(stream.order), images))
        unpaid, unfinished = (
            sum(cost for shared, cost in wanted.items() if shared not in known) * first_pace * packed
            for known in (paid, stored)
        )
        paid |= wanted.keys()
        costs = [cost * later_pace * packed for cost in later[max(done - 1, 0) :]]
        guessed = guessed or not (first_known and (later_known or not later))
        seconds.append(unpaid + sum(costs))
        next_phase.append(unfinished or next(iter(costs), 0.0))
    return Estimate(seconds, next_phase, guessed)


def _stored(store: Path | None) -> Iterator[str]:
    """The phase 0s of a store, as runs share them. By their settings alone: whether the data, the device and the
    versions agree, too, a run finds out when it looks for its own."""
    for path in sorted(store.glob("*.safetensors")) if store else []:
        with contextlib.suppress(UserError):  # damaged: it will be made anew
            yield phase_zero_of(RunConfig.from_dict(read_facts(path)["config"]))


def _phase_zeros(config: RunConfig, own: int, classes: int, images: int) -> Iterable[tuple[str, int]]:
    """(what runs share, its images): the phase 0, and where an oracle is mimicked that of all the run's classes."""
    yield phase_zero_of(config), own
    if trains_an_oracle(config):
        oracle = replace(config, initial=(), protocol=replace(config.protocol, phase_sizes=(classes,)))
        yield phase_zero_of(oracle), config.training.first.epochs * classes * images
