"""Check a configuration against its data, and count the images to train on, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from phasezero.config import Protocol, RunConfig
from phasezero.data.images import ImageData
from phasezero.data.sources import Photos, choose_photos
from phasezero.data.stream import ClassStream, make_stream
from phasezero.engine.device import Device
from phasezero.errors import UserError
from phasezero.initial import STRATEGIES
from phasezero.memory import MemoryRule
from phasezero.methods import METHODS
from phasezero.nets import NETWORKS, Pretrained, fits_network, load_backbone


@dataclass(frozen=True)
class Setup:
    """The results of `check`."""

    stream: ClassStream
    device: Device
    photos: Photos | None
    images: list[int]
    """Images to train on in each phase, times epochs."""
    evaluated: Sequence[int] = ()
    """Images to evaluate in each phase, roughly."""


def check(config: RunConfig, data: ImageData) -> Setup:
    """Raise UserError if this configuration cannot run on this data."""
    stream = stream_of(config.protocol, len(data.class_ids))
    sizes = np.bincount(data.train.labels, minlength=len(data.class_ids))[list(stream.order)]
    _check_memory(config.protocol.memory, [data.class_names[index] for index in stream.order], sizes.tolist())
    method, network = METHODS[config.method.name], config.network.name
    if not fits_network(network, method.network):
        fitting = ", ".join(name for name in NETWORKS if fits_network(name, method.network))
        raise UserError(f"method {config.method.name!r} does not work with network.name={network}; choose {fitting}")
    if config.network.weights:
        loaded = load_backbone(config.network.weights)
        if loaded.name != network:
            raise UserError(f"network.weights are those of {loaded.name}; set network.name={loaded.name}")
        data = prepared_for(data, loaded.for_size(config.network.image_size))
    for one in config.initial:
        if one.file and not Path(one.file).is_file():
            raise UserError(f"initial {one.name}: no such file: {one.file}")
    first = int(sizes[: stream.phases[0].seen].sum())
    device = Device.choose(config.engine, config.training.first.steps(first))
    photos = choose_photos(config.engine.photos, data, device.torch)
    tests = np.bincount(data.test.labels, minlength=len(data.class_ids))[list(stream.order)].tolist()
    images = images_by_phase(config, stream, sizes.tolist())
    return Setup(stream, device, photos, images, evaluated_by_phase(config, stream, sizes.tolist(), tests))


def prepared_for(data: ImageData, loaded: Pretrained) -> ImageData:
    """Return the data with the preparation that pretrained weights expect; they need image files."""
    if data.in_memory:
        raise UserError(
            f"network.weights: {loaded.name} reads photos of {loaded.size} pixels, and data {data.name!r} has images "
            "in memory; use folder:PATH, or phasezero.Learner for arrays"
        )
    prepared = replace(data.preparation, mean=loaded.mean, std=loaded.std, size=loaded.size, resize=loaded.resize)
    return replace(data, preparation=prepared)


def stream_of(protocol: Protocol, classes: int) -> ClassStream:
    """Return the class stream of a protocol on data with this number of classes."""
    return make_stream(classes, protocol.class_order, protocol.base, protocol.step, protocol.phase_sizes)


def _check_memory(memory: str, names: Sequence[str], sizes: Sequence[int]) -> None:
    rule, most, instead = MemoryRule.parse(memory), sum(sizes), ""
    there = f"there are only {most} training images"
    if rule.kind == "per_class":
        most, instead = min(sizes), ", or use total:M"
        there = f"class {names[sizes.index(most)]!r} has only {most} training images"
    if rule.count > most:
        raise UserError(f"memory {memory}: {there}; keep at most {rule.kind}:{most}{instead}")


def images_by_phase(config: RunConfig, stream: ClassStream, class_sizes: Sequence[int]) -> list[int]:
    """Return images times epochs of each phase's main stage, given the images of each class of the stream."""
    rule = MemoryRule.parse(config.protocol.memory)
    method = METHODS[config.method.name]
    totals = []
    for phase in stream.phases:
        quota = rule.quota(phase.old) if phase.old else 0
        kept = sum(size if method.sees_everything else min(quota, size) for size in class_sizes[: phase.old])
        schedule = config.training.later if phase.index else config.training.first
        epochs = schedule.epochs if method.trains_later or not phase.index else 0
        totals.append(epochs * (sum(class_sizes[phase.old : phase.seen]) + kept))
    return totals


def evaluated_by_phase(
    config: RunConfig, stream: ClassStream, class_sizes: Sequence[int], test_sizes: Sequence[int]
) -> list[int]:
    """Return the images that each phase evaluates at least: for exemplars or a frozen classifier, and for the test."""
    rule, frozen = MemoryRule.parse(config.protocol.memory), not METHODS[config.method.name].trains_later
    totals = []
    for phase in stream.phases:
        quota = rule.quota(phase.seen)
        herded = frozen or (quota > 0 and config.protocol.selection == "herding")
        new = sum(class_sizes[phase.old : phase.seen]) if herded else 0
        means = sum(min(quota, size) for size in class_sizes[: phase.seen])
        # A frozen backbone sees each test image once.
        totals.append(new + means + sum(test_sizes[phase.old if frozen else 0 : phase.seen]))
    return totals


def trains_an_oracle(config: RunConfig) -> bool:
    """Tell whether a strategy needs an oracle and was given no checkpoint of it."""
    return any(STRATEGIES[one.name].looks_ahead and not one.file for one in config.initial)


def teachers_of(config: RunConfig) -> list[RunConfig]:
    """Return the configurations whose phase 0 must be trained before that of this run."""
    needing = [one.name for one in config.initial if STRATEGIES[one.name].needs_phase_zero]
    return [replace(config, initial=tuple(o for o in config.initial if o.name != name)) for name in needing]
