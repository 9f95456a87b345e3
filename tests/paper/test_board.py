"""The leaderboard and the study of CwD: what they show of records, against numbers computed by hand."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import pytest

from phasezero.config import RunConfig
from phasezero.engine.store import phase_zero_of
from phasezero.paper.board import anchors_grids, board_grid, draw_board, open_anchors, strict_anchors
from phasezero.paper.plan import RecordIndex, Request, attach, expand, missing_runs, on_cifar100, plan
from phasezero.paper.results import read_results, write_results
from phasezero.paper.study import draw_study, gains, published_gain, steps_of, study_grid
from phasezero.paper.tables import Output, Row, Table, write_texts
from phasezero.paper.targets import TARGETS
from phasezero.presets import FIRST_RUN, preset
from phasezero.records.run import Record
from phasezero.report.grid import Spread
from phasezero.report.tables import computing_seconds
from samples import line_of, make_record

Keep = Callable[..., None]


def table_of(name: str, folder: Path) -> Table:
    records, analyses = read_results(folder)
    (table,) = on_cifar100([name], RecordIndex(records, dict(analyses)))
    return table


@pytest.fixture
def kept(keep: Keep, tmp_path: Path) -> Callable[..., Path]:
    """Write records of presets with these averages, a seed for each; return their folder."""

    def write(averages: dict[str, Sequence[float]]) -> Path:
        for name, values in averages.items():
            keep(preset(name), values)
        return tmp_path / "results"

    return write


def test_the_board_combines_every_method_with_every_strategy_and_shares_phase_zero() -> None:
    rows = expand(TARGETS["board"], "cifar100")
    names = {(row.config.method.name, tuple(one.name for one in row.config.initial)) for row in rows}
    assert {"lucir", "aanet", "podnet", "ridge", "ncm"} == {method for method, _ in names}
    assert ("ridge", ("augment", "sla", "cwd")) in names
    memory = {row.config.method.name: row.config.protocol.memory for row in rows}
    assert memory == {
        **dict.fromkeys(("lucir", "aanet", "podnet"), "per_class:20"),
        "ridge": "per_class:0",
        "ncm": "per_class:0",
    }
    phase_zeros = {phase_zero_of(row.config) for row in rows if row.config.method.name != "podnet"}
    assert len(phase_zeros) == 7  # one for each choice of strategies, whatever the method and S


def test_parallel_runs_train_different_phase_zeros_first() -> None:
    runs = missing_runs(plan(Request(("board",), ("glyphs",), (0,))))
    first = [phase_zero_of(config) for config in runs[:14]]  # seven choices, with LUCIR's and PODNet's network
    assert len(set(first)) == 14


def test_the_best_row_comes_first_with_n_seconds_and_what_is_kept(kept: Callable[..., Path]) -> None:
    folder = kept(
        {
            "lucir/cifar100/b50s10": [60.0, 62.0],
            "ridge+augment+cwd/cifar100/b50s10": [72.0],
            "ridge+augment+cwd/cifar100/b50s5": [71.0],
            "lucir/cifar100/b50s5": [55.0],
        }
    )
    grid = board_grid(table_of("board", folder))
    assert [line[:2] for line in grid.rows] == [["ridge", "augment + CwD"], ["LUCIR", "plain"]]
    assert list(grid.header) == ["method", "phase 0", "after phase 0", "S=10", "S=5", "seconds", "kept"]
    assert grid.rows[1][3] == Spread(61.0, pytest.approx(2**0.5), "n=2")
    assert str(grid.rows[0][4]) == "71.00 (n=1)"
    assert grid.rows[1][-1] == "3 images per class"  # of the record behind these


def test_seconds_include_a_phase_zero_from_the_store_and_count_the_share_of_a_device(
    record_of: Callable[..., Record],
) -> None:
    record = record_of(preset("lucir/cifar100/b50s10"))
    for phase, seconds in zip(record["phases"], (30.0, 10.0), strict=True):
        phase["seconds"]["total"] = seconds
    record["timing"] |= {"seconds_total": 10.0, "reused_phase_zero": True}
    assert computing_seconds(record) == 40
    record["timing"]["share_seconds"] = 5.0
    assert computing_seconds(record) == 40  # parallel runs on a CPU have their own cores
    record["environment"]["device"] = "cuda:0"
    assert computing_seconds(record) == 20


def test_published_numbers_are_shown_by_setting_on_cifar100_only(kept: Callable[..., Path]) -> None:
    assert [anchor.averages for anchor in strict_anchors()][-1] == {10: 70.30, 5: 68.62, 2: 66.17}  # AANet + CwD
    assert {anchor.setting for anchor in open_anchors()} == {"open"}
    table = table_of("board", kept({"lucir/cifar100/b50s10": [60.0]}))
    strict, other = anchors_grids(table)
    assert line_of(strict, "LUCIR + CwD")[2:5] == ["67.26", "62.89", "56.81"]
    assert line_of(other, "TagFex (CVPR 2025)")[2:5] == ["75.87", "-", "-"]
    assert anchors_grids(Table(TARGETS["board"], "glyphs", [])) == []


def test_figures_and_files_are_written(kept: Callable[..., Path], tmp_path: Path) -> None:
    runs = {"lucir/cifar100/b50s10": [60.0], "lucir+cwd/cifar100/b50s10": [61.0], "lucir/cifar100/b50s2": [50.0]}
    folder = kept(runs)
    table = table_of("board", folder)
    picture, caption, _ = draw_board(table, tmp_path / "board", [".svg"])
    drawn = picture.read_text()
    assert all(word in drawn for word in ("S=10", "S=2", "TagFex (CVPR 2025)", ">LUCIR<", ">CwD<", ">plain<"))
    assert "dotted in settings that allow more" in caption.read_text()
    assert "missing" not in caption.read_text()
    text = write_results(folder, tmp_path, figures=True)
    assert "## Leaderboard of phase-0 strategies" in text
    assert "board-cifar100.svg" in text
    paths = write_texts(table, Output(board_grid(table)), tmp_path / "table")
    (lines,) = (list(csv.DictReader(path.open())) for path in paths if path.suffix == ".csv")
    assert len(lines) == len(table.rows)


def study(kept: Callable[..., Path]) -> Table:
    runs = {
        "lucir/cifar100/b50s10,first.epochs=10": [60.0, 61.0],
        "lucir+cwd:0.25/cifar100/b50s10,first.epochs=10": [59.0, 61.5, 70.0],  # the third seed has no counterpart
        "lucir/cifar100/b50s10": [66.0],
        "lucir+cwd/cifar100/b50s10": [67.5],
        "ncm+cwd:1/cifar100/b50s10": [60.0],  # without eta 0
    }
    return table_of("study", kept(runs))


def test_gains_compare_the_same_seeds_and_epochs(kept: Callable[..., Path]) -> None:
    found = gains(study(kept))
    assert found == {("LUCIR", 10): {0.0: [60.0, 61.0], 0.25: [-1.0, 0.5]}, ("LUCIR", 160): {0.0: [66.0], 0.5: [1.5]}}
    grid = study_grid(study(kept))
    assert list(grid.header) == ["classifier", "epochs", "steps", "eta 0", "eta 0.25", "eta 0.5"]
    assert grid.rows[0][4] == Spread(fmean([-1.0, 0.5]), pytest.approx(1.5 / 2**0.5), "n=2", sign=True)
    assert [str(cell) for cell in grid.rows[1]] == ["LUCIR", "160", "31,360", "66.00", "-", "+1.50 (n=1)"]


def test_steps_are_those_of_phase_zero(kept: Callable[..., Path]) -> None:
    assert steps_of(study(kept), 10) == 10 * 196  # 50 classes of 500 images in batches of 128


def test_the_study_is_drawn_with_a_line_for_each_eta(kept: Callable[..., Path], tmp_path: Path) -> None:
    picture, caption, _ = draw_study(study(kept), tmp_path / "study", [".svg"])
    assert all(f"eta {eta}" in picture.read_text() for eta in ("0.25", "0.5"))
    assert "eta = 0, with the same epochs and seeds. Means and" in caption.read_text()


def test_the_papers_gain_is_shown_where_it_has_both_numbers() -> None:
    def row(*initial: str, eta: float, epochs: int) -> Row:
        record = make_record(initial=initial, settings={"training.first.epochs": epochs})
        return Row("", preset("lucir/cifar100/b50s10"), records={0: (Path(f"{eta}"), record)})

    published = {0.0: row(eta=0.0, epochs=160), 0.5: row("cwd:0.5", eta=0.5, epochs=160)}
    assert published_gain(published, 0.5) == pytest.approx(67.26 - 66.27)  # Table 1: CIFAR100, S=10
    shorter = {0.0: row(eta=0.0, epochs=10), 0.5: row("cwd:0.5", eta=0.5, epochs=10)}
    assert published_gain(shorter, 0.5) is None
    other = {0.0: published[0.0], 0.25: row("cwd:0.25", eta=0.25, epochs=160)}
    assert published_gain(other, 0.25) is None


def test_the_study_keeps_the_settings_of_later_phases_and_of_glyphs() -> None:
    configs: list[RunConfig] = [row.config for row in expand(TARGETS["study"], "cifar100")]
    assert {config.training.first.epochs for config in configs} == {10, 20, 40, 80, 160, 320}
    assert {config.training.later.epochs for config in configs} == {160}
    glyphs = [row.config for row in expand(TARGETS["study"], "glyphs")]
    assert {config.protocol.base for config in glyphs} == {10}
    assert set(FIRST_RUN[1:3]) <= {config.name for config in glyphs}
    assert {config.training.later.epochs for config in glyphs if config.method.name == "lucir"} == {2}


def test_an_empty_table_says_that_runs_are_missing() -> None:
    (table,) = plan(Request(("board",), ("glyphs",), (0,)))
    assert "35 of 35 runs are missing" in board_grid(attach(table, RecordIndex())).caption
