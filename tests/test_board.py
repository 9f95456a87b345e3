"""TensorBoard: what is written, also from runs in other processes, and what is said where it is missing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasezero import cli
from phasezero.board import boards
from phasezero.errors import UserError
from phasezero.presets import preset
from phasezero.results.record import Record
from phasezero.session import run_all

SETTINGS = {
    "protocol.phase_sizes": [3, 1, 1],
    "protocol.memory": "per_class:2",
    "training.first.epochs": 2,
    "training.later.epochs": 1,
    "training.first.batch_size": 512,
    "training.later.batch_size": 512,
}


def scalars(folder: Path) -> Any:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def check(folder: Path, record: Record) -> None:
    events = scalars(folder)
    losses = events.Scalars("loss/train")
    expected = [loss for phase in record["phases"] for loss in phase["loss"]["train"]]
    assert [event.step for event in losses] == [0, 1, 2, 3]
    assert [event.value for event in losses] == pytest.approx(expected)
    for classifier in ("head", "nearest_mean"):
        points = events.Scalars(f"accuracy/{classifier}")
        assert [point.step for point in points] == [3, 4, 5]
        wanted = [phase["accuracy"][classifier] for phase in record["phases"]]  # type: ignore[literal-required]
        assert [point.value for point in points] == pytest.approx(wanted)
    text = events.Tensors("configuration/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "phase_sizes" in text


def test_runs_side_by_side_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    configs = [preset("lucir/glyphs/b50s10", seed=seed).override(SETTINGS) for seed in (0, 1)]
    written = run_all(configs, out=tmp_path / "runs", parallel=2, watch=boards(tmp_path / "board"))
    for record in written.records:
        check(tmp_path / "board" / "lucir-glyphs-b50s10" / f"seed{record['seed']}", record)


def test_a_board_that_cannot_be_written_costs_no_earlier_run(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "boards", lambda folder: lambda config: Path(folder, "x").mkdir())
    words = ["run", "--method", "lucir", "--parallel", "1", "--out", "out"]
    words += [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    assert command(*words)[0] == 0
    before = sorted(tmp_path.rglob("*"))
    code, _, err = command(*words, "--overwrite", "--tensorboard", "out/results.md")
    assert code == 2
    assert err.endswith("choose another --tensorboard\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_phase_0_out_of_the_store_is_written_too(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    config, store = preset("lucir/glyphs/b50s10").override(SETTINGS), tmp_path / "store"
    run_all([config], out=tmp_path / "first", store=store)
    (record,) = run_all(
        [config], out=tmp_path / "second", store=store, watch=boards(tmp_path / "board")
    ).records
    assert record["timing"]["reused_phase_zero"]
    check(tmp_path / "board" / "lucir-glyphs-b50s10" / "seed0", record)


def test_without_tensorboard_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"phasezero\[tensorboard\]"):
        boards(tmp_path / "board")
    assert list(tmp_path.iterdir()) == []
