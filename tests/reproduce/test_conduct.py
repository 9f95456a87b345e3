"""From the command to its files: on glyphs, with training cut to the minimum."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from phasezero.engine.checkpoint import load_checkpoint
from phasezero.errors import UserError
from phasezero.reproduce.conduct import Wish, reproduce
from phasezero.reproduce.ledger import read_results
from phasezero.reproduce.plan import Filters
from phasezero.results.record import comparable_part, read_record
from samples import MINIMAL


@pytest.fixture
def console() -> Console:
    return Console(width=200, record=True, quiet=False, file=open("/dev/null", "w"))


def test_table_4_in_small(tmp_path: Path, console: Console) -> None:
    wish = Wish(("table4",), ("glyphs",), seeds=(0,), settings=MINIMAL)
    assert reproduce(wish, out=tmp_path, parallel=1, console=console) == []
    said = console.export_text()
    assert "4 runs, 1 at once: about" in said
    assert "glyphs stands in for ImageNet100" in said

    text = (tmp_path / "table4-glyphs.md").read_text()
    assert "glyphs stands in for ImageNet100" in text
    assert "Changed by hand: protocol.phase_sizes=[3, 1]" in text
    assert "| LUCIR + DC |" in text
    assert "glyphs stands in" in (tmp_path / "table4-glyphs.tex").read_text()
    rows = list(csv.DictReader((tmp_path / "table4-glyphs.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == ["LUCIR", "LUCIR + DC", "LUCIR + SDC", "LUCIR + CwD"]
    for row in rows:
        record = read_record(tmp_path / row["records"])
        assert float(row["ours"]) == pytest.approx(record["summary"]["head"]["average_incremental_accuracy"])
        assert row["gap"] == ""
        assert "glyphs stands in" in row["remarks"]
    assert float(rows[3]["gain"]) == pytest.approx(float(rows[3]["ours"]) - float(rows[0]["ours"]))

    # The same again: everything is there, nothing is run.
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    again = Console(width=200, record=True, file=console.file)
    assert reproduce(wish, out=tmp_path, parallel=1, console=again) == []
    assert "to run" not in again.export_text()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")} == stamps

    # Another folder finds these records, and runs only what a further seed needs.
    more = Wish(("table4",), ("glyphs",), seeds=(0, 1), filters=Filters(("lucir+cwd",)), settings=MINIMAL)
    left = reproduce(more, out=tmp_path / "other", records=[tmp_path], dry_run=True, console=again)
    assert [(config.label, config.seed) for config in left] == [("lucir+cwd", 1)]
    assert not (tmp_path / "other").exists()


def ticks(*pairs: tuple[int, float]) -> Callable[[], float]:
    """A clock that shows each time for so many looks, and the last for ever."""

    def times() -> Iterator[float]:
        for looks, now in pairs:
            yield from [now] * looks
        while True:
            yield pairs[-1][1]

    shown = times()
    return lambda: next(shown)


def test_a_time_limit_stops_after_a_phase_and_the_same_command_goes_on(
    tmp_path: Path, console: Console
) -> None:
    wish = Wish(("table4",), ("glyphs",), seeds=(0,), settings=MINIMAL)
    # Looks: at the start; may LUCIR start; may its phase 1; may LUCIR+DC start. Then an hour has passed.
    clock = ticks((4, 0.0), (1, 3600.0))
    left = reproduce(wish, out=tmp_path, parallel=1, time_limit=60.0, clock=clock, console=console)
    assert [config.label for config in left] == ["lucir+decov", "lucir+sdc", "lucir+cwd"]
    stopped = tmp_path / "lucir+decov-glyphs-b50s10-short" / "seed0"
    kept = load_checkpoint(stopped / "checkpoint.safetensors")
    assert len(kept.phases) == 1
    assert not (stopped / "record.json").exists()
    assert "3 of 4 runs are not there yet" in (tmp_path / "table4-glyphs.md").read_text()

    assert reproduce(wish, out=tmp_path, parallel=1, console=console) == []
    finished = read_record(stopped)
    assert finished["phases"][0]["seconds"] == kept.phases[0]["seconds"]  # taken over, not trained again
    assert json.loads((tmp_path / "lucir-glyphs-b50s10-short/seed0/record.json").read_text())["seed"] == 0


def test_runs_longer_than_the_limit_are_named(tmp_path: Path, console: Console) -> None:
    wish = Wish(("table4",), ("glyphs",), seeds=(0,))
    left = reproduce(wish, out=tmp_path, time_limit=1.0, dry_run=True, console=console)
    assert len(left) == 4
    assert "the next phase of 4 of them takes longer than the time limit" in console.export_text()


def test_a_phase_0_that_does_not_fit_is_trained_by_none_of_those_who_share_it(
    tmp_path: Path, console: Console
) -> None:
    """AANet would take LUCIR's phase 0 over, if LUCIR had the time to train it."""
    wish = Wish(("table1",), ("glyphs",), seeds=(0,), filters=Filters(("lucir", "aanet"), (10,)))
    left = reproduce(wish, out=tmp_path, parallel=1, time_limit=5.0, clock=lambda: 0.0, console=console)
    assert [config.label for config in left] == ["lucir", "lucir+cwd", "aanet", "aanet+cwd"]
    assert not list(tmp_path.rglob("*.safetensors"))
    assert "the next phase of 4 of them takes longer than the time limit" in console.export_text()


def test_what_was_reproduced_can_be_read_whole_and_what_is_damaged_is_left_out_aloud(
    tmp_path: Path, console: Console
) -> None:
    wish = Wish(("table4",), ("glyphs",), (0,), Filters(("lucir+sdc", "lucir+cwd")), settings=MINIMAL)
    reproduce(wish, out=tmp_path, parallel=1, console=console)
    records, analyses = read_results(tmp_path)  # the notes of the store beside them are none, and say so
    assert (len(records), analyses) == (2, [])

    damaged = tmp_path / "lucir+cwd-glyphs-b50s10-short" / "seed0" / "record.json"
    damaged.write_text("{half")
    left = reproduce(wish, out=tmp_path, parallel=1, dry_run=True, console=console)
    assert [config.label for config in left] == ["lucir+cwd"]
    said = console.export_text()
    assert f"note: {damaged}: not JSON" in said
    assert "1 run, 1 at once" in said
    with pytest.raises(UserError, match="not JSON"):  # nobody's file is overwritten
        reproduce(wish, out=tmp_path, parallel=1, console=console)


def test_a_run_that_diverges_does_not_keep_the_others_from_running(tmp_path: Path, console: Console) -> None:
    """A loss limit that two of four runs stay below: the others are named, and not tried again."""
    free = Wish(("table4",), ("glyphs",), seeds=(0,), settings=MINIMAL)
    reproduce(free, out=tmp_path / "free", parallel=1, console=Console(quiet=True))
    records = [read_record(path) for path in (tmp_path / "free").rglob("record.json")]
    highest = sorted(
        (max(phase["loss"]["train"][0] for phase in one["phases"]), one["name"]) for one in records
    )
    (second, _), (third, _) = highest[1:3]
    out = tmp_path / "limited"
    wish = replace(free, settings={**MINIMAL, "engine.loss_limit": (second + third) / 2})

    assert reproduce(wish, out=out, parallel=1, console=console) == []
    said = console.export_text()
    diverged = {name for _, name in highest[2:]}
    assert {read_record(path)["name"] for path in out.rglob("record.json")} == {n for _, n in highest[:2]}
    assert {path.read_text().split()[0] for path in out.rglob("diverged.txt")} == diverged
    assert all(f"left out: {name} seed 0: training diverged" in said for name in diverged)
    told = (out / "table4-glyphs.md").read_text()
    assert "2 of 4 runs diverged." in told
    assert "not there yet" not in told

    assert reproduce(wish, out=out, parallel=1, console=console) == []
    assert console.export_text().count("not run again") == 2
    next(out.rglob("diverged.txt")).unlink()
    assert len(reproduce(wish, out=out, dry_run=True, console=console)) == 1
    said = console.export_text()
    assert "note: 1 of 4 runs diverged." in said
    assert "note: 1 of 4 runs are not there yet." in said


def test_curves_and_sweeps_are_drawn_in_three_formats(tmp_path: Path, console: Console) -> None:
    wish = Wish(
        ("fig5", "fig6"), ("glyphs",), seeds=(0,), filters=Filters(("lucir",), (5,)), settings=MINIMAL
    )
    # With phase sizes of its own no step is left to filter by: S=10 and S=5 of Fig. 6 are the same run.
    assert reproduce(wish, out=tmp_path, parallel=1, console=console) == []
    for name in ("fig5-glyphs-lucir", "fig6-glyphs"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert "glyphs stands in for ImageNet100" in " ".join((tmp_path / f"{name}.svg").read_text().split())


def test_spectra_from_models_that_runs_left(tmp_path: Path, console: Console) -> None:
    settings = {"training.first.epochs": 0, "training.later.epochs": 0}
    wish = Wish(("fig7",), ("glyphs",), settings=settings | {"protocol.phase_sizes": [3]})
    assert reproduce(wish, out=tmp_path, parallel=1, console=console) == []
    assert (tmp_path / "fig7-glyphs.png").exists()
    text = (tmp_path / "fig7-glyphs.md").read_text()
    assert "| model | n | classes | accuracy | information | floored |" in text
    assert "unit features of the train images" in text
    assert "eigenvalues below 1e-12 are raised to it (floored: so many a class)" in text
    assert "alpha" not in text
    assert "| more information | lucir/glyphs/sizes50 -> lucir+cwd:0.02/glyphs/sizes50 | - |" in text
    said = json.loads((tmp_path / "fig7-glyphs-findings.json").read_text())
    assert said["features"] == "unit"
    assert {(one["claim"], one["cases"]) for one in said["findings"]} == {("more information", 3)}
    assert len(said["findings"]) == 8  # from each eta to the next: 0, 0.02, 0.05, 0.1, 0.25, ..., 1.25
    (model, *_) = tmp_path.rglob("analysis-phase0.json")
    for path in (model, model.with_name("checkpoint.safetensors")):
        path.unlink()
    with pytest.raises(UserError, match="a record without its model"):
        reproduce(wish, out=tmp_path, parallel=1, console=console)


def test_data_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path, console: Console) -> None:
    with pytest.raises(UserError, match=r"imagenet100-cwd not found .* --data glyphs"):
        reproduce(Wish(("table2",)), out=tmp_path / "out", root=tmp_path, console=console)
    assert list(tmp_path.iterdir()) == []


def test_another_configuration_in_the_folder_is_refused(tmp_path: Path, console: Console) -> None:
    wish = Wish(("table4",), ("glyphs",), seeds=(0,), filters=Filters(("lucir+cwd",)), settings=MINIMAL)
    reproduce(wish, out=tmp_path, parallel=1, console=console)
    changed = Wish(wish.targets, wish.data, (0,), wish.filters, MINIMAL | {"training.first.lr": 0.05})
    with pytest.raises(UserError, match=r"another configuration; remove it, or choose another --out$"):
        reproduce(changed, out=tmp_path, parallel=1, console=console)


def test_a_damaged_record_can_be_made_anew(tmp_path: Path, console: Console) -> None:
    """Also where it was the only one."""
    wish = Wish(("table4",), ("glyphs",), seeds=(0,), filters=Filters(("lucir+cwd",)), settings=MINIMAL)
    reproduce(wish, out=tmp_path, parallel=1, console=console)
    (path,) = tmp_path.rglob("record.json")
    before = read_record(path)
    path.write_text(path.read_text()[:1000])
    with pytest.raises(UserError, match=r"record.json: not JSON .*; remove this file"):
        reproduce(wish, out=tmp_path, parallel=1, console=console)
    assert "left out" in console.export_text()
    path.unlink()
    assert reproduce(wish, out=tmp_path, parallel=1, console=console) == []
    assert comparable_part(read_record(path)) == comparable_part(before)


def test_a_run_that_diverges_in_phase_0_is_left_out_too(tmp_path: Path, console: Console) -> None:
    wish = Wish(("table4",), ("glyphs",), seeds=(0,), settings={**MINIMAL, "engine.loss_limit": 1e-6})
    assert reproduce(wish, out=tmp_path, parallel=1, console=console) == []
    assert len(list(tmp_path.rglob("diverged.txt"))) == 4
    assert console.export_text().count("left out: ") == 4


def test_what_was_filtered_out_is_said(tmp_path: Path, console: Console) -> None:
    wish = Wish(("table1",), ("cifar100",), seeds=(0,), filters=Filters(("lucir",), (10, 5)))
    reproduce(wish, out=tmp_path, dry_run=True, console=console)
    assert "Only lucir and S=10, S=5; the other rows are left out." in console.export_text()
