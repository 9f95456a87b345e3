"""Tables of targets, from records with chosen numbers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.reproduce.plan import Line, expand
from phasezero.reproduce.targets import TARGETS
from phasezero.reproduce.views import Drawn, Shown, cells_grid, curves_grid, methods_grid, write_texts
from phasezero.results.grid import Grid
from phasezero.results.record import Record

Make = Callable[..., Record]
PATH = Path("there/record.json")


def shown(name: str, data: str, lines: Sequence[Line]) -> Shown:
    return Shown(TARGETS[name], data, lines, {}, (0, 1, 2))


def row(grid: Grid, *start: str) -> list[str]:
    (found,) = [one for one in grid.texts() if one[: len(start)] == list(start)]
    return found[len(start) :]


@pytest.fixture
def table1(record_of: Make) -> Shown:
    averages: Mapping[str, Sequence[float]] = {
        "lucir/cifar100/b50s10": [66.0, 67.0],
        "lucir+cwd/cifar100/b50s10": [67.0, 68.0, 69.0],
        "lucir/cifar100/b50s5": [60.0],
    }
    lines = []
    for line in expand(TARGETS["table1"], "cifar100", {}):
        records = {
            seed: (PATH, record_of(line.seeded(seed), value))
            for seed, value in enumerate(averages.get(line.config.name, []))
        }
        lines.append(replace(line, records=records))
    return shown("table1", "cifar100", lines)


def test_table_1_has_n_in_each_cell_and_the_gain_under_cwd(table1: Shown) -> None:
    grid = methods_grid(table1)
    assert grid.header == ["method", "S=10", "paper", "gap", "S=5", "paper", "gap", "S=2", "paper", "gap"]
    assert row(grid, "LUCIR")[:4] == ["66.50 ± 0.71 (n=2)", "66.27 ± 0.28", "+0.23", "60.00 (n=1)"]
    assert row(grid, "LUCIR + CwD")[:4] == ["68.00 ± 1.00 (n=3)", "67.26 ± 0.16", "+0.74", "not run"]
    names = [str(one[0]) for one in grid.rows]
    assert names[3:6] == ["LUCIR", "LUCIR + CwD", "gain of CwD"]
    assert names.count("gain of CwD") == 3
    # 68.0 - 66.5 and 67.26 - 66.27; at S=5 and S=2 ours has no gain yet, the paper's has.
    gain = [str(cell) for cell in grid.rows[5]]
    assert gain == ["gain of CwD", "+1.50", "+0.99", "-", "-", "+2.09", "-", "-", "+3.85", "-"]


def test_curves_have_their_phases(record_of: Make, tmp_path: Path) -> None:
    lines = expand(TARGETS["fig5"], "cifar100", {})[:2]
    records = {}
    for seed, accuracies in enumerate([(80.0, 60.0), (82.0, 61.0)]):
        record = record_of(lines[0].seeded(seed), 70.0 + seed)
        for phase, accuracy in zip(record["phases"], accuracies, strict=True):
            phase["accuracy"]["head"] = accuracy
        records[seed] = (PATH, record)
    some = shown("fig5", "cifar100", [replace(lines[0], records=records), lines[1]])
    grid = curves_grid(some)
    assert grid.header[4:8] == ["phase 0", "last", "ours", "n"]
    assert row(grid, "LUCIR")[3:7] == ["81.00 ± 1.41", "60.50 ± 0.71", "70.50 ± 0.71", "2"]
    assert row(grid, "LUCIR + CwD")[3:7] == ["-", "-", "not run", "0"]
    write_texts(some, Drawn(grid), tmp_path / "fig5")
    first, second = csv.DictReader((tmp_path / "fig5.csv").read_text().splitlines())
    assert (first["4 classes"], first["6 classes"]) == ("81.0", "60.5")  # after 4 classes, and 2 more
    assert float(first["6 classes std"]) == pytest.approx(0.5**0.5)
    assert second["4 classes"] == ""


def test_whose_number_stands_beside_ours_is_in_the_heading() -> None:
    lines = expand(TARGETS["table2"], "cifar100", {})
    assert "paper (ImageNet100)" in cells_grid(shown("table2", "cifar100", lines)).header
    own = expand(TARGETS["table2"], "imagenet100-cwd", {})
    assert "paper" in cells_grid(shown("table2", "imagenet100-cwd", own)).header


def test_how_a_run_was_computed_leaves_the_gap(table1: Shown) -> None:
    fp16 = replace(table1, settings={"engine.precision": "fp16"})
    assert row(methods_grid(fp16), "LUCIR") == row(methods_grid(table1), "LUCIR")
    longer = replace(table1, settings={"training.later.epochs": 200})
    assert row(methods_grid(longer), "LUCIR")[2] == "-"


def test_a_row_of_models_names_its_own_records(record_of: Make, tmp_path: Path) -> None:
    lines = [
        replace(line, records={0: (tmp_path / f"{place}/record.json", record_of(line.seeded(0)))})
        for place, line in enumerate(expand(TARGETS["fig1"], "glyphs", {}))
    ]
    models = Grid(["model", "n"], [[line.config.name, "1"] for line in reversed(lines)])
    write_texts(shown("fig1", "glyphs", lines), Drawn(models), tmp_path / "fig1")
    with (tmp_path / "fig1.csv").open() as file:
        found = {one["model"]: one["records"] for one in csv.DictReader(file)}
    assert found == {line.config.name: f"{place}/record.json" for place, line in enumerate(lines)}


def test_what_was_not_run_is_an_empty_field(table1: Shown, tmp_path: Path) -> None:
    write_texts(table1, Drawn(methods_grid(table1)), tmp_path / "table1")
    with (tmp_path / "table1.csv").open() as file:
        ours = [one["ours"] for one in csv.DictReader(file)]
    assert "" in ours
    assert all(one == "" or float(one) for one in ours)


def test_runs_of_different_precision_are_told(table1: Shown, record_of: Make) -> None:
    said = "Runs of different precision are averaged together (LUCIR: bf16, fp16)."
    assert said not in table1.caption
    line = next(one for one in table1.lines if len(one.records) == 2)
    other = {**line.records, 1: (PATH, record_of(line.seeded(1), 67.0, "fp16"))}
    lines = [replace(line, records=other) if one is line else one for one in table1.lines]
    assert said in replace(table1, lines=lines).caption
