"""`phasezero show`, `report` and `results` of records from files: what goes where, and what a damaged one costs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from phasezero.results.record import Record, read_record, write_record

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def there(make_record: Callable[..., Record], tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    for method in ("lucir", "icarl"):
        write_record(folder / method / "record.json", make_record(method=method, nearest_mean=True))
    return folder


@pytest.mark.parametrize("form", ["csv", "latex", "markdown"])
def test_text_goes_to_stdout_alone_and_warnings_to_stderr(command: Command, there: Path, form: str) -> None:
    code, out, err = command("show", there, "--format", form)
    assert code == 0
    assert "warning" not in out
    assert "phasezero: warning: runs differ in how the method classifies: nearest mean (icarl/" in err
    assert command("show", there / "lucir", "--format", form)[2] == ""
    assert command("show", there, "--head", "--format", form)[2] == ""


def test_csv_says_which_classifier_the_published_number_is_of(command: Command, there: Path) -> None:
    def papers(*words: str) -> list[tuple[str, str]]:
        rows = csv.DictReader(io.StringIO(command("show", there, "--format", "csv", *words)[1]))
        return [(row["paper"], row["paper note"]) for row in rows]

    assert papers("--head") == [("60.82", "nearest mean"), ("66.27", "")]
    assert papers("--nearest-mean") == [("60.82", ""), ("66.27", "head")]


def test_on_a_terminal_warnings_follow_the_table(command: Command, there: Path) -> None:
    code, out, err = command("show", there)
    assert (code, err) == (0, "")
    assert "warning: runs differ in how the method classifies" in out
    for one in ("--head", "--nearest-mean"):
        assert "warning" not in command("show", there, one)[1]


def test_a_figure_that_cannot_be_drawn_is_refused_before_anything_is_shown(
    command: Command, there: Path
) -> None:
    code, out, err = command("show", there, "--figure", "curves.bmp")
    assert (code, out) == (2, "")
    assert ".png, .svg, .pdf" in err


def test_a_damaged_record_is_named_and_the_others_are_shown(
    command: Command, there: Path, tmp_path: Path
) -> None:
    damaged = there / "icarl" / "record.json"
    sound = read_record(damaged)
    damaged.write_text(damaged.read_text()[:1000])
    code, out, err = command("show", there, "--format", "csv")
    assert code == 0
    assert [row["run"] for row in csv.DictReader(io.StringIO(out))] == ["lucir/cifar100/b50s10"]
    assert err.startswith(f"phasezero: warning: {damaged}: not JSON")
    code, out, err = command("report", there, "-o", "page.html")
    assert (code, out) == (0, "page.html\n")
    assert f"{damaged}: not JSON" in err
    assert "icarl" not in (tmp_path / "page.html").read_text()
    code, out, err = command("results", there)
    assert code == 0
    assert f"{damaged}: not JSON" in err
    assert "| lucir/cifar100/b50s10 | 0 | cpu, fp32 | there/lucir/record.json |" in out
    write_record(damaged, {**sound, "config": {**sound["config"], "initial": ["cwd"]}})
    for words in (["show", there], ["report", there], ["results", there]):
        code, _, err = command(*words)
        assert code == 0
        assert f"{damaged}: config.initial[0] should be object; left out" in err
    damaged.write_text("{")
    for words in (["show", damaged], ["report", damaged.parent]):
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert f"{damaged}: not JSON" in err


def test_everything_that_lies_beside_runs_may_be_named(command: Command, there: Path, tmp_path: Path) -> None:
    runs = sorted(there.iterdir())
    expected = command("show", *runs, "--format", "csv")[1]
    assert expected.count("b50s10") == 2
    for name in ("alpha.pdf", "curves.png", "report.html", "results.md"):
        (there / name).write_bytes(b"\xac not a record")
    (there / "comparison.json").write_text('{"format": "phasezero-comparison-3"}')
    assert command("show", *sorted(there.iterdir()), "--format", "csv")[:2] == (0, expected)
    stopped = there / "stopped" / "seed0"
    stopped.mkdir(parents=True)
    code, out, err = command("show", *sorted(there.iterdir()), "--format", "csv")
    assert (code, out) == (0, expected)
    assert f"warning: {stopped.parent}: no record.json in this folder or below it; left out" in err
    assert command("report", *sorted(there.iterdir()), "-o", tmp_path / "page.html")[0] == 0
    # Nothing else named: then it was meant, and so is a file that may be a record.
    for named, why in (
        ([stopped], "no record.json"),
        ([there / "alpha.pdf"], "not JSON"),
        ([there / "comparison.json"], "schema_version"),
        ([*runs, there / "nowhere"], "no record to read"),
    ):
        code, out, err = command("show", *named)
        assert (code, out) == (2, "")
        assert why in err
