"""Every table and figure has the runs that the paper describes, and shows records next to the paper's own cells."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.data.catalog import DATA_SETS, load_data, register_data
from phasezero.engine.setup import check
from phasezero.identity import run_key
from phasezero.paper.plan import Request, expand, plan
from phasezero.paper.tables import Output, Table, cells_grid, curves_grid, methods_grid, write_texts
from phasezero.paper.targets import TARGETS
from phasezero.presets import preset
from phasezero.records.files import slug
from phasezero.records.run import Record
from phasezero.report.grid import Grid
from phasezero.report.published import published_cells
from samples import line_of

# Counted by hand from the paper: rows times columns of a table, lines of a figure.
TABLE1 = {"cifar100": 9 * 3, "imagenet100-cwd": 9 * 3, "imagenet": 9 * 2, "glyphs": 9 * 3}
OTHERS = {"table2": 2 * 5 * 2, "table3": 2 * 5 * 2, "table4": 4, "fig2": 2 * 5, "fig3": 4, "fig4": 3 * 3 + 1, "fig5": 6}
OTHERS |= {"fig6": 6 * 2, "fig7": 6, "fig9": 4, "fig10": 3, "fig11": 2 * 6}
RUNS = {("table1", data): count for data, count in TABLE1.items()}
RUNS |= {(name, "imagenet100-cwd"): count for name, count in OTHERS.items()}
RUNS |= {("fig1", "cifar100"): 4, ("fig8", "cifar100"): 2}
# Ours: methods, strategies and S; classifiers, etas and epochs.
RUNS |= {("board", "cifar100"): 5 * 7 * 3, ("board", "glyphs"): 5 * 7, ("study", "cifar100"): 3 * 5 * 6}


@pytest.mark.parametrize(("name", "data"), RUNS)
def test_the_number_of_runs(name: str, data: str) -> None:
    rows = expand(TARGETS[name], data)
    assert len(rows) == RUNS[name, data]
    folders = Counter(slug(row.config.name) for row in rows)
    assert set(folders.values()) == {1}, "two runs of a target must not share a folder"


def test_every_table_and_figure_is_there() -> None:
    tables, figures = [f"table{number}" for number in range(1, 5)], [f"fig{number}" for number in range(1, 12)]
    assert [name for name in TARGETS if TARGETS[name].in_paper] == [*tables, *figures]
    assert {name for name, _ in RUNS} == set(TARGETS)
    one_seed = {name for name, target in TARGETS.items() if target.seeds == (0,)}
    assert one_seed == {"fig1", "fig3", "fig4", "fig7", "fig8", "fig9", "fig10"}


DATA = {"cifar100": "CIFAR100", "imagenet100-cwd": "ImageNet100", "imagenet": "ImageNet"}
PRINTED = ("table1_main", "table2_ablation_B", "table3_ablation_R", "table4_decorrelation")


def table_of(name: str, data: str, *request: Request) -> Table:
    return Table(TARGETS[name], data, expand(TARGETS[name], data, *request))


def test_the_tables_are_the_published_cells_and_nothing_else() -> None:
    ours = Counter()
    for printed in PRINTED:
        name = printed.partition("_")[0]
        for table in (table_of(name, data) for data in TARGETS[name].data):
            for row in table.rows:
                config = row.config
                terms = [term.name for term in config.initial]
                method = "aanet(lucir)" if config.method.name == "aanet" else config.method.name
                method += {"decov": "+dc", "sdc": "+sdc"}.get("".join(terms), "")
                sizes = config.protocol.base, config.protocol.step, int(config.protocol.memory.split(":")[1])
                key = (printed, DATA[table.data], method, terms == ["cwd"], *sizes)
                ours[key] += 1
                cell = table.published(row)
                assert cell is not None
                assert (cell.mean, cell.std) == (published_cells()[key].mean, published_cells()[key].std)
    assert ours == Counter(dict.fromkeys(published_cells(), 1))


@pytest.mark.parametrize("name", TARGETS)
def test_every_run_is_the_preset_of_its_name_and_can_run(name: str) -> None:
    """On glyphs it is checked with the data."""
    for data in (*TARGETS[name].data, "glyphs"):
        for row in expand(TARGETS[name], data):
            assert run_key(preset(row.config.name)) == run_key(row.config)
            assert data != "glyphs" or sum(check(row.config, load_data("glyphs")).images) > 0


PAIR, SIZES = ("lucir", "lucir+cwd"), ("sizes10", "sizes25", "sizes50", "sizes100")
BETAS = ("lucir", "lucir+mimic", *(f"lucir+mimic:{beta}" for beta in (1, 5, 15, 30)))


@pytest.mark.parametrize(
    ("target", "data", "methods", "phases"),
    [
        ("fig3", "cifar100", ["lucir"], SIZES),
        ("fig4", "cifar100", ["lucir", "lucir+cwd", "lucir+cwd:1"], SIZES[:3]),
        ("fig5", "imagenet100-cwd", (*PAIR, "aanet", "podnet+cwd"), ["b50s5"]),
        ("fig6", "imagenet100-cwd", ("lucir", "lucir+cwd:0.25", "lucir+cwd", "lucir+cwd:1.25"), ("b50s10", "b50s5")),
        ("fig6", "glyphs", ("lucir+cwd:0.02", "lucir+cwd", "lucir+cwd:1"), ["b50s5,later.epochs=2"]),
        ("fig10", "cifar100", PAIR, ["b50s10"]),
        ("fig11", "imagenet100-cwd", BETAS, ("b50s10", "b10s10")),
    ],
)
def test_figures_show_what_they_are_about(
    target: str, data: str, methods: Sequence[str], phases: Sequence[str]
) -> None:
    rows = {row.config.name for row in expand(TARGETS[target], data)}
    assert {f"{method}/{data}/{one}" for method in methods for one in phases} <= rows


def test_a_curve_over_eta_names_every_eta() -> None:
    def names(name: str, data: str) -> set[str]:
        return {str(line[0]) for line in cells_grid(table_of(name, data)).rows}

    assert "LUCIR + CwD" not in names("fig6", "glyphs") | names("fig6", "cifar100")
    assert "LUCIR + CwD (eta 0.1)" in names("fig6", "glyphs")
    assert "LUCIR + CwD (eta 0.5)" in names("fig6", "cifar100")
    assert names("table2", "glyphs") == {"LUCIR", "LUCIR + CwD"}


def test_only_the_usual_coefficient_on_the_papers_data_has_a_published_cell() -> None:
    def published(name: str, data: str) -> list[bool]:
        table = table_of(name, data)
        return [table.published(row) is not None for row in table.rows]

    assert published("fig6", "imagenet100-cwd") == [True, False, False, True, False, False] * 2
    assert not any(published("fig6", "cifar100"))  # ImageNet100's cell has eta 0.75; CIFAR100's usual eta is 0.5
    assert not any(published("fig7", "imagenet100-cwd") + published("fig10", "imagenet100-cwd"))  # models


def test_another_name_of_the_papers_data_is_the_papers_data() -> None:
    for name in ("table1", "table2", "fig6"):
        alias, own = (table_of(name, data) for data in ("imagenet100", "imagenet100-cwd"))
        assert (alias.replaced, alias.dataset) == (own.replaced, own.dataset) == ("", "ImageNet100")
        assert [alias.published(row) for row in alias.rows] == [own.published(row) for row in own.rows]


@pytest.mark.usefixtures("own_registries")
def test_a_data_set_from_outside_may_be_short_and_replace_the_papers() -> None:
    recipe = DATA_SETS["cifar100"].recipe
    facts = {"recipe": recipe, "size": (100, 500), "short_epochs": 3, "instead_of": "imagenet100-cwd"}
    register_data("outside", "", **facts)(lambda root, argument: load_data("glyphs"))
    table = table_of("table2", "outside")
    assert {row.config.training.later.epochs for row in table.rows} == {3}
    assert table.dataset == "ImageNet100"
    assert [remark.split(" ")[0] for remark in table.remarks[:2]] == ["outside", "Later"]
    assert table_of("table2", "outside", Request(full=True)).rows[0].config.training == recipe.training


def test_the_spheres_have_two_phases_of_two_classes_and_a_small_eta() -> None:
    rows = expand(TARGETS["fig1"], "cifar100")
    assert [row.config.protocol.phase_sizes for row in rows] == [(2, 2), (4,), (2, 2), (2, 2)]
    assert [row.config.label for row in rows] == ["lucir", "lucir", "lucir+mimic", "lucir+cwd"]
    assert {row.config.network.name for row in rows} == {"alexnet-3d"}
    assert run_key(expand(TARGETS["fig8"], "cifar100")[1].config) == run_key(rows[3].config)
    # The published form is about (C / N) (N / C - 1)^2 r^2 for a batch of N images of C classes.
    pressure = {classes: classes / 128 * (128 / classes - 1) ** 2 for classes in (2, 50)}
    assert rows[3].weight == pytest.approx(0.5 * pressure[50] / pressure[2], rel=0.01)
    assert f"eta is {rows[3].weight}" in TARGETS["fig1"].note


@pytest.mark.parametrize(
    ("name", "request_", "epochs"),
    [
        ("table1", Request(), 2),
        ("table1", Request(settings={"training.later.epochs": 1}), 1),
        ("table1", Request(full=True), 6),
        ("fig3", Request(), 6),  # which has no later phase
    ],
)
def test_glyphs_are_shortened_openly(name: str, request_: Request, epochs: int) -> None:
    table = table_of(name, "glyphs", request_)
    found = [row.config.training for row in table.rows if row.config.method.name == "lucir"]
    assert {training.later.epochs for training in found} == {epochs}
    assert {training.first for training in found} == {preset("lucir/glyphs/b50s2").training.first}
    assert (f"{epochs} epochs instead of the preset's 6" in table.caption) == (epochs < 6)


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("table1", "cifar100", ""),
        ("table2", "imagenet100-cwd", ""),
        ("fig1", "cifar100", ""),
        ("table2", "cifar100", "cifar100 replaces ImageNet100"),
        ("fig8", "imagenet100-cwd", "imagenet100-cwd replaces CIFAR100"),
        ("table1", "glyphs", "glyphs replaces CIFAR100, ImageNet100 and ImageNet"),
        ("table1", "imagenet100-podnet", "imagenet100-podnet is another choice of 100 classes"),
        ("table2", "imagenet100-lucir", "imagenet100-lucir is another choice of 100 classes"),
    ],
)
def test_what_replaces_what(name: str, data: str, said: str) -> None:
    table = Table(TARGETS[name], data, [])
    assert table.replaced.startswith(said)
    assert bool(table.replaced) == bool(said)
    assert said in table.caption
    paper = "CIFAR100" if name in ("table1", "fig1", "fig8") and not data.startswith("imagenet100-p") else "ImageNet100"
    assert table.dataset == paper


Make = Callable[..., Record]
PATH = Path("there/record.json")


def columns(path: Path, *names: str) -> list[tuple[str, ...]]:
    with path.open() as file:
        return [tuple(one[name] for name in names) for one in csv.DictReader(file)]


@pytest.fixture
def with_averages(record_of: Make) -> Callable[..., Table]:
    """A table on CIFAR100 whose rows have records with these averages, by method and phases."""

    def make(request: Request, averages: Mapping[str, Sequence[float]]) -> Table:
        (table,), rows = plan(request), []
        for one in table.rows:
            values = enumerate(averages.get(one.config.name.replace("/cifar100", ""), []))
            rows.append(replace(one, records={s: (PATH, record_of(one.seeded(s), value)) for s, value in values}))
        return replace(table, rows=rows)

    return make


@pytest.fixture
def table1(with_averages: Callable[..., Table]) -> Table:
    averages = {"lucir/b50s10": [66.0, 67.0], "lucir+cwd/b50s10": [67.0, 68.0, 69.0], "lucir/b50s5": [60.0]}
    return with_averages(Request(("table1",), ("cifar100",)), averages)


def test_table_1_has_n_in_each_cell_and_the_gain_under_cwd(table1: Table) -> None:
    grid = methods_grid(table1)
    assert grid.header == ["method", "S=10", "paper", "gap", "S=5", "paper", "gap", "S=2", "paper", "gap"]
    assert line_of(grid, "LUCIR")[:4] == ["66.50 ± 0.71 (n=2)", "66.27 ± 0.28", "+0.23", "60.00 (n=1)"]
    assert line_of(grid, "LUCIR + CwD")[:4] == ["68.00 ± 1.00 (n=3)", "67.26 ± 0.16", "+0.74", "not run"]
    lines = grid.lines()[1:]
    assert [line[0] for line in lines[3:6]] == ["LUCIR", "LUCIR + CwD", "gain of CwD"]
    assert [line[0] for line in lines].count("gain of CwD") == 3
    # 68.0 - 66.5 and 67.26 - 66.27; at S=5 and S=2 ours has no gain yet, the paper's has.
    assert lines[5][1:] == ["+1.50", "+0.99", "-", "-", "+2.09", "-", "-", "+3.85", "-"]


def test_added_methods_have_their_own_lines_and_gains(with_averages: Callable[..., Table]) -> None:
    averages = {"lucir": [66.0], "finetune": [50.0], "lucir-original": [60.0], "lucir-original+cwd": [63.0]}
    request = Request(("table1",), ("cifar100",), methods=tuple(averages), steps=(10,))
    grid = methods_grid(with_averages(request, {f"{method}/b50s10": some for method, some in averages.items()}))
    assert [line[:3] for line in grid.lines()[1:]] == [
        ["LUCIR", "66.00 (n=1)", "66.27 ± 0.28"],
        ["LUCIR + CwD", "not run", "67.26 ± 0.16"],
        ["gain of CwD", "-", "+0.99"],
        ["finetune", "50.00 (n=1)", "-"],
        ["LUCIR (original)", "60.00 (n=1)", "-"],
        ["LUCIR (original) + CwD", "63.00 (n=1)", "-"],
        ["gain of CwD", "+3.00", "-"],
    ]


def test_curves_have_their_phases(record_of: Make, tmp_path: Path) -> None:
    rows = expand(TARGETS["fig5"], "cifar100")[:2]
    records = {seed: (PATH, record_of(rows[0].seeded(seed), 70.0 + seed)) for seed in (0, 1)}
    for seed, accuracies in enumerate([(80.0, 60.0), (82.0, 61.0)]):
        for phase, accuracy in zip(records[seed][1]["phases"], accuracies, strict=True):
            phase["accuracy"]["head"] = accuracy
    table = Table(TARGETS["fig5"], "cifar100", [replace(rows[0], records=records), rows[1]])
    grid = curves_grid(table)
    assert grid.header[4:8] == ["phase 0", "last", "ours", "n"]
    assert line_of(grid, "LUCIR")[3:7] == ["81.00 ± 1.41", "60.50 ± 0.71", "70.50 ± 0.71", "2"]
    assert line_of(grid, "LUCIR + CwD")[3:7] == ["-", "-", "not run", "0"]
    write_texts(table, Output(grid), tmp_path / "fig5")
    found = columns(tmp_path / "fig5.csv", "50 classes", "55 classes", "55 classes std", "ours", "paper (ImageNet100)")
    assert found == [("81.0", "60.5", str(round(0.5**0.5, 6)), "70.5", "67.76"), ("", "", "", "", "69.34")]


def test_only_the_papers_settings_have_a_gap_however_they_were_computed(table1: Table) -> None:
    fp16 = replace(table1, settings={"engine.precision": "fp16"})
    assert line_of(methods_grid(fp16), "LUCIR") == line_of(methods_grid(table1), "LUCIR")
    longer = replace(table1, settings={"training.later.epochs": 200})
    assert line_of(methods_grid(longer), "LUCIR")[2] == "-"


def test_a_row_of_models_names_its_own_records(record_of: Make, tmp_path: Path) -> None:
    table, rows = table_of("fig1", "glyphs"), []
    for place, one in enumerate(table.rows):
        rows.append(replace(one, records={0: (tmp_path / f"{place}/record.json", record_of(one.seeded(0)))}))
    models = Grid(["model", "n"], [[one.config.name, "1"] for one in reversed(rows)])
    write_texts(replace(table, rows=rows), Output(models), tmp_path / "fig1")
    found = dict(columns(tmp_path / "fig1.csv", "model", "records"))
    assert found == {one.config.name: f"{place}/record.json" for place, one in enumerate(rows)}


def test_runs_in_different_precisions_are_named(table1: Table, record_of: Make) -> None:
    said = "Runs in different precisions are averaged together (LUCIR: bf16, fp16)."
    assert said not in table1.caption
    lucir = next(one for one in table1.rows if len(one.records) == 2)
    other = replace(lucir, records={**lucir.records, 1: (PATH, record_of(lucir.seeded(1), 67.0, "fp16"))})
    rows = [other if one is lucir else one for one in table1.rows]
    assert said in replace(table1, rows=rows).caption
