"""The numbers in README, guides and notebook are those of RESULTS.md, which another test compares with the records."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from phasezero.methods import METHODS
from phasezero.paper.results import read_results
from phasezero.presets import FIRST_RUN, preset
from phasezero.report.tables import spread

ROOT = Path(__file__).parents[1]
STEPS = ("10", "5", "2")
Row = dict[str, str]

pytestmark = pytest.mark.skipif(not (ROOT / "RESULTS.md").exists(), reason="no RESULTS.md beside these tests")


def tables(path: str) -> list[list[Row]]:
    """Return all Markdown tables of a file; a column after one of a step S has that step before its name."""
    found: list[list[Row]] = []
    header: list[str] = []
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            header = []
        elif not header:
            step = ""
            for cell in cells:
                step = cell if cell.startswith("S=") else step
                header.append(cell if cell == step else f"{step} {cell}".strip())
            found.append([])
        elif set(line) - set("|-: "):
            found[-1].append(dict(zip(header, cells, strict=True)))
    return found


def with_columns(path: str, *names: str) -> list[Row]:
    """Return the first table whose columns begin with these."""
    return next(rows for rows in tables(path) if rows and list(rows[0])[: len(names)] == list(names))


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], Row]:
    """Return Table 1 on CIFAR100 by method and S: runs in fp16, as documented, and cells that were not run."""
    listed = with_columns("RESULTS.md", "data", "method", "B", "S", "R", "precision", "ours")
    rows = (row for row in listed if row["data"] == "CIFAR100" and row["precision"] != "bf16")
    return {(row["method"].replace(" + ", "+"), row["S"]): row for row in rows}


def check_steps(rows: list[Row], cells: dict[tuple[str, str], Row]) -> None:
    for row, step in itertools.product(rows, STEPS):
        known = cells[next(iter(row.values())).partition(",")[0], step]
        assert (row[f"S={step}"], row[f"S={step} paper"]) == (known["ours"], known["paper"])


def test_the_readmes_table(cells: dict[tuple[str, str], Row]) -> None:
    rows = with_columns("README.md", "method", "S=10")
    check_steps(rows, cells)
    assert {method for method, _ in cells} == {row["method"] for row in rows}
    for row in rows:
        few = ["2", "1", "1"] if row["method"] == "LwF" else ["1"] * 3
        wanted = ["3"] * 3 if row["method"].startswith("LUCIR") else few
        assert [cells[row["method"], step]["n"] for step in STEPS] == wanted


def test_the_tables_of_steps(cells: dict[tuple[str, str], Row]) -> None:
    rows = [row for row in with_columns("notebook/results.md", "", "S=10") if "gain" not in row[""]]
    others = with_columns("notebook/results.md", "run", "S=10", "S=10 paper")
    assert len(rows) == 2
    check_steps(rows + others, cells)
    for row, step in itertools.product(others, STEPS):
        ours, paper = (float(row[name].partition(" ")[0]) for name in (f"S={step}", f"S={step} paper"))
        assert row[f"S={step} gap"] == f"{ours - paper:+.2f}"


def test_the_table_of_the_embedded_data() -> None:
    listed = {row["run"]: row for row in with_columns("RESULTS.md", "run", "n", "phase 0")}
    rows = with_columns("notebook/results.md", "method", "n", "phase 0", "last")
    for row in rows:
        name = f"{row['method'].strip('`')}/glyphs/b50s10"
        columns = ("n", "phase 0", "last", "average (head)", "average (nearest mean)")
        assert [row[column] for column in columns] == [listed[name][column] for column in columns], name
    order = [float(row["average (head)"].partition(" ")[0]) for row in rows]
    assert order == sorted(order, reverse=True)


def test_the_readmes_leaderboard() -> None:
    """Its rows are the best of RESULTS.md for three methods, and its last sentence has the best published number."""
    listed = with_columns("RESULTS.md", "method", "phase 0", "after phase 0")
    rows = with_columns("README.md", "method", "phase 0", "after phase 0")
    best = {row["method"]: row for row in reversed(listed)}  # best first, so the first of a method stays
    assert len(rows) >= 3
    assert all(row == best[row["method"]] for row in rows)
    assert rows == [row for row in listed if row in rows]
    assert rows[0] == listed[0]
    published = [row for table in tables("RESULTS.md") for row in table if "published" in row]
    highest = max(published, key=lambda row: float(row["S=10"]) if row["S=10"] != "-" else 0.0)
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert highest["published"].startswith("TagFex")
    assert f"TagFex, has a network per phase and reports {highest['S=10']} at S=10." in text


def test_the_first_pages_table_is_that_of_its_records() -> None:
    records = [record for _, record in read_results(ROOT / "results" / "first_run")[0]]
    averages: dict[str, dict[int, float]] = {}
    names: set[str] = set()
    for record in records:
        metrics = record["summary"]["head"]
        assert metrics is not None
        label = record["name"].partition("/")[0]
        names.add(record["name"])
        averages.setdefault(label, {})[record["seed"]] = metrics["average_incremental_accuracy"]
    assert names == set(FIRST_RUN)
    shown = {row["run"].strip("`"): row["average"] for row in with_columns("docs/getting-started.md", "run", "average")}
    assert shown == {label: str(spread(list(values.values()))) for label, values in averages.items()}
    assert all(sorted(values) == [5, 6, 7, 8, 9] for values in averages.values())
    text = " ".join((ROOT / "docs/getting-started.md").read_text(encoding="utf-8").split())
    for method in ("ncm", "lucir"):
        gains = [averages[f"{method}+cwd:0.3"][seed] - averages[method][seed] for seed in range(5, 10)]
        assert f"{spread(gains)} with `{method}`" in text


def test_the_guide_to_cwd_has_the_gains_of_the_study() -> None:
    """A row of the guide has the averages without CwD and the gain of each eta, paired by seed."""
    found: dict[tuple[str, int, float], dict[int, float]] = {}
    for row in json.loads((ROOT / "results/cpu/study_glyphs.json").read_text())["rows"]:
        config = preset(row["name"])
        key = config.method.name, config.training.first.epochs, sum(one.weight for one in config.initial)
        found.setdefault(key, {})[row["seed"]] = row["average"]
    rows = with_columns("docs/how-to/cwd.md", "classifier", "epochs", "steps")
    assert len(rows) == 18
    for row in rows:
        method, epochs = row["classifier"].lower(), int(row["epochs"])
        plain = found[method, epochs, 0.0]
        assert row["eta 0"] == str(spread(list(plain.values())))
        for eta in (0.03, 0.1, 0.3, 1.0):
            gains = [average - plain[seed] for seed, average in found[method, epochs, eta].items()]
            assert len(gains) == 3
            assert row[f"eta {eta:g}"] == str(replace(spread(gains), sign=True))


def test_the_notebook_has_the_accuracies_and_the_state_of_fecam_and_its_neighbours() -> None:
    found: dict[tuple[str, int, bool], list[float]] = {}
    kept: dict[str, str] = {}
    for row in json.loads((ROOT / "results/cpu/fecam_glyphs.json").read_text())["rows"]:
        config = preset(row["name"])
        width = f", M={config.method.width}" if config.method.name == "ridge" else ""
        label = METHODS[config.method.name].label + width
        found.setdefault((label, config.protocol.base, bool(config.initial)), []).append(row["average"])
        kept[label] = f"{row['kept_bytes'] / 1e6:.1f} MB"
    rows = with_columns("notebook/results.md", "classifier", "kept")
    assert {row["classifier"] for row in rows} == kept.keys()
    for row in rows:
        assert row["kept"] == kept[row["classifier"]]
        for base, cwd in itertools.product((10, 50), (False, True)):
            averages = found[row["classifier"], base, cwd]
            assert len(averages) == 3
            assert row[f"B={base}" + ", CwD" * cwd] == str(spread(averages))


def test_the_notebook_has_the_accuracies_of_methods_on_the_same_backbone() -> None:
    """The records name data of a plug-in, so they are read as JSON."""
    places = {
        "joint, backbone at 0.3": "joint",
        "ridge, frozen": "ridge-frozen",
        "ridge, backbone adapted in phase 0": "ridge-adapted",
        "ncm, frozen": "ncm-frozen",
        "lucir, 40 epochs": "lucir",
        "lucir+cwd:0.02, 40 epochs": "lucir+cwd",
        "finetune": "finetune",
        "ridge, from scratch": "scratch-ridge",
        "lucir, from scratch": "scratch-lucir",
        "lucir+cwd:0.5, from scratch": "scratch-lucir+cwd",
    }
    rows = with_columns("notebook/photos.md", "method", "order 0", "order 1")
    assert [row["method"] for row in rows] == list(places)
    for row in rows:
        for seed in (0, 1):
            path = ROOT / "results/h200/photos/test" / places[row["method"]] / f"seed{seed}" / "record.json"
            if not row[f"order {seed}"]:
                assert not path.exists()
                continue
            phases = [phase["accuracy"]["head"] for phase in json.loads(path.read_text())["phases"]]
            assert row[f"order {seed}"] == f"{sum(phases) / len(phases):.2f}"
            if seed == 0:
                assert row["100 classes, order 0"] == f"{phases[-1]:.2f}"
