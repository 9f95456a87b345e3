"""Records as if configurations had been run, made from one tiny run, and folders of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from torch import Tensor

from phasezero.config import RunConfig
from phasezero.data.catalog import DATA_SETS, load_data, register_data
from phasezero.data.images import ImageData
from phasezero.initial import STRATEGIES, Term, register_initial
from phasezero.methods import METHODS, Method, register_method
from phasezero.methods.stage import Batch
from phasezero.presets import preset
from phasezero.records.run import Record, data_record, phase_record, summarise, write_record
from samples import confusion_with, train


@pytest.fixture(scope="session")
def record_of(toy_data: ImageData) -> Callable[..., Record]:
    settings = {"protocol.phase_sizes": [4, 2], "protocol.memory": "per_class:3", "training.first.epochs": 1}
    trained = train(preset("lucir/glyphs/b50s10").override({**settings, "training.later.epochs": 1}), data=toy_data)

    def make(config: RunConfig, average: float = 70.0, precision: str = "bf16") -> Record:
        """The tiny run as a run of the configuration's first two phases, with this accuracy in both."""
        record, protocol = copy.deepcopy(trained), config.protocol
        record["config"] = config.to_dict()
        record["name"], record["method"], record["seed"] = config.name, config.method.name, config.seed
        record["initial"] = [term.label for term in config.initial]
        record["environment"]["precision"] = precision
        sizes = protocol.phase_sizes or (protocol.base, *([protocol.step] if protocol.step else []))
        classes = [f"bar {place}" for place in range(sum(sizes))]
        listed = list(range(len(classes))) if isinstance(protocol.class_order, str) else list(protocol.class_order)
        record["data"] = data_record(
            name=protocol.data,
            class_ids=classes,
            class_names=classes,
            class_order=protocol.class_order if isinstance(protocol.class_order, str) else "list",
            class_order_indices=listed[: len(classes)],
            train_images=len(classes) * 14,
            test_images=len(classes) * 10_000,
        )
        record["phases"] = [
            phase_record(
                phase_sizes=sizes[: place + 1],
                confusions={
                    name: confusion_with([round(average * 100)] * sum(sizes[: place + 1]), 10_000)
                    for name in ("head", "nearest_mean")
                },
                train_images=sizes[place] * 14,
                memory_per_class=[3] * sum(sizes[: place + 1]),
                loss=trained["phases"][0]["loss"],
                seconds=trained["phases"][0]["seconds"],
            )
            for place in range(len(sizes))
        ]
        record["summary"] = summarise(record["phases"])
        return record

    return make


@pytest.fixture
def keep(record_of: Callable[..., Record], tmp_path: Path) -> Callable[..., None]:
    """Writes records into a folder `results`, one for each seed, with these averages."""

    def write(config: RunConfig, values: Sequence[float], precision: str = "fp16") -> None:
        for seed, value in enumerate(values):
            name = config.name.replace("/", "-").replace(":", "-")
            path = tmp_path / "results" / f"{name}-{precision}" / f"seed{seed}" / "record.json"
            write_record(path, record_of(config.override({"seed": seed}), value, precision))

    return write


@pytest.fixture
def plug_ins() -> Iterator[None]:
    """A method, a phase-0 term and a data set that the paper does not have."""

    @register_method("mine")
    class Mine(Method):
        pass

    @register_initial("my-term")
    class MyTerm(Term):
        def __call__(self, batch: Batch) -> Tensor:
            return batch.output.features.square().mean()

    register_data("my-data", recipe=DATA_SETS["glyphs"].recipe)(lambda root, argument: load_data("glyphs"))
    yield
    for registry, name in ((METHODS, "mine"), (STRATEGIES, "my-term"), (DATA_SETS, "my-data")):
        registry._entries.pop(name)
