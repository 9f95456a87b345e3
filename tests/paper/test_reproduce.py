"""From the command to its files: on glyphs, with training cut to the minimum."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from phasezero.config import RunConfig
from phasezero.engine.checkpoint import load_checkpoint
from phasezero.errors import UserError
from phasezero.paper.plan import Request
from phasezero.paper.reproduce import reproduce
from phasezero.paper.results import read_results
from phasezero.records import run as records
from phasezero.records.run import comparable_part, read_record, write_record
from samples import MINIMAL

TABLE4 = Request(("table4",), ("glyphs",), (0,), settings=MINIMAL)
ONE = replace(TABLE4, methods=("lucir+cwd",))


def run(request: Request, out: Path, **options: Any) -> tuple[list[RunConfig], str]:
    """Runs the command: what the time limit left over, and what was printed."""
    with open("/dev/null", "w") as nowhere:
        console = Console(width=200, record=True, file=nowhere)
        left = reproduce(request, out=out, **{"parallel": 1, "console": console, **options})
    return left, console.export_text()


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_table_4_with_minimal_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, said = run(TABLE4, tmp_path)
    assert left == []
    assert "4 runs, 1 at once: about" in said
    assert "glyphs replaces ImageNet100" in said
    text = (tmp_path / "table4-glyphs.md").read_text()
    for words in ("glyphs replaces ImageNet100", "Changed by hand: protocol.phase_sizes=[3, 1]", "| LUCIR + DC |"):
        assert words in text
    assert "glyphs replaces" in (tmp_path / "table4-glyphs.tex").read_text()
    rows = rows_of(tmp_path / "table4-glyphs.csv")
    assert [row["method"] for row in rows] == ["LUCIR", "LUCIR + DC", "LUCIR + SDC", "LUCIR + CwD"]
    for row in rows:
        record = read_record(tmp_path / row["records"])
        assert float(row["ours"]) == pytest.approx(record["summary"]["head"]["average_incremental_accuracy"])
        assert row["gap"] == ""
        assert "glyphs replaces" in row["remarks"]
    assert float(rows[3]["gain"]) == pytest.approx(float(rows[3]["ours"]) - float(rows[0]["ours"]))

    # The same again: everything exists, each record is read once, nothing is run.
    read: list[Path] = []
    read_json = records.read_json
    monkeypatch.setattr(records, "read_json", lambda path, what: read.append(path) or read_json(path, what))
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    left, said = run(TABLE4, tmp_path)
    assert "to run" not in said
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")} == stamps
    assert sorted(read) == sorted(stamps)

    # Another folder finds these records, and runs only what a further seed needs.
    left, _ = run(replace(ONE, seeds=(0, 1)), tmp_path / "other", records=[tmp_path], dry_run=True)
    assert [(config.label, config.seed) for config in left] == [("lucir+cwd", 1)]
    assert not (tmp_path / "other").exists()


def test_a_plug_in_is_run_next_to_the_papers_methods(plug_ins: None, tmp_path: Path) -> None:
    """A method, a term and a data set that the paper does not have, in a table, in curves and in a sweep."""
    request = Request(("fig5", "fig6"), ("my-data",), (0,), ("lucir", "mine", "mine+my-term"), (5,), MINIMAL)
    assert run(request, tmp_path)[0] == []
    rows = rows_of(tmp_path / "fig5-my-data.csv")
    assert [row["method"] for row in rows] == ["LUCIR", "LUCIR + CwD", "mine", "mine + my-term"]
    assert float(rows[3]["gain"]) == pytest.approx(float(rows[3]["ours"]) - float(rows[2]["ours"]))
    sweep = (tmp_path / "fig6-my-data.svg").read_text()
    assert all(f">{label}, S=5<" in sweep for label in ("LUCIR", "mine", "mine + my-term"))
    for name in ("fig5-my-data-lucir", "fig5-my-data-mine", "fig6-my-data"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert "my-data replaces ImageNet100" in (tmp_path / f"{name}-caption.txt").read_text()


def test_a_time_limit_stops_after_a_phase_and_the_same_command_continues(tmp_path: Path) -> None:
    # Looks: at the start; may LUCIR start; may its phase 1; may LUCIR+DC start. Then an hour has passed.
    looks = iter([0.0] * 4)
    left, _ = run(TABLE4, tmp_path, time_limit=60.0, clock=lambda: next(looks, 3600.0))
    assert [config.label for config in left] == ["lucir+decov", "lucir+sdc", "lucir+cwd"]
    (stopped,) = tmp_path.glob("lucir+decov-*/seed0")
    kept = load_checkpoint(stopped / "checkpoint.safetensors")
    assert len(kept.phases) == 1
    assert not (stopped / "record.json").exists()
    assert "3 of 4 runs are missing" in (tmp_path / "table4-glyphs.md").read_text()

    assert run(TABLE4, tmp_path)[0] == []
    assert read_record(stopped)["phases"][0]["seconds"] == kept.phases[0]["seconds"]  # taken over, not trained again


def test_a_phase_0_that_does_not_fit_the_time_limit_is_not_started(tmp_path: Path) -> None:
    """AANet would take LUCIR's phase 0 over, if LUCIR had the time to train it."""
    request = Request(("table1",), ("glyphs",), (0,), ("lucir", "aanet"), (10,))
    left, said = run(request, tmp_path, time_limit=5.0, clock=lambda: 0.0)
    assert [config.label for config in left] == ["lucir", "lucir+cwd", "aanet", "aanet+cwd"]
    assert not list(tmp_path.rglob("*.safetensors"))
    assert "the next phase of 4 of them takes longer than the time limit" in said


def test_a_damaged_record_is_named_and_can_be_made_again(tmp_path: Path) -> None:
    run(ONE, tmp_path)
    assert [len(found) for found in read_results(tmp_path)] == [1, 0]  # the store's notes next to it name their format
    (path,) = tmp_path.rglob("record.json")
    before = read_record(path)
    path.write_text(path.read_text()[:1000])
    left, said = run(ONE, tmp_path, dry_run=True)
    assert [config.label for config in left] == ["lucir+cwd"]
    assert f"note: {path}: not JSON" in said
    with pytest.raises(UserError, match=r"record.json: not JSON .*; remove this file"):  # nobody's file is overwritten
        run(ONE, tmp_path)
    path.unlink()
    assert run(ONE, tmp_path)[0] == []
    assert comparable_part(read_record(path)) == comparable_part(before)
    before["config"]["training"]["first"]["lr"] = 0.05
    write_record(path, before)
    with pytest.raises(UserError, match=r"another configuration; remove it, or choose another --out$"):
        run(ONE, tmp_path)


def test_a_run_that_diverges_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    """A loss limit that two of four runs stay below: the others are named, and not tried again."""
    run(TABLE4, tmp_path / "free")
    found = [read_record(path) for path in (tmp_path / "free").rglob("record.json")]
    highest = sorted((max(phase["loss"]["train"][0] for phase in one["phases"]), one["name"]) for one in found)
    (second, _), (third, _) = highest[1:3]
    out = tmp_path / "limited"
    limited = replace(TABLE4, settings={**MINIMAL, "engine.loss_limit": (second + third) / 2})

    left, said = run(limited, out)
    diverged = {name for _, name in highest[2:]}
    assert left == []
    assert {read_record(path)["name"] for path in out.rglob("record.json")} == {name for _, name in highest[:2]}
    assert {path.read_text().split()[0] for path in out.rglob("diverged.txt")} == diverged
    assert all(f"left out: {name} seed 0: training diverged" in said for name in diverged)
    text = (out / "table4-glyphs.md").read_text()
    assert "2 of 4 runs diverged." in text
    assert "missing" not in text

    left, said = run(limited, out)
    assert left == []
    assert said.count("not run again") == 2
    next(out.rglob("diverged.txt")).unlink()
    left, said = run(limited, out, dry_run=True)
    assert len(left) == 1
    assert "note: 1 of 4 runs diverged." in said
    assert "note: 1 of 4 runs are missing." in said


def test_information_from_models_that_runs_left(tmp_path: Path) -> None:
    settings = {"training.first.epochs": 0, "training.later.epochs": 0, "protocol.phase_sizes": [3]}
    request = Request(("fig7",), ("glyphs",), settings=settings)
    assert run(request, tmp_path)[0] == []
    assert (tmp_path / "fig7-glyphs.png").exists()
    text = (tmp_path / "fig7-glyphs.md").read_text()
    assert "| model | n | classes | accuracy | information | floored |" in text
    assert "unit features of the train images" in text
    assert "alpha" not in text
    found = json.loads((tmp_path / "fig7-glyphs-findings.json").read_text())
    assert found["features"] == "unit"
    assert {(one["claim"], one["cases"]) for one in found["findings"]} == {("more information", 3)}
    assert len(found["findings"]) == 8  # from each eta to the next: 0, 0.02, 0.05, 0.1, 0.25, ..., 1.25
    (model, *_) = tmp_path.rglob("analysis-phase0.json")
    for path in (model, model.with_name("checkpoint.safetensors")):
        path.unlink()
    with pytest.raises(UserError, match="a record without its model"):
        run(request, tmp_path)


def test_missing_data_is_an_error_before_anything_is_printed_or_started(tmp_path: Path) -> None:
    console = Console(width=80, file=io.StringIO())
    with pytest.raises(UserError, match=r"imagenet100-cwd not found .* --data glyphs"):
        run(Request(("table2",)), tmp_path / "out", root=tmp_path, console=console)
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_long_runs_without_a_gpu_offer_the_small_version(tmp_path: Path) -> None:
    on_cpu = {"engine.device": "cpu"}
    _, said = run(Request(("fig6",), ("cifar100",), settings=on_cpu), tmp_path, dry_run=True)
    assert re.match(r"36 runs, 1 at once: about \d+ days \(partly guessed", said)
    assert re.search(r"note: no GPU is used, .* about \d+ days; the small version, --data glyphs, takes about", said)
    with pytest.raises(UserError, match=r"not found .*; no GPU is used, .* the small version, --data glyphs, takes"):
        run(Request(("fig6",), ("cifar100",), settings=on_cpu), tmp_path, root=tmp_path)
    _, said = run(TABLE4, tmp_path, dry_run=True)
    assert "no GPU" not in said
