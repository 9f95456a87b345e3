"""The numbers that README and docs show are those of RESULTS.md, which a test of its own holds to the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasezero.presets import PRESETS

ROOT = Path(__file__).parents[1]
Row = dict[str, str]

pytestmark = pytest.mark.skipif(not (ROOT / "RESULTS.md").exists(), reason="no RESULTS.md beside these tests")


def tables(path: str) -> list[list[Row]]:
    """All Markdown tables of a file; what stands behind a column for a step S has that in front of its name."""
    found: list[list[Row]] = []
    header: list[str] = []
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            header = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not header:
            step = ""
            for cell in cells:
                step = cell if cell.startswith("S=") else step
                header.append(cell if cell == step else f"{step} {cell}".strip())
            found.append([])
        elif set(line) - set("|-: "):
            found[-1].append(dict(zip(header, cells, strict=True)))
    return found


def with_columns(path: str, *names: str) -> list[Row]:
    """The first such table."""
    return next(rows for rows in tables(path) if rows and list(rows[0])[: len(names)] == list(names))


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str], Row]:
    """Table 1 on CIFAR100, in fp16 as the documentation has it or not run at all, by method and S."""
    listed = with_columns("RESULTS.md", "data", "method", "B", "S", "R", "precision", "ours")
    rows = [row for row in listed if row["data"] == "CIFAR100" and row["precision"] != "bf16"]
    return {(row["method"].replace(" + ", "+"), row["S"]): row for row in rows}


def check_steps(rows: list[Row], cells: dict[tuple[str, str], Row]) -> None:
    for row in rows:
        method = next(iter(row.values())).partition(",")[0]
        for step in ("10", "5", "2"):
            known = cells[method, step]
            assert (row[f"S={step}"] or "-", row[f"S={step} paper"]) == (known["ours"], known["paper"])


def test_the_readmes_table(cells: dict[tuple[str, str], Row]) -> None:
    rows = with_columns("README.md", "method", "S=10")
    check_steps(rows, cells)
    shown = {row["method"] for row in rows}
    run = {method for method, step in cells if cells[method, step]["ours"] != "-"}
    assert run <= shown
    for row in rows:
        for step in ("10", "5", "2"):
            wanted = "3" if row["method"].startswith("LUCIR") else "1"
            assert cells[row["method"], step]["n"] == (wanted if row[f"S={step}"] else "0")


def test_the_tables_of_steps(cells: dict[tuple[str, str], Row]) -> None:
    rows = [row for row in with_columns("docs/results.md", "", "S=10") if "gain" not in row[""]]
    assert len(rows) == 2
    check_steps(rows, cells)
    others = with_columns("docs/results.md", "run", "S=10", "S=10 paper")
    check_steps(others, cells)
    for row in others:
        for step in ("S=10", "S=5", "S=2"):
            ours, paper = row[step], row[f"{step} paper"].partition(" ")[0]
            assert row[f"{step} gap"] == (f"{float(ours) - float(paper):+.2f}" if ours else "")


def test_the_table_of_the_embedded_data() -> None:
    listed = {row["run"]: row for row in with_columns("RESULTS.md", "run", "n", "phase 0")}
    rows = with_columns("docs/results.md", "method", "n", "phase 0", "last")
    for row in rows:
        name = f"{row['method'].strip('`')}/glyphs/b50s10"
        assert name in PRESETS or "+" in name
        columns = ("n", "phase 0", "last", "average (head)", "average (nearest mean)")
        assert [row[column] for column in columns] == [listed[name][column] for column in columns], name
    order = [float(row["average (head)"].partition(" ")[0]) for row in rows]
    assert order == sorted(order, reverse=True)
