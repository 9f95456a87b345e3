"""Tables: grouping by seed, the chosen phases, the paper's column, and what must not be compared."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from phasezero.results.grid import terminal
from phasezero.results.record import Record
from phasezero.results.tables import comparison_warnings, group_records, markdown_table, results_grid

Make = Callable[..., Record]


def cells(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_runs_that_differ_only_in_seed_are_one_group(make_record: Make) -> None:
    records = [
        make_record(seed=2),
        make_record(initial=["cwd:0.5"]),
        make_record(seed=0),
        make_record(seed=1),
    ]
    groups = group_records(records)
    assert [group.label for group in groups] == ["lucir/cifar100/b50s10", "lucir+cwd/cifar100/b50s10"]
    assert [record["seed"] for record in groups[0].records] == [0, 1, 2]
    assert groups[0].seen == [50, 60, 70, 80, 90, 100]


def test_namesakes_are_told_apart_by_what_differs(make_record: Make) -> None:
    records = [make_record(config={"train": {"epochs": e, "lr": 0.1}, "seed": e}) for e in (80, 160)]
    labels = [group.label for group in group_records(records)]
    assert labels == ["lucir/cifar100/b50s10 (train.epochs=80)", "lucir/cifar100/b50s10 (train.epochs=160)"]
    stopped = [make_record(), make_record(seed=1, finished=3)]
    assert [len(group.seen) for group in group_records(stopped)] == [6, 3]
    others = make_record(seed=1)
    others["data"]["class_hash"] = "0" * 64  # a folder that grew, say
    assert len(group_records([make_record(), others])) == 2


def test_a_classifier_that_one_run_lacks_has_no_mean(make_record: Make) -> None:
    (group,) = group_records([make_record(), make_record(seed=1, nearest_mean=True)])
    assert group.metrics("nearest_mean") is group.accuracies("nearest_mean") is None
    assert len(group.metrics("head") or []) == 2


def test_markdown_numbers(make_record: Make) -> None:
    # Seeds 0, 1, 2: phase i at 80 + seed - 4i; average 70 + seed, last 60 + seed, forgetting 12 each.
    header, row, single = cells(
        markdown_table([*(make_record(seed=s) for s in range(3)), make_record(initial=["cwd:0.5"])])
    )
    assert header == ["run", "n", "50", "60", "70", "80", "90", "last", "average", "forgetting", "paper"]
    assert row[1:7] == ["3", "81.00", "77.00", "73.00", "69.00", "65.00"]
    assert row[7:] == ["61.00 ± 1.00", "71.00 ± 1.00", "12.00 ± 0.00", "66.27 ± 0.28"]
    assert single[7:] == ["60.00", "70.00", "12.00", "67.26 ± 0.16"]


def test_many_phases_show_a_few(make_record: Make) -> None:
    (header, _) = cells(markdown_table([make_record(sizes=(50, *[2] * 25), drop=1)]))
    shown = header[2:-4]
    assert shown == ["50", "60", "70", "80", "90"]


def test_protocols_meet_where_they_have_seen_equally_many(make_record: Make) -> None:
    records = [make_record(), make_record(sizes=(50, *[5] * 10)), make_record(sizes=(50, *[2] * 25), drop=1)]
    header, *rows = cells(markdown_table(records))
    assert header[2:-4] == ["50", "60", "70", "80", "90"]
    assert [row[3] for row in rows] == ["76.00", "72.00", "75.00"]  # after 1, 2 and 5 phases
    header, *rows = cells(markdown_table([make_record(), make_record(finished=2)]))
    assert header[2:-4] == ["50", "60"]  # which is the last phase of one of them only
    assert [row[3] for row in rows] == ["76.00", "76.00"]
    header, *rows = cells(markdown_table([make_record(sizes=(3, 2, 2)), make_record(sizes=(4, 4))]))
    assert header[2:5] == ["first", "middle", "last"]
    assert [row[2:5] for row in rows] == [["80.00", "76.00", "72.00"], ["80.00", "76.00", "76.00"]]


def test_single_phase_and_missing_classifier(make_record: Make) -> None:
    header, row = cells(markdown_table([make_record(sizes=(4,))]))
    assert header[2:] == ["last", "average", "forgetting", "paper"]
    assert row[2:] == ["80.00", "80.00", "-", "-"]
    _, row = cells(markdown_table([make_record()], classifier="nearest_mean"))
    assert row[2:-1] == ["-"] * 8


def test_each_method_is_shown_by_its_own_classifier(make_record: Make) -> None:
    records = [make_record(method="icarl", nearest_mean=True), make_record(nearest_mean=True)]
    icarl, lucir = cells(markdown_table(records))[1:]
    assert icarl == cells(markdown_table(records, classifier="nearest_mean"))[1]
    assert lucir == cells(markdown_table(records, classifier="head"))[2]
    assert icarl[2:] != cells(markdown_table(records, classifier="head"))[1][2:]
    assert "(head classifier; icarl" in markdown_table(records)
    without = make_record(method="icarl")  # no exemplars: all there is
    assert markdown_table([without]) == markdown_table([without], classifier="head")


def test_paper_says_which_classifier_when_it_is_another(make_record: Make) -> None:
    records = [make_record(method="icarl", nearest_mean=True), make_record(nearest_mean=True)]
    assert [row[-1] for row in cells(markdown_table(records, classifier="head"))[1:]] == [
        "60.82 ± 0.03 (nearest mean)",
        "66.27 ± 0.28",
    ]
    rows = cells(markdown_table(records, classifier="nearest_mean"))[1:]
    assert [row[-1] for row in rows] == ["60.82 ± 0.03", "66.27 ± 0.28 (head)"]
    assert rows[0][2] == "79.00"


def test_terminal_table_shows_the_same_and_takes_names_literally(make_record: Make) -> None:
    table = terminal(results_grid([make_record(name="[red]my|run[/red]")]))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    text = console.export_text()
    assert "[red]my|run[/red]" in text
    assert "66.27 ±0.28" in text
    assert r"[red]my\|run[/red]" in markdown_table([make_record(name="[red]my|run[/red]")])


def test_a_narrow_terminal_cuts_no_number(make_record: Make) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(terminal(results_grid([make_record(seed=s) for s in range(2)])))
    text = console.export_text()
    assert "…" not in text
    for number in (
        "80.50",
        "64.50",
        "60.50",
        "70.50",
        "±0.71",
        "12.00",
        "±0.00",
        "forgetting",
        "66.27",
        "±0.28",
    ):
        assert number in text


def test_no_records_is_an_empty_table() -> None:
    assert cells(markdown_table([])) == [["run", "n", "last", "average", "forgetting", "paper"]]
    assert comparison_warnings([]) == []


def test_comparable_runs_raise_no_warning(make_record: Make) -> None:
    runs = [
        make_record(seed=0),
        make_record(seed=1),
        make_record(initial=["cwd:0.5"]),
        make_record(method="bic"),
    ]
    assert comparison_warnings(runs) == []


def test_warnings_name_what_differs_and_who(make_record: Make) -> None:
    base = make_record()
    (warning,) = comparison_warnings([base, make_record(method="bic", per_class=40)])
    assert "memory: per_class:20 (lucir/cifar100/b50s10); per_class:40 (bic/cifar100/b50s10)" in warning
    (warning,) = comparison_warnings([base, make_record(sizes=(50, *[5] * 10))])
    assert "protocol: B=50 S=10, 6 phases" in warning
    (warning,) = comparison_warnings([base, make_record(data="glyphs")])
    assert "data set: cifar100" in warning
    other = make_record(method="bic", class_order="podnet1")
    other["data"]["class_hash"] = "0" * 64
    (warning,) = comparison_warnings([base, other])
    assert "classes or class order on cifar100: seed1993, hash" in warning
    icarl = make_record(method="icarl", nearest_mean=True)
    (warning,) = comparison_warnings([base, icarl])
    assert "how the method classifies: head (lucir/cifar100/b50s10); nearest mean (icarl/" in warning
    assert comparison_warnings([base, icarl], "head") == []  # the same classifier for both
    assert (
        comparison_warnings([base, make_record(method="icarl")]) == []
    )  # no nearest mean: shown by the head
    (warning,) = comparison_warnings([base, make_record()])
    assert "seed 0 counted more than once" in warning


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("protocol.selection", "random", "exemplars: herding selection (lucir/cifar100/b50s10 ("),
        ("training.first.epochs", 200, "training on cifar100: 160 epochs (lucir/cifar100/b50s10 ("),
        (
            "training.later.epochs",
            2,
            "; 160 and then 2 epochs (lucir/cifar100/b50s10 (training.later.epochs=2))",
        ),
        ("network.name", "resnet32", "; resnet32 (lucir/cifar100/b50s10 (network.name=resnet32))"),
    ],
)
def test_a_setting_that_makes_runs_incomparable_is_named(
    make_record: Make, setting: str, value: object, said: str
) -> None:
    record = make_record()
    first, *path, last = setting.split(".")
    place = record["config"][first]
    for key in path:
        place = place[key]
    place[last] = value
    (warning,) = comparison_warnings([make_record(), record])
    assert said in warning


def test_precisions_are_not_averaged(make_record: Make) -> None:
    # All asked for `auto`, and a later machine made something else of it.
    records = [make_record(seed=seed) for seed in range(3)]
    records[2]["environment"] = {**records[2]["environment"], "precision": "fp16"}
    groups = group_records(records)
    assert [(group.label, len(group.records)) for group in groups] == [
        ("lucir/cifar100/b50s10 (precision=fp32)", 2),
        ("lucir/cifar100/b50s10 (precision=fp16)", 1),
    ]
    _, two, one = cells(markdown_table(records))
    assert (two[8], one[8]) == ("70.50 ± 0.71", "72.00")
    (warning,) = comparison_warnings(records)
    assert "differ in precision: fp32" in warning


def test_the_paper_stands_only_beside_its_own_cell(make_record: Make) -> None:
    runs = [make_record(initial=[f"cwd:{weight}"]) for weight in (0.25, 0.5)]
    runs.append(make_record(method="lucir-original"))
    assert [row[-1] for row in cells(markdown_table(runs))[1:]] == ["-", "67.26 ± 0.16", "-"]
