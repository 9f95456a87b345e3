"""Which rows are asked for, which records belong to them, and which runs are left in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.config import RunConfig
from phasezero.engine.store import phase_zero_of
from phasezero.errors import UserError
from phasezero.paper.estimate import estimate
from phasezero.paper.plan import RecordIndex, Request, attach, expand, missing_runs, plan
from phasezero.paper.tables import Row, Table
from phasezero.paper.targets import TARGETS
from phasezero.presets import preset
from phasezero.records.analysis import analysis_name, write_analysis
from phasezero.records.run import Record
from samples import analysis_of

Make = Callable[..., Record]
HERE = Path("there/record.json")


def names(table: Table) -> list[str]:
    return [row.config.name for row in table.rows]


def attached(request: Request, records: Sequence[tuple[Path, Record]]) -> Table:
    (table,) = plan(request)
    return attach(table, RecordIndex(records))


def test_methods_and_steps_choose_rows() -> None:
    (table,) = plan(Request(("table1",), ("cifar100",), methods=("lucir",), steps=(10, 2)))
    pairs = [f"{method}/cifar100/b50s{step}" for step in (10, 2) for method in ("lucir", "lucir+cwd")]
    assert names(table) == pairs
    assert "Only lucir and S=10, S=2; the other rows are left out." in table.caption
    (table,) = plan(Request(("table1",), ("cifar100",), methods=("lucir+cwd", "bic"), steps=(5,)))
    assert names(table) == ["bic/cifar100/b50s5", "lucir+cwd/cifar100/b50s5"]
    (table,) = plan(Request(("fig5",), ("cifar100",), steps=(5,)))  # which leaves nothing out
    assert "left out" not in table.caption
    with pytest.raises(UserError, match="no run of these tables"):  # DC is in Table 4, S=2 in Table 1
        plan(Request(("table1", "table4"), ("cifar100",), methods=("lucir+decov",), steps=(2,)))


@pytest.mark.parametrize("method", ["finetune", "lucir-original", "lucir+decov", "lucir+cwd:0.75", "podnet+cwd"])
@pytest.mark.parametrize("target", ["table2", "fig2", "fig6"])
def test_a_method_that_the_target_does_not_list_is_added(method: str, target: str) -> None:
    """Without a published number, even where another table of the paper has one."""
    if (target, method) == ("fig6", "lucir+cwd:0.75"):  # which the figure has
        (table,) = plan(Request((target,), ("cifar100",), methods=(method,), steps=(5,)))
        assert names(table) == ["lucir+cwd:0.75/cifar100/b50s5"]
        return
    (table,) = plan(Request((target,), ("cifar100",), methods=("lucir", method)))
    added, listed = [row for row in table.rows if row.extra], expand(TARGETS[target], "cifar100")
    assert [row.config.protocol for row in added] == list(dict.fromkeys(row.config.protocol for row in listed))
    assert {row.config.name.partition("/")[0] for row in added} == {method}
    assert {row.config.name for row in listed} == {row.config.name for row in table.rows if not row.extra}
    assert [table.published(row) for row in added] == [None] * len(added)
    labels = {table.label(row.config) for row in added}
    assert labels.isdisjoint(table.label(row.config) for row in table.rows if not row.extra)
    assert f"Not in the paper: {labels.pop()}." in table.caption


def test_plug_ins_can_be_put_next_to_the_papers_table(plug_ins: None, tmp_path: Path) -> None:
    tables = plan(Request(("table1", "fig5"), ("my-data",), methods=("lucir", "mine", "mine+my-term"), steps=(5,)))
    methods = ("lucir", "lucir+cwd", "mine", "mine+my-term")
    assert names(tables[0]) == [f"{method}/my-data/b50s5" for method in methods]
    assert "my-data replaces CIFAR100, ImageNet100 and ImageNet" in tables[0].caption
    assert "Not in the paper: mine, mine + my-term." in tables[0].caption
    assert [row.panel for row in tables[1].rows] == ["LUCIR", "LUCIR", "mine", "mine"]
    order = missing_runs(tables)
    assert len(order) == 3 * 4  # the same runs in both
    assert min(estimate(order, [], tmp_path).next_phase) > 0
    for name in ("table2", "fig10"):  # which have explicit numbers of classes: checked when the data is loaded
        assert plan(Request((name,), ("my-data",)))[0].data == "my-data"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(("tabel1",)), "did you mean 'table1'"),
        (Request(("table2",), ("imagenet",)), "table2 is not defined on 'imagenet': it needs 100 classes, not 1000"),
        (Request(("table1",), ("folder:x",)), "table1 is not defined on 'folder:x', which has no usual B and S"),
        (Request(("table2",), ("imagenet99",)), "unknown data set"),
        (Request(("table2",), methods=("lucir", "foo")), "unknown method 'foo'"),
        (Request(("table2",), methods=("lucyr",)), "did you mean 'lucir'"),
        (Request(("table2",), methods=("lucir+cdw",)), "did you mean 'cwd'"),
        (Request(("table1",), ("glyphs",), methods=("lucir-original",)), "not defined for data 'glyphs'"),
        (Request(("fig3",), methods=("podnet",)), "unknown method here 'podnet'"),
        (Request(("table2",), steps=(10, 7)), "--step 7: these tables and figures have S=10 or S=5"),
        (Request(("table2",), settings={"seed": 3}), "--set seed: use --seeds"),
    ],
)
def test_what_cannot_be_shown_is_an_error(request_: Request, message: str) -> None:
    with pytest.raises(UserError) as error:
        plan(request_)
    assert message in str(error.value)


def test_data_and_seeds_are_the_papers_unless_said() -> None:
    def planned(*targets: str, data: tuple[str, ...] = ()) -> list[tuple[str, str]]:
        return [(table.target.name, table.data) for table in plan(Request(targets, data))]

    assert planned("table1") == [("table1", data) for data in ("cifar100", "imagenet100-cwd", "imagenet")]
    assert planned("table2", data=("glyphs", "cifar100", "glyphs")) == [("table2", "glyphs"), ("table2", "cifar100")]
    assert [data for _, data in planned("table2", "fig1", "fig3", data=("folder:x",))] == ["folder:x"] * 3
    assert [name for name, _ in planned("fig5", "table2", "fig5")] == ["fig5", "table2"]
    assert {name for name, _ in planned("all")} == {name for name in TARGETS if TARGETS[name].in_paper}
    assert {"board", "study"} <= {name for name, _ in planned("all", "board", "study")}
    assert plan(Request(("table1",)))[0].seeds == (0, 1, 2)
    assert plan(Request(("fig3",), seeds=(4,)))[0].seeds == (4,)


def lucir(**settings: object) -> Row:
    """The row of LUCIR at S=10 in Table 1."""
    row = expand(TARGETS["table1"], "cifar100")[3]
    return replace(row, config=row.config.override(settings))


@pytest.mark.parametrize(
    ("changed", "wanted", "found"),
    [
        ({"name": "mine", "engine.device": "cpu", "engine.threads": 7}, {}, True),
        ({"training.first.lr": 0.05}, {}, False),
        ({}, {"engine.precision": "tf32"}, False),  # it was run in bf16
        ({}, {"engine.precision": "bf16"}, True),
        ({"seed": 5}, {}, False),  # which was not asked for
    ],
)
def test_a_record_is_known_by_what_moves_its_numbers(
    record_of: Make, changed: dict[str, object], wanted: dict[str, object], found: bool
) -> None:
    record = record_of(lucir().config.override(changed))
    table = Table(TARGETS["table1"], "cifar100", [lucir(**wanted)], (0, 1))
    assert bool(attach(table, RecordIndex([(HERE, record)])).rows[0].records) == found


def test_records_with_settings_that_no_longer_exist_are_left_alone(record_of: Make) -> None:
    old = record_of(lucir().config)
    old["config"]["training"]["nesterov"] = True
    assert RecordIndex([(HERE, old)]).runs(lucir().config) == []


def test_what_exists_is_not_run_again(record_of: Make) -> None:
    request = Request(("table4",), ("glyphs",), seeds=(0, 1))
    exist = [(HERE, record_of(row.seeded(0))) for row in plan(request)[0].rows[:3]]
    left = missing_runs([attached(request, exist)])
    every = [("lucir", 1), ("lucir+decov", 1), ("lucir+sdc", 1), ("lucir+cwd", 1)]
    assert [(config.label, config.seed) for config in left] == [("lucir+cwd", 0), *every]


def test_figures_of_models_need_the_model_or_its_analysis(record_of: Make, tmp_path: Path) -> None:
    request = Request(("fig10",), ("glyphs",))
    config = plan(request)[0].rows[0].seeded(0)
    exist = [(tmp_path / "record.json", record_of(config))]
    assert attached(request, exist).rows[0].records == {}
    write_analysis(tmp_path / analysis_name(0), analysis_of(config, [0.5] * 4))  # of another phase than the last
    assert attached(request, exist).rows[0].records == {}
    write_analysis(tmp_path / analysis_name(1), analysis_of(config, [0.5] * 6))
    assert list(attached(request, exist).rows[0].records) == [0]
    (tmp_path / analysis_name(1)).rename(tmp_path / "checkpoint.safetensors")
    assert list(attached(request, exist).rows[0].records) == [0]
    assert attach(plan(request)[0], RecordIndex(exist), states=False).rows[0].records == {}


def test_of_a_seed_in_two_precisions_the_usual_one_is_taken(record_of: Make) -> None:
    request = Request(("table4",), ("cifar100",), seeds=(0,))
    rows = plan(request)[0].rows
    first = record_of(rows[0].seeded(0), precision="bf16")  # first in the folder, but the odd one out
    others = [record_of(row.seeded(0), precision="fp16") for row in rows[:3]]
    only = record_of(rows[3].seeded(0), precision="bf16")
    table = attached(request, [(HERE, record) for record in (first, *others, only)])
    used = [row.records[0][1]["environment"]["precision"] for row in table.rows]
    assert used == ["fp16", "fp16", "fp16", "bf16"]  # where there is no other, it is taken as it is


def test_runs_that_share_phase_0_do_not_start_together() -> None:
    order = [phase_zero_of(config) for config in missing_runs(plan(Request(("table1",), ("glyphs",), seeds=(0,))))]
    assert len(order) == 27
    assert len(set(order)) == 7  # LUCIR's is AANet's too
    assert set(order[:7]) == set(order)


def test_a_run_of_two_targets_is_run_once() -> None:
    order = missing_runs(plan(Request(("table1", "fig5", "table2"), ("glyphs",), seeds=(0,))))
    # Of Fig. 5 all six are cells of Table 1; of Table 2 LUCIR and LUCIR+CwD at B=50 with S=10 and 5 are.
    assert len(order) == 27 + 20 - 4


def analysed(folder: Path, config: RunConfig, record: Record) -> tuple[Path, Record]:
    """A run whose phase 0 was analysed."""
    write_analysis(folder / analysis_name(0), analysis_of(config, [0.5] * 50, name=config.name))
    return folder / "record.json", record


def test_a_longer_run_replaces_a_run_of_phase_0_alone(record_of: Make, tmp_path: Path) -> None:
    """The model of 50 classes: from any run with B=50 whose phase 0 was analysed, and by that analysis alone."""
    request = Request(("fig3",), ("cifar100",), seeds=(0, 1))
    configs = [preset("lucir/cifar100/b50s5", seed=seed) for seed in (0, 1, 2)]
    longer = [(tmp_path / str(config.seed) / "record.json", record_of(config)) for config in configs]
    for path, _ in longer:
        path.parent.mkdir()
        (path.parent / "checkpoint.safetensors").touch()  # of the end, not of phase 0
    assert not any(row.records for row in attached(request, longer).rows)
    for config, (path, record) in list(zip(configs, longer, strict=True))[1:]:
        analysed(path.parent, config, record)
    found = {row.config.name: row.records for row in attached(request, longer).rows if row.records}
    ((name, ((seed, (path, cut)),)),) = [(name, records.items()) for name, records in found.items()]
    assert (name, seed, path) == ("lucir/cifar100/sizes50", 1, longer[1][0])  # seed 2 was not asked for
    assert cut["summary"]["head"]["average_incremental_accuracy"] == cut["phases"][0]["accuracy"]["head"]
    assert (len(cut["phases"]), len(longer[1][1]["phases"])) == (1, 2)  # the record itself stays whole

    (own,) = (row for row in plan(request)[0].rows if row.config.name == "lucir/cifar100/sizes50")
    alone = (tmp_path / "own" / "record.json", record_of(own.seeded(1)))
    alone[0].parent.mkdir()
    (alone[0].parent / "checkpoint.safetensors").touch()
    rows = attached(request, [*longer, alone]).rows
    assert [row.records[1][0] for row in rows if row.records] == [alone[0]]  # a run of its own comes first
    for other in (replace(request, settings={"engine.precision": "fp16"}), Request(("fig1",), ("cifar100",))):
        assert not any(row.records for row in attached(other, longer).rows)  # in bf16; a sphere shows later classes


def test_precision_and_method_decide_between_analyses(record_of: Make, tmp_path: Path) -> None:
    """LUCIR exists in two precisions. AANet's phase 0 is LUCIR's by its settings, and replaces it only where needed."""
    exist = []
    for run in ("lucir-0-bf16", "lucir-0-fp16", "lucir+cwd-0-fp16", "aanet-0-fp16", "aanet-1-fp16"):
        name, seed, precision = run.split("-")
        config = preset(f"{name}/cifar100/b50s10", seed=int(seed))
        exist.append(analysed(tmp_path / run, config, record_of(config, precision=precision)))

    def used(**settings: object) -> list[str]:
        table = attached(Request(("fig7",), ("cifar100",), (0, 1), settings=settings), exist)
        return [path.parent.name for row in table.rows for path, _ in row.records.values()]

    assert used() == ["lucir-0-fp16", "aanet-1-fp16", "lucir+cwd-0-fp16"]
    assert used(**{"engine.precision": "bf16"}) == ["lucir-0-bf16"]


def test_a_damaged_analysis_is_named_and_counts_as_missing(record_of: Make, tmp_path: Path) -> None:
    (tmp_path / analysis_name(0)).write_text('{"format": "phasezero-analysis-1"')
    index = RecordIndex([(tmp_path / "record.json", record_of(preset("lucir/cifar100/b50s10")))])
    (table,) = plan(Request(("fig3",), ("cifar100",)))
    assert not any(row.records for row in attach(table, index).rows)
    assert [analysis_name(0) in text for text in index.damaged] == [True]
