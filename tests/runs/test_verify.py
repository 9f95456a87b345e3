"""A phase of a finished run, trained again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from phasezero import UserError
from phasezero.data.images import ImageData
from phasezero.records.run import write_record
from phasezero.runs.session import CHECKPOINT
from phasezero.runs.verify import verify_run
from samples import Make, train


@pytest.fixture
def folder(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> Path:
    record = train(toy_config(), data=toy_data, checkpoint=tmp_path / CHECKPOINT, keep_phases=True)
    write_record(tmp_path / "record.json", record)
    return tmp_path


@pytest.mark.parametrize("phase", [0, 2])
def test_a_phase_trained_again_equals_the_record(phase: int, folder: Path, toy_data: ImageData) -> None:
    found = verify_run(folder, phase, data=toy_data)
    assert (found.differences, found.conditions, found.points) == ([], [], 0)


def test_differences_are_named(folder: Path, toy_data: ImageData) -> None:
    path = folder / "record.json"
    record = json.loads(path.read_text())
    del record["content_sha256"]
    record["phases"][1]["loss"]["train"][0] += 1e-9
    record["environment"]["torch"] = "1.0"
    path.write_text(json.dumps(record))
    found = verify_run(folder, 1, data=toy_data)
    assert found.differences == ["loss.train"]
    assert re.fullmatch("torch: 1.0 then, .* now", found.conditions[0])


def test_a_phase_whose_start_was_not_kept_is_refused(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    write_record(tmp_path / "record.json", train(toy_config(), data=toy_data, checkpoint=tmp_path / CHECKPOINT))
    with pytest.raises(UserError, match="the state after phase 0 was not kept; verify phase 0"):
        verify_run(tmp_path, 1, data=toy_data)
    with pytest.raises(UserError, match="phases 0 to 2"):
        verify_run(tmp_path, 3, data=toy_data)
