"""Tables: grouping by seed, the chosen phases, the paper's column, and what must not be compared."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from phasezero.identity import group_by_identity
from phasezero.records.run import Record
from phasezero.report.grid import markdown
from phasezero.report.page.content import page_content
from phasezero.report.tables import comparison_warnings, results_grid, seen_classes
from samples import make_record


def cells(records: list[Record], **options: Any) -> list[list[str]]:
    lines = markdown(results_grid(records, **options)).splitlines()
    rows = [line for line in lines if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows]


def test_namesakes_are_told_apart_by_what_differs() -> None:
    records = [make_record(config={"train": {"epochs": e, "lr": 0.1}, "seed": e}) for e in (80, 160)]
    labels = [group.label for group in group_by_identity(records)]
    assert labels == ["lucir/cifar100/b50s10 (train.epochs=80)", "lucir/cifar100/b50s10 (train.epochs=160)"]
    stopped = [make_record(), make_record(seed=1, finished=3)]
    assert [len(seen_classes(group)) for group in group_by_identity(stopped)] == [6, 3]
    others = make_record(seed=1)
    others["data"]["class_hash"] = "0" * 64  # a folder that grew, say
    assert len(group_by_identity([make_record(), others])) == 2


def test_numbers() -> None:
    # Seeds 0, 1, 2: phase i at 80 + seed - 4i; average 70 + seed, last 60 + seed, forgetting 12 each.
    runs = [make_record(seed=2), make_record(initial=["cwd:0.5"]), make_record(seed=0), make_record(seed=1)]
    assert [record["seed"] for record in group_by_identity(runs)[0].members] == [0, 1, 2]
    header, row, single = cells(runs)
    assert header == ["run", "n", "50", "60", "70", "80", "90", "last", "average", "forgetting", "paper"]
    assert row[1:7] == ["3", "81.00", "77.00", "73.00", "69.00", "65.00"]
    assert row[7:] == ["61.00 ± 1.00", "71.00 ± 1.00", "12.00 ± 0.00", "66.27 ± 0.28"]
    assert single[7:] == ["60.00", "70.00", "12.00", "67.26 ± 0.16"]


def test_protocols_meet_where_they_have_seen_equally_many() -> None:
    (header, _) = cells([make_record(sizes=(50, *[2] * 25), drop=1)])
    assert header[2:-4] == ["50", "60", "70", "80", "90"]  # a few of many phases
    records = [make_record(), make_record(sizes=(50, *[5] * 10)), make_record(sizes=(50, *[2] * 25), drop=1)]
    header, *rows = cells(records)
    assert header[2:-4] == ["50", "60", "70", "80", "90"]
    assert [row[3] for row in rows] == ["76.00", "72.00", "75.00"]  # after 1, 2 and 5 phases
    header, *rows = cells([make_record(), make_record(finished=2)])
    assert header[2:-4] == ["50", "60"]  # which is the last phase of one of them only
    assert [row[3] for row in rows] == ["76.00", "76.00"]
    header, *rows = cells([make_record(sizes=(3, 2, 2)), make_record(sizes=(4, 4))])
    assert header[2:5] == ["first", "middle", "last"]
    assert [row[2:5] for row in rows] == [["80.00", "76.00", "72.00"], ["80.00", "76.00", "76.00"]]


def test_runs_that_share_the_rest_of_their_names_are_called_by_method_and_strategies() -> None:
    records = [make_record(), make_record(method="bic")]
    assert [row[0] for row in cells(records)[1:]] == ["lucir", "bic"]
    assert "Names are short for METHOD/cifar100/b50s10." in results_grid(records).caption
    other = make_record(method="lwf", name="lwf/cifar100/b50s5")
    assert [row[0] for row in cells([*records, other])[1:]] == ["lucir", "bic", "lwf/…b50s5"]
    apart = cells([make_record(), make_record(method="bic", name="bic/cifar100/b50s10,epochs=2")])
    assert all("/cifar100/b50s10" in row[0] for row in apart[1:])


def test_single_phase_missing_classifier_and_no_record() -> None:
    header, row = cells([make_record(sizes=(4,))])
    assert header[2:] == ["last", "average", "forgetting"]  # nothing was published for it
    assert row[2:] == ["80.00", "80.00", "-"]
    _, row = cells([make_record(), make_record(seed=1, nearest_mean=True)], classifier="nearest_mean")
    assert row[1:-1] == ["2", *["-"] * 8]
    assert cells([]) == [["run", "n", "last", "average", "forgetting"]]
    assert comparison_warnings([]) == []


def test_each_method_is_shown_by_its_own_classifier() -> None:
    records = [make_record(method="icarl", nearest_mean=True), make_record(nearest_mean=True)]
    own, head, nearest = cells(records), cells(records, classifier="head"), cells(records, classifier="nearest_mean")
    assert own[1:] == [nearest[1], head[2]]
    assert (own[1][2], head[1][2]) == ("79.00", "80.00")
    # The paper's number is of its own classifier, and says so beside another.
    assert [row[-1] for row in head[1:]] == ["60.82 ± 0.03 (nearest mean)", "66.27 ± 0.28"]
    assert [row[-1] for row in nearest[1:]] == ["60.82 ± 0.03", "66.27 ± 0.28 (head)"]
    without = make_record(method="icarl")  # no exemplars: all there is
    assert cells([without]) == cells([without], classifier="head")


def test_a_terminal_takes_names_literally_and_cuts_no_number() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(results_grid([make_record(seed=s, name="[red]my|run[/red]") for s in range(2)]))
    text = console.export_text()
    assert "…" not in text
    assert "Accuracy in percent by the number of classes seen" in text
    for part in ("[red]my|run", "80.50", "64.50", "60.50", "70.50", "±0.71", "12.00", "±0.00", "66.27", "±0.28"):
        assert part in text
    assert r"[red]my\|run[/red]" in markdown(results_grid([make_record(name="[red]my|run[/red]")]))


LUCIR = "lucir/cifar100/b50s10"
DIFFERENT: list[tuple[dict[str, Any], str]] = [
    ({"method": "bic", "per_class": 40}, "memory: per_class:20 (lucir); per_class:40 (bic)"),
    ({"sizes": (50, *[5] * 10)}, "protocol: B=50 S=10, 6 phases"),
    ({"data": "glyphs"}, "data set: cifar100"),
    ({"method": "icarl", "nearest_mean": True}, "how the method classifies: head (lucir); nearest mean (icarl)"),
    ({"settings": {"protocol.selection": "random"}}, f"exemplars: herding selection ({LUCIR} ("),
    ({"settings": {"training.first.epochs": 200}}, f"training on cifar100: 160 epochs ({LUCIR} ("),
    ({"settings": {"training.later.epochs": 2}}, f"; 160 and then 2 epochs ({LUCIR} (training.later.epochs=2))"),
    ({"settings": {"network.name": "resnet32"}}, f"; resnet32 ({LUCIR} (network.name=resnet32))"),
]


@pytest.mark.parametrize(("fields", "said"), DIFFERENT, ids=[said[:20] for _, said in DIFFERENT])
def test_warnings_name_what_differs_and_who(fields: dict[str, Any], said: str) -> None:
    (warning,) = comparison_warnings([make_record(), make_record(**fields)])
    assert said in warning


def test_some_differences_do_not_matter() -> None:
    others = [make_record(seed=1), make_record(initial=["cwd:0.5"]), make_record(method="bic")]
    assert comparison_warnings([make_record(), *others]) == []
    icarl = make_record(method="icarl", nearest_mean=True)
    assert comparison_warnings([make_record(), icarl], "head") == []  # the same classifier for both
    assert comparison_warnings([make_record(), make_record(method="icarl")]) == []  # no nearest mean: by the head
    older = make_record(seed=1)
    del older["config"]["engine"]["photos"]  # a setting that came later
    assert len(group_by_identity([make_record(), older])) == 1
    ordered = make_record(method="bic", class_order="podnet1")
    ordered["data"]["class_hash"] = "0" * 64
    (warning,) = comparison_warnings([make_record(), ordered])
    assert "classes or class order on cifar100: seed1993, hash" in warning


def test_precisions_are_not_averaged() -> None:
    # All asked for `auto`, and a later machine made something else of it.
    records = [make_record(seed=seed) for seed in range(3)]
    records[2]["environment"]["precision"] = "fp16"
    _, two, one = cells(records)
    assert (two[0], one[0]) == (f"{LUCIR} (precision=fp32)", f"{LUCIR} (precision=fp16)")
    assert (two[8], one[8]) == ("70.50 ± 0.71", "72.00")
    (warning,) = comparison_warnings(records)
    assert "differ in precision: fp32" in warning


def test_records_of_plug_ins_that_are_not_loaded_are_shown() -> None:
    """Method, term and data set are not registered here, and the method has a classifier of its own."""
    stranger = make_record(initial=["cwd:0.5"], sizes=(50, 10))
    stranger |= {"name": "stranger/elsewhere", "method": "stranger", "initial": ["sparkle:2"]}
    stranger["data"] |= {"name": "elsewhere"}
    stranger["config"] |= {"method": {"name": "stranger", "size": 3}, "initial": [{"name": "sparkle", "weight": 2.0}]}
    stranger["config"]["protocol"] |= {"data": "elsewhere"}
    for phase in stranger["phases"]:
        phase["accuracy"]["tree"], phase["by_phase"]["tree"] = 50.0, [50.0] * (phase["phase"] + 1)
    stranger["summary"]["tree"] = {**(stranger["summary"]["head"] or {}), "last_accuracy": 50.0}  # type: ignore[typeddict-item]
    _, _, row = cells([make_record(), stranger])
    assert row == ["stranger/elsewhere", "1", "80.00", "76.00", "76.00", "78.00", "4.00", "-"]
    assert cells([stranger], classifier="tree")[1][3] == "50.00"
    assert any("data set: cifar100" in warning for warning in comparison_warnings([make_record(), stranger]))
    group = page_content([make_record(), stranger])["groups"][1]
    assert (group["own"], group["paper"], group["all"]["results"]["tree"]["last"]) == ("head", None, (50.0, None))


def test_a_warning_names_the_exceptions_and_counts_the_others() -> None:
    records = [make_record(method="lucir", name=f"lucir/cifar100/b50s10,epochs={n}") for n in range(5)]
    odd = make_record(method="bic")
    odd["environment"]["precision"] = "fp16"
    (warning,) = (text for text in comparison_warnings([*records, odd]) if "precision" in text)
    assert warning == "runs differ in precision: fp32 (the other 5); fp16 (bic/cifar100/b50s10)"
