"""`record_of`: a record as if a configuration had been run, made from one tiny run that was."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.experiment import run
from phasezero.presets import preset
from phasezero.results.record import Record, summarise


@pytest.fixture(scope="session")
def record_of(toy_data: ImageData) -> Callable[..., Record]:
    settings = {
        "protocol.phase_sizes": [4, 2],
        "protocol.memory": "per_class:3",
        "training.first.epochs": 1,
        "training.later.epochs": 1,
    }
    trained = run(preset("lucir/glyphs/b50s10").override(settings), data=toy_data)

    def make(config: RunConfig, average: float = 70.0, precision: str = "bf16") -> Record:
        record = copy.deepcopy(trained)
        record["config"] = config.to_dict()
        record["name"], record["method"], record["seed"] = config.name, config.method.name, config.seed
        record["initial"] = [term.label for term in config.initial]
        record["data"]["name"] = config.protocol.data
        record["environment"]["precision"] = precision
        for phase in record["phases"]:
            phase["accuracy"] = {one: known and average for one, known in phase["accuracy"].items()}  # type: ignore[typeddict-item]
        record["summary"] = summarise(record["phases"])
        return record

    return make
