"""Studies: nested models through the ordinary session, each trained and analysed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.analysis.study import nested_configs, study
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.session import run_folder

Make = Callable[..., RunConfig]


def test_nested_configurations(toy_config: Make) -> None:
    config = toy_config()
    found = nested_configs(config, (2, 4))
    assert [one.protocol.phase_sizes for one in found] == [(2,), (4,)]
    assert [one.name for one in found] == ["lucir+cwd:0.1/glyphs/sizes2", "lucir+cwd:0.1/glyphs/sizes4"]
    assert {(one.seed, one.protocol.class_order) for one in found} == {
        (config.seed, config.protocol.class_order)
    }


def test_what_is_there_is_not_made_again(toy_config: Make, tmp_path: Path) -> None:
    quick = {"training__first__epochs": 1, "training__first__batch_size": 256}
    configs = nested_configs(toy_config("lucir/glyphs/b50s10", **quick), (2, 3))
    found = study(configs, tmp_path / "out", store=tmp_path / "store", parallel=1)
    assert [one["seen_classes"] for one in found] == [2, 3]
    assert found[0]["classes"] == found[1]["classes"][:2]
    assert len(list((tmp_path / "store").glob("*.safetensors"))) == 2
    files = sorted((tmp_path / "out").rglob("analysis-phase0.json"))
    written = [path.stat().st_mtime_ns for path in files]
    assert study(configs, tmp_path / "out", store=tmp_path / "store", parallel=1) == found
    assert [path.stat().st_mtime_ns for path in files] == written
    # An analysis that is gone is made again, of the model that is there.
    files[0].unlink()
    checkpoint = run_folder(tmp_path / "out", configs[0]) / "checkpoint.safetensors"
    before = checkpoint.stat().st_mtime_ns
    assert study(configs, tmp_path / "out", parallel=1) == found
    assert checkpoint.stat().st_mtime_ns == before

    other = [replace(configs[0], training=replace(configs[0].training, brightness=0.1))]
    with pytest.raises(UserError, match="another configuration"):
        study(other, tmp_path / "out", parallel=1)


def test_phases_and_future_classes(toy_config: Make, tmp_path: Path) -> None:
    quick = {
        f"training__{when}__{key}": value
        for when in ("first", "later")
        for key, value in (("epochs", 1), ("batch_size", 256))
    }
    config = toy_config("lucir/glyphs/b50s10", protocol__phase_sizes=[2, 1], **quick)
    first, last = study([config], tmp_path, phases=(0, -1), parallel=1)
    assert (first["phase"], last["phase"]) == (0, 1)
    assert len(first["classes"]) == 2
    first, last = study([config], tmp_path, phases=(0, -1), parallel=1, future=True)
    assert len(first["classes"]) == 3
