"""The oracle-mimic term: Eq. 1, and where its oracle comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from phasezero import UserError, run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.persist import OracleWorkshop, phase_checkpoint
from phasezero.engine.store import PhaseZeroStore
from phasezero.initial.mimic import Mimic, oracle_mimicry

Make = Callable[..., RunConfig]


def slow_mimicry(features: list[list[float]], oracle: list[list[float]]) -> float:
    total = 0.0
    for ours, theirs in zip(features, oracle, strict=True):
        product = sum(a * b for a, b in zip(ours, theirs, strict=True))
        total += 1 - product / math.sqrt(sum(a * a for a in ours)) / math.sqrt(sum(b * b for b in theirs))
    return total / len(features)


def test_the_value_is_equation_one_and_the_gradient_is_its_slope() -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(6, 5, dtype=torch.float64, generator=rng, requires_grad=True)
    oracle = torch.randn(6, 5, dtype=torch.float64, generator=rng)
    value = oracle_mimicry(features, oracle)
    assert value.item() == pytest.approx(slow_mimicry(features.tolist(), oracle.tolist()), abs=1e-12)
    assert torch.autograd.gradcheck(lambda x: oracle_mimicry(x, oracle), (features,))


def test_a_run_trains_an_oracle_and_the_store_keeps_it(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_config("lucir+mimic/glyphs/b50s10")
    record = run(config, data=toy_data, store=tmp_path)
    assert record["initial"] == ["mimic:10"]
    names = sorted(entry.note["name"] for entry in PhaseZeroStore(tmp_path).entries())
    assert names == ["lucir+mimic/glyphs/b50s10", "oracle/glyphs"]
    plain = run(toy_config("lucir/glyphs/b50s10"), data=toy_data)
    assert record["phases"][0]["loss"]["train"][0] > plain["phases"][0]["loss"]["train"][0] + 0.1


def test_the_oracle_is_the_phase_0_of_a_run_of_all_classes(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """One entry of the store for both: the figures of the oracle and of models of ever more classes share it."""
    run(toy_config("lucir+mimic/glyphs/b50s10"), data=toy_data, store=tmp_path)
    everything = toy_config("lucir/glyphs/b50s10", protocol__phase_sizes=[8])
    reused = run(everything, data=toy_data, store=tmp_path)
    assert reused["timing"]["reused_phase_zero"]
    anew = run(everything, data=toy_data)
    assert reused["phases"][0]["confusion"] == anew["phases"][0]["confusion"]
    assert reused["phases"][0]["memory"] == anew["phases"][0]["memory"]


def test_the_oracle_is_frozen_and_the_same_from_the_store(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_config("lucir+mimic/glyphs/b50s10")
    workshop = OracleWorkshop(config, toy_data, store=PhaseZeroStore(tmp_path))
    trained, found = workshop.oracle(""), workshop.oracle("")
    assert trained.head.classes == 8
    assert not trained.training
    assert not any(parameter.requires_grad for parameter in trained.parameters())
    for one, other in zip(trained.state_dict().values(), found.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_an_oracle_from_a_checkpoint(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    run(toy_config("lucir/glyphs/b50s10"), data=toy_data, checkpoint=whole)
    run(toy_config("lucir/glyphs/b50s10", protocol__phase_sizes=[4, 2]), data=toy_data, checkpoint=part)
    config = toy_config("lucir+mimic/glyphs/b50s10")
    assert run(config.override({"initial.0.oracle": str(whole)}), data=toy_data)["phases"]
    with pytest.raises(UserError, match="has seen 6 classes, the run has 8"):
        run(config.override({"initial.0.oracle": str(part)}), data=toy_data)
    with pytest.raises(UserError, match="initial mimic: there is no file"):
        run(config.override({"initial.0.oracle": str(tmp_path / "none")}), data=toy_data)
    other = config.override({"initial.0.oracle": str(whole), "network.name": "resnet32"})
    with pytest.raises(UserError, match="not of the network 'resnet32'"):
        run(other, data=toy_data)


def test_alone_it_says_what_it_lacks() -> None:
    with pytest.raises(UserError, match="needs an oracle"):
        Mimic(Mimic.Options(), Phase(0, 0, 4))


def test_an_oracle_of_something_else_is_refused(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """The shapes of all of these fit."""
    config = toy_config("lucir+mimic/glyphs/b50s10", protocol__phase_sizes=[2, 1])
    others = {
        "has not seen 3 of the run's classes": {"protocol__class_order": [7, 6, 5]},
        "as it is here": {"network__last_relu": True},
        "was trained on 'elsewhere'": {"protocol__data": "elsewhere"},
    }
    for place, (message, settings) in enumerate(others.items()):
        path = tmp_path / str(place)
        oracle = toy_config("lucir/glyphs/b50s10", protocol__phase_sizes=[3], **settings)
        run(oracle, data=toy_data, checkpoint=path)
        with pytest.raises(UserError, match=message):
            run(config.override({"initial.0.oracle": str(path)}), data=toy_data)


def test_an_oracle_may_lack_one_class_of_the_run_and_no_more(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """As the authors' own did. What counts is what it has seen, not what its run would have come to."""
    config = toy_config(
        "lucir+mimic/glyphs/b50s10", protocol__class_order=[0, 1, 2], protocol__base=2, protocol__step=1
    )
    assert run(config, data=toy_data)["phases"]  # its oracle has three classes, not all eight

    def oracle(order: list[int], sizes: list[int]) -> RunConfig:
        """That of the first phase."""
        path = tmp_path / f"{order}.safetensors"
        plain = toy_config("lucir/glyphs/b50s10", protocol__class_order=order, protocol__phase_sizes=sizes)
        run(plain, data=toy_data, checkpoint=path, keep_phases=True)
        return config.override({"initial.0.oracle": str(phase_checkpoint(path, 0))})

    assert run(oracle([0, 1], [2]), data=toy_data)["phases"]
    for order, sizes in (([0, 6, 7], [3]), ([0, 6, 7, 1, 2], [3, 2])):
        with pytest.raises(UserError, match="has not seen 2 of the run's classes"):
            run(oracle(order, sizes), data=toy_data)
