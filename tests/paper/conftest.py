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
from phasezero.records.run import Record, summarise, write_record
from samples import train


@pytest.fixture(scope="session")
def record_of(toy_data: ImageData) -> Callable[..., Record]:
    settings = {"protocol.phase_sizes": [4, 2], "protocol.memory": "per_class:3", "training.first.epochs": 1}
    trained = train(preset("lucir/glyphs/b50s10").override({**settings, "training.later.epochs": 1}), data=toy_data)

    def make(config: RunConfig, average: float = 70.0, precision: str = "bf16") -> Record:
        record = copy.deepcopy(trained)
        record["config"] = config.to_dict()
        record["name"], record["method"], record["seed"] = config.name, config.method.name, config.seed
        record["initial"] = [term.label for term in config.initial]
        record["data"]["name"] = config.protocol.data
        record["environment"]["precision"] = precision
        for phase in record["phases"]:
            phase["accuracy"] = {one: known and average for one, known in phase["accuracy"].items()}
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
