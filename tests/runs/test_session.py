"""Sessions: what is refused before the first of several runs begins, and what stays in their folder."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.config import RunConfig
from phasezero.engine.deadline import Deadline
from phasezero.errors import DivergenceError, UserError
from phasezero.presets import preset
from phasezero.records.files import slug
from phasezero.records.run import FILE_NAME
from phasezero.runs.run import run
from phasezero.runs.session import CHECKPOINT, DIVERGED, divergence_of, run_all, run_folder
from samples import MINIMAL

FIRST = preset("lucir/glyphs/b50s10").override(MINIMAL)
DIVERGING = FIRST.override({"engine.loss_limit": 1e-6})


def refused(second: RunConfig, out: Path, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_all([FIRST, second], out=out, resume=True, parallel=1)
    assert not run_folder(out, FIRST).exists()  # the first was not begun


def test_a_checkpoint_that_is_foreign_or_damaged(tmp_path: Path) -> None:
    second = replace(FIRST, seed=1)
    path = run_folder(tmp_path, second) / CHECKPOINT
    run(replace(second, name="other").override({"training.first.lr": 0.05}), checkpoint=path)
    refused(second, tmp_path, r"another configuration \(training.first.lr is 0.05 there")
    path.write_bytes(path.read_bytes()[:5000])
    refused(second, tmp_path, "is damaged: its content does not match its sha256; remove it")


def test_a_network_that_the_method_cannot_use(tmp_path: Path) -> None:
    second = preset("aanet/glyphs/b50s10").override({**MINIMAL, "network.name": "alexnet-3d"})
    refused(second, tmp_path, "does not work with")


def test_an_oracle_that_is_not_there_or_not_a_checkpoint(tmp_path: Path) -> None:
    second, file = preset("lucir+mimic/glyphs/b50s10").override(MINIMAL), tmp_path / "oracle"
    refused(second.override({"initial.0.oracle": str(file)}), tmp_path / "out", "no such file")
    file.write_text("{}")
    refused(
        second.override({"initial.0.oracle": str(file)}),
        tmp_path / "out",
        "not a checkpoint of this version of phasezero",
    )
    assert not (tmp_path / "out").exists()


def test_runs_of_a_session_train_a_shared_phase_zero_once(tmp_path: Path) -> None:
    ridge = preset("ridge/glyphs/b50s10").override({**MINIMAL, "protocol.memory": "per_class:0", "method.width": 16})
    records = run_all([FIRST, ridge], out=tmp_path / "two", parallel=1).records
    assert [record["timing"]["reused_phase_zero"] for record in records] == [False, True]
    assert len(list((tmp_path / "two" / "phase0").glob("*.safetensors"))) == 1
    run_all([FIRST, replace(ridge, seed=1)], out=tmp_path / "apart", parallel=1)
    assert not (tmp_path / "apart" / "phase0").exists()


def test_a_name_too_long_for_a_folder_is_cut_and_stays_its_own() -> None:
    one, other = slug("x" * 300), slug("x" * 300 + "y")
    assert len(one) < 200
    assert one != other
    assert slug("lucir+cwd/cifar100/b50s10") == "lucir+cwd-cifar100-b50s10"


def test_what_showed_an_overwritten_run_goes_with_it(tmp_path: Path) -> None:
    run_all([FIRST], out=tmp_path, parallel=1)
    (tmp_path / "results.md").write_text("a view")
    with pytest.raises(DivergenceError):
        run_all([DIVERGING], out=tmp_path, overwrite=True, parallel=1, views=["results.md"])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_store_that_cannot_be_written_costs_no_earlier_run(tmp_path: Path) -> None:
    run_all([FIRST], out=tmp_path / "out", parallel=1)
    before = sorted(tmp_path.rglob("*"))
    store = run_folder(tmp_path / "out", FIRST) / FILE_NAME  # a file
    with pytest.raises(UserError, match=r"cannot be written: .*; choose another --store"):
        run_all([FIRST], out=tmp_path / "out", overwrite=True, store=store, parallel=1)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_divergence_is_kept_until_the_run_finishes(tmp_path: Path) -> None:
    said = run_folder(tmp_path, FIRST) / DIVERGED
    session = run_all([DIVERGING], out=tmp_path, parallel=1, keep_going=True)
    assert session.diverged == [said.read_text().strip()] == [divergence_of(DIVERGING, tmp_path)]
    assert (session.records, session.unfinished) == ([], [])
    assert divergence_of(FIRST, tmp_path) == ""  # of another configuration
    run_all([FIRST], out=tmp_path, parallel=1, resume=True)
    assert (said.parent / FILE_NAME).exists()
    assert not said.exists()


def test_what_a_killed_writer_left_goes_when_the_run_continues(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, FIRST)
    folder.mkdir(parents=True)
    for left in (folder / f".{CHECKPOINT}.123.tmp", tmp_path / ".results.md.123.tmp"):
        left.write_text("half a fi")
        os.utime(left, (time.time() - 100, time.time() - 100))
    recent = folder / f".{CHECKPOINT}.456.tmp"
    recent.write_text("no other command writes in this folder, because it is locked")
    run_all([FIRST], out=tmp_path, parallel=1, resume=True, views=["results.md"])
    found = sorted(path.name for path in folder.iterdir())
    assert found == [CHECKPOINT, "config.yaml", FILE_NAME]
    assert not list(tmp_path.glob(".*"))


def test_a_stopped_run_is_not_begun_anew_unasked(tmp_path: Path) -> None:
    ticks = iter([0.0, 99.0])
    stopped = run_all([FIRST], out=tmp_path, parallel=1, deadline=Deadline(1.0, lambda: next(ticks)))
    assert stopped.unfinished == [FIRST]
    (checkpoint,) = tmp_path.rglob(CHECKPOINT)
    before = checkpoint.read_bytes()
    with pytest.raises(UserError, match=r"already contains an unfinished run.*--resume"):
        run_all([FIRST], out=tmp_path, parallel=1)
    assert checkpoint.read_bytes() == before
    assert len(run_all([FIRST], out=tmp_path, parallel=1, resume=True).records) == 1


def test_only_runs_that_fit_are_started(tmp_path: Path) -> None:
    configs = [replace(FIRST, seed=seed) for seed in range(3)]
    deadline = Deadline(100.0, lambda: 0.0)
    assert (deadline.allows(100.0), deadline.allows(100.1)) == (True, False)
    written = run_all(configs, out=tmp_path, parallel=1, deadline=deadline, seconds=[99, 101, 50])
    assert [record["seed"] for record in written.records] == [0, 2]
    assert [config.seed for config in written.unfinished] == [1]
    assert not list(tmp_path.rglob(f"seed1/{CHECKPOINT}"))
