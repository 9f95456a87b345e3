"""The oracle-mimic term: Eq. 1, and where its oracle comes from."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import torch

from phasezero import UserError
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.checkpoint import phase_checkpoint
from phasezero.engine.oracle import TrainedOracle
from phasezero.engine.resume import Saving
from phasezero.engine.store import PhaseZeroStore
from phasezero.initial.mimic import Mimic, oracle_mimicry
from samples import Make, train
from slow import cosine_distance, normal, same_with_gradient


def test_the_value_is_equation_one_and_the_gradient_is_its_slope() -> None:
    features, oracle = normal(6, 5).requires_grad_(), normal(6, 5, seed=1)
    same_with_gradient(oracle_mimicry(features, oracle), cosine_distance(features, oracle), features)


def test_a_run_trains_an_oracle_which_is_the_phase_0_of_a_run_of_all_classes(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    record = train(toy_config("lucir+mimic/glyphs/b50s10"), data=toy_data, store=tmp_path)
    assert record["initial"] == ["mimic:10"]
    names = sorted(entry.note["name"].partition("/")[0] for entry in PhaseZeroStore(tmp_path).entries())
    assert names == ["lucir+mimic", "oracle"]
    # A run of all classes finds the oracle in the store.
    everything = toy_config("lucir/glyphs/b50s10", protocol__phase_sizes=[8])
    reused, anew = train(everything, data=toy_data, store=tmp_path), train(everything, data=toy_data)
    assert reused["timing"]["reused_phase_zero"]
    for fact in ("confusion", "memory"):
        assert reused["phases"][0][fact] == anew["phases"][0][fact]


def test_the_oracle_is_frozen_and_the_same_from_the_store(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_config("lucir+mimic/glyphs/b50s10")
    provider = TrainedOracle(config, toy_data, saving=Saving(store=tmp_path))
    trained, found = provider.oracle(""), provider.oracle("")
    assert trained.head.classes == 8
    assert not trained.training
    assert not any(parameter.requires_grad for parameter in trained.parameters())
    for one, other in zip(trained.state_dict().values(), found.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_without_a_run_the_missing_oracle_is_named() -> None:
    with pytest.raises(UserError, match="needs an oracle"):
        Mimic(Mimic.Options(), Phase(0, 0, 4))


def test_an_oracle_from_a_checkpoint(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    config = toy_config("lucir+mimic/glyphs/b50s10", protocol__phase_sizes=[2, 1])
    oracles = {
        "": {},
        "has seen 1 classes, the run has 3": {"protocol__phase_sizes": [1]},
        r"settings than this run \('resnet-glyphs'\)": {"network__name": "resnet32"},
        # The shapes of the rest fit.
        "has not seen 3 of the run's classes": {"protocol__class_order": [7, 6, 5]},
        "has other network settings": {"network__last_relu": True},
        "was trained on 'cifar100'": {"protocol__data": "cifar100"},
    }
    for place, (message, settings) in enumerate(oracles.items()):
        path = tmp_path / str(place)
        oracle = toy_config("lucir/glyphs/b50s10", **{"protocol__phase_sizes": [3], **settings})
        train(oracle, data=toy_data, checkpoint=path)
        with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
            assert train(config.override({"initial.0.oracle": str(path)}), data=toy_data)["phases"]
    with pytest.raises(UserError, match="initial mimic: no such file"):
        train(config.override({"initial.0.oracle": str(tmp_path / "none")}), data=toy_data)


def test_an_oracle_may_lack_one_class_of_the_run_and_no_more(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """As the authors' own oracle did. The classes that it has seen count, not those that its run had yet to see."""
    config = toy_config(
        "lucir+mimic/glyphs/b50s10", protocol__class_order=[0, 1, 2], protocol__base=2, protocol__step=1
    )
    assert train(config, data=toy_data)["phases"]  # its oracle has three classes, not all eight

    def oracle(order: list[int], sizes: list[int]) -> RunConfig:
        """Return the configuration with the oracle of a run's first phase."""
        path = tmp_path / f"{order}.safetensors"
        plain = toy_config("lucir/glyphs/b50s10", protocol__class_order=order, protocol__phase_sizes=sizes)
        train(plain, data=toy_data, checkpoint=path, keep_phases=True)
        return config.override({"initial.0.oracle": str(phase_checkpoint(path, 0))})

    assert train(oracle([0, 1], [2]), data=toy_data)["phases"]
    for order, sizes in (([0, 6, 7], [3]), ([0, 6, 7, 1, 2], [3, 2])):
        with pytest.raises(UserError, match="has not seen 2 of the run's classes"):
            train(oracle(order, sizes), data=toy_data)
