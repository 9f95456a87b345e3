"""Sessions: what is refused before the first of several runs begins."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.config import RunConfig
from phasezero.engine.passes import DivergenceError
from phasezero.errors import UserError
from phasezero.experiment import run
from phasezero.presets import preset
from phasezero.results.record import FILE_NAME
from phasezero.session import CHECKPOINT, DIVERGED, run_all, run_folder, slug
from samples import MINIMAL

FIRST = preset("lucir/glyphs/b50s10").override(MINIMAL)


def refused(second: RunConfig, out: Path, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_all([FIRST, second], out=out, resume=True, parallel=1)
    assert not run_folder(out, FIRST).exists()  # the first was not begun


def test_a_checkpoint_of_another_configuration(tmp_path: Path) -> None:
    second = replace(FIRST, seed=1)
    run(second.override({"training.first.lr": 0.05}), checkpoint=run_folder(tmp_path, second) / CHECKPOINT)
    refused(second, tmp_path, r"another configuration \(training.first.lr is 0.05 there")


def test_a_network_that_the_method_cannot_use(tmp_path: Path) -> None:
    second = preset("aanet/glyphs/b50s10").override({**MINIMAL, "network.name": "alexnet-3d"})
    refused(second, tmp_path, "does not work with")


def test_an_oracle_that_is_not_there(tmp_path: Path) -> None:
    second = preset("lucir+mimic/glyphs/b50s10").override({**MINIMAL, "initial.0.oracle": "nowhere"})
    refused(second, tmp_path, "there is no file nowhere")


def test_a_name_too_long_for_a_folder_is_cut_and_stays_its_own() -> None:
    one, other = slug("x" * 300), slug("x" * 300 + "y")
    assert len(one) < 200
    assert one != other
    assert slug("lucir+cwd/cifar100/b50s10") == "lucir+cwd-cifar100-b50s10"


def test_what_showed_an_overwritten_run_goes_with_it(tmp_path: Path) -> None:
    run_all([FIRST], out=tmp_path, parallel=1)
    diverging = FIRST.override({"engine.loss_limit": 1e-6})
    with pytest.raises(DivergenceError):
        run_all([diverging], out=tmp_path, overwrite=True, parallel=1)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_store_that_cannot_be_written_costs_no_earlier_run(tmp_path: Path) -> None:
    run_all([FIRST], out=tmp_path / "out", parallel=1)
    before = sorted(tmp_path.rglob("*"))
    store = run_folder(tmp_path / "out", FIRST) / FILE_NAME  # a file
    with pytest.raises(UserError, match=r"cannot be written: .*; choose another --store"):
        run_all([FIRST], out=tmp_path / "out", overwrite=True, store=store, parallel=1)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_diverged_once_and_then_did_not_is_no_longer_called_so(tmp_path: Path) -> None:
    said = run_folder(tmp_path, FIRST) / DIVERGED
    diverging = FIRST.override({"engine.loss_limit": 1e-6})
    run_all([diverging], out=tmp_path, parallel=1, go_on=True)
    assert "diverged" in said.read_text()
    run_all([FIRST], out=tmp_path, parallel=1, resume=True)
    assert (said.parent / FILE_NAME).exists()
    assert not said.exists()


def test_what_a_killed_writer_left_goes_when_the_run_goes_on(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, FIRST)
    folder.mkdir(parents=True)
    for left in (folder / f".{CHECKPOINT}.123.tmp", tmp_path / ".results.md.123.tmp"):
        left.write_text("half a fi")
        os.utime(left, (time.time() - 100, time.time() - 100))
    living = folder / f".{CHECKPOINT}.456.tmp"
    living.write_text("a second command may be writing it")
    run_all([FIRST], out=tmp_path, parallel=1, resume=True)
    found = sorted(path.name for path in folder.iterdir())
    assert found == [living.name, CHECKPOINT, "config.yaml", FILE_NAME]
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    second = replace(FIRST, seed=1)
    path = run_folder(tmp_path, second) / CHECKPOINT
    run(second, checkpoint=path)
    path.write_bytes(path.read_bytes()[:5000])
    refused(second, tmp_path, "cannot be read.*remove it")


def test_an_oracle_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "oracle").write_text("{}")
    second = preset("lucir+mimic/glyphs/b50s10").override(
        {**MINIMAL, "initial.0.oracle": str(tmp_path / "oracle")}
    )
    refused(second, tmp_path / "out", "no checkpoint of phasezero")
    assert not (tmp_path / "out").exists()
