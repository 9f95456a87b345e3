"""Studies: nested models through the ordinary session, each trained and analysed once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.analysis.study import nested_configs, study
from phasezero.errors import UserError
from phasezero.presets import preset
from phasezero.runs.session import run_folder
from samples import MINIMAL


def test_nested_configurations() -> None:
    found = nested_configs(config := preset("lucir+cwd/glyphs/b50s10"), (2, 4))
    assert [one.protocol.phase_sizes for one in found] == [(2,), (4,)]
    assert [one.name for one in found] == ["lucir+cwd/glyphs/sizes2", "lucir+cwd/glyphs/sizes4"]
    assert {(one.seed, one.protocol.class_order) for one in found} == {(config.seed, config.protocol.class_order)}


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    configs = nested_configs(preset("lucir/glyphs/b50s10").override(MINIMAL), (2, 3))
    found = study(configs, tmp_path / "out", store=tmp_path / "store", parallel=1)
    assert [one["seen_classes"] for one in found] == [2, 3]
    assert found[0]["classes"] == found[1]["classes"][:2]
    assert len(list((tmp_path / "store").glob("*.safetensors"))) == 2
    files = sorted((tmp_path / "out").rglob("analysis-phase0.json"))
    written = [path.stat().st_mtime_ns for path in files]
    assert study(configs, tmp_path / "out", store=tmp_path / "store", parallel=1) == found
    assert [path.stat().st_mtime_ns for path in files] == written
    files[0].unlink()  # an analysis that is gone is made again, of the model that is there
    checkpoint = run_folder(tmp_path / "out", configs[0]) / "checkpoint.safetensors"
    before = checkpoint.stat().st_mtime_ns
    assert study(configs, tmp_path / "out", parallel=1) == found
    assert checkpoint.stat().st_mtime_ns == before

    other = [replace(configs[0], training=replace(configs[0].training, brightness=0.1))]
    with pytest.raises(UserError, match="another configuration"):
        study(other, tmp_path / "out", parallel=1)


def test_phases_and_future_classes(tmp_path: Path) -> None:
    config = preset("lucir/glyphs/b50s10").override({**MINIMAL, "protocol.phase_sizes": [2, 1]})
    first, last = study([config], tmp_path, phases=(0, -1), parallel=1)
    assert (first["phase"], last["phase"]) == (0, 1)
    assert len(first["classes"]) == 2
    first, last = study([config], tmp_path, phases=(0, -1), parallel=1, future=True)
    assert len(first["classes"]) == 3
