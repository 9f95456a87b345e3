"""`phasezero show`, `report` and `results` of records from files: what goes where, and what a damaged one costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from phasezero.records.run import write_record
from samples import make_record

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def there(tmp_path: Path) -> Path:
    folder = tmp_path / "there"
    for method in ("lucir", "icarl"):
        write_record(folder / method / "record.json", make_record(method=method, nearest_mean=True))
    return folder


@pytest.mark.parametrize("form", ["csv", "latex", "markdown"])
def test_text_goes_to_stdout_alone_and_warnings_to_stderr(command: Command, there: Path, form: str) -> None:
    code, out, err = command("show", there, "--format", form)
    assert (code, "warning" in out) == (0, False)
    assert "phasezero: warning: runs differ in how the method classifies: nearest mean (icarl)" in err
    assert command("show", there, "--head", "--format", form)[2] == ""
    code, out, err = command("show", there)  # on a terminal they follow the table
    assert (code, "warning: runs differ in how the method classifies" in out, err) == (0, True, "")


def test_a_figure_that_cannot_be_drawn_is_refused_before_anything_is_shown(command: Command, there: Path) -> None:
    code, out, err = command("show", there, "--figure", "curves.bmp")
    assert (code, out) == (2, "")
    assert ".png, .svg, .pdf" in err


def test_a_damaged_record_is_named_and_the_others_are_shown(command: Command, there: Path, tmp_path: Path) -> None:
    damaged = there / "icarl" / "record.json"
    damaged.write_text(damaged.read_text()[:1000])
    for words, shown in (
        (["show", there, "--format", "csv"], "lucir/cifar100/b50s10"),
        (["report", there, "-o", "page.html"], "page.html\n"),
        (["results", there], "| lucir/cifar100/b50s10 | 0 | cpu, fp32 | there/lucir/record.json |"),
    ):
        code, out, err = command(*words)
        assert code == 0
        assert shown in out
        assert f"phasezero: warning: {damaged}: not JSON" in err
    assert "icarl" not in (tmp_path / "page.html").read_text()
    for words in (["show", damaged], ["report", damaged.parent]):  # which was named itself
        code, out, err = command(*words)
        assert (code, out) == (2, "")
        assert f"{damaged}: not JSON" in err


def test_everything_that_lies_beside_runs_may_be_named(command: Command, there: Path, tmp_path: Path) -> None:
    runs = sorted(there.iterdir())
    expected = command("show", *runs, "--format", "csv")[1]
    for name in ("alpha.pdf", "curves.png", "report.html", "results.md"):
        (there / name).write_bytes(b"\xac not a record")
    (there / "comparison.json").write_text('{"format": "phasezero-comparison-3"}')
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


def test_a_seed_that_was_run_twice_counts_once_by_the_first_path(command: Command, tmp_path: Path) -> None:
    for name, seed, drop in (("a", 0, 4), ("b", 0, 0), ("c", 1, 4)):
        write_record(tmp_path / name / "record.json", make_record(seed=seed, drop=drop))
    used = "lucir/cifar100/b50s10: seed 0 was run 2 times and counts once: a/record.json is used, not b/record.json"
    for order in ("abc", "cba"):
        code, out, err = command("show", *order, "--format", "markdown")
        assert (code, err) == (0, f"phasezero: warning: {used}\n")
        assert "| 2 |" in out
        assert "| 60.50 ± 0.71 |" in out
    assert command("report", *"bca", "-o", "page.html")[2] == f"phasezero: warning: {used}\n"
    assert used in (tmp_path / "page.html").read_text()
    text = command("results", tmp_path)[1]
    assert "| a/record.json |" in text
    assert "b/record.json" not in text
    assert "seed 0 was run more than once" in text
