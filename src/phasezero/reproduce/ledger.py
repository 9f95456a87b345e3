"""RESULTS.md: every cell of the paper beside what the records in a folder say, and whether that verifies it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phasezero.errors import UserError
from phasezero.reproduce.plan import Line, Shelf, expand, with_records
from phasezero.reproduce.targets import CIFAR100, PAPER_NAMES, TARGETS, Target
from phasezero.reproduce.views import Shown, averages, cells_grid, computed_on, label, published, relative
from phasezero.results.grid import NOTHING, Cell, Grid, Spread, markdown
from phasezero.results.jsonfile import read_json
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.paper import PublishedCell, preset_differences
from phasezero.results.record import Record, read_record
from phasezero.results.tables import group_records, spread

TOLERANCE = 0.5
ENOUGH = 3
TABLES = ("table1", "table2", "table3", "table4")

INTRODUCTION = f"""# Results

Made by `phasezero results results -o RESULTS.md` from the records in `results/`; a test compares it with them.

A cell of the paper is **verified** when the mean of at least {ENOUGH} seeds, trained by the preset that stands for
the cell (the paper's data, method, protocol and schedule; nothing changed), lies within {TOLERANCE} points of the
published mean. Numbers are average incremental accuracies in percent, phase 0 included, by the classifier that the
paper used (nearest mean for iCaRL, else the head): mean ± sample standard deviation over n seeds; gap: ours less the
paper's. Runs in different precision are not averaged together. Other data than the paper's verify nothing.
"""


def read_results(folder: Path, complain: Callable[[str], None] | None = None) -> list[tuple[Path, Record]]:
    """All records at any depth, whatever the files are called.

    A JSON file that names a format of its own (an analysis, a benchmark) is something else and left out; one that
    is neither is refused, so that no result is lost by a misspelling. With `complain`, damaged files are left out
    and it hears why.
    """
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            facts = read_json(path, "record")
            if "schema_version" in facts:
                found.append((path, read_record(path)))
                continue
        except UserError as error:
            if complain is None:
                raise
            complain(f"{error}; left out")
            continue
        if not isinstance(facts.get("format"), str):
            raise UserError(f"{path}: neither a record nor a file that names its format; add one, or move it")
    return found


@dataclass(frozen=True)
class Entry:
    """A cell of the paper and the runs of one precision behind it; without runs, one entry with none."""

    data: str
    line: Line
    cell: PublishedCell
    precision: str = ""
    repeated: tuple[int, ...] = ()
    """Seeds that were run more than once; the first by path counts."""

    @property
    def verdict(self) -> tuple[str, str]:
        ours = averages(self.line)
        if not ours:
            return "no", "not run"
        gap = mean_and_deviation(ours)[0] - self.cell.mean
        reasons = []
        if len(ours) < ENOUGH:
            reasons.append(f"n={len(ours)}, {ENOUGH} are needed")
        if abs(gap) > TOLERANCE:
            reasons.append(f"the gap is beyond {TOLERANCE}")
        notes = [f"seed {seed} was run more than once" for seed in self.repeated]
        return ("no" if reasons else "**yes**"), "; ".join(reasons + notes) or NOTHING


def entries(target: Target, shelf: Shelf) -> list[Entry]:
    """In the order of the target."""
    listed = []
    for data in target.data:
        shown = Shown(target, data, expand(target, data, {}), {}, (0, 1, 2))
        for line in shown.lines:
            cell = published(shown, line.config)
            if cell is None:
                raise ValueError(f"{line.config.name} is no cell of the paper")
            listed += _by_precision(data, line, cell, shelf)
    return listed


def _by_precision(data: str, line: Line, cell: PublishedCell, shelf: Shelf) -> list[Entry]:
    runs: dict[str, dict[int, tuple[Path, Record]]] = {}
    repeated: dict[str, list[int]] = {}
    for path, record in shelf.of(line.config):
        precision, seed = record["environment"]["precision"], record["seed"]
        if seed in runs.setdefault(precision, {}):
            repeated.setdefault(precision, []).append(seed)
        else:
            runs[precision][seed] = (path, record)
    return [
        Entry(data, replace(line, records=some), cell, precision, tuple(repeated.get(precision, ())))
        for precision, some in sorted(runs.items())
    ] or [Entry(data, line, cell)]


def table(target: Target, listed: Sequence[Entry]) -> Grid:
    header = [
        "data",
        "method",
        "B",
        "S",
        "R",
        "precision",
        "ours",
        "n",
        "paper",
        "gap",
        "verified",
        "why not",
    ]
    rows: list[list[Cell]] = []
    for entry in listed:
        protocol, ours = entry.line.config.protocol, averages(entry.line)
        sizes = [str(protocol.base), str(protocol.step), protocol.memory.removeprefix("per_class:")]
        numbers: list[Cell] = [NOTHING, "0", Spread(entry.cell.mean, entry.cell.std), NOTHING]
        if ours:
            numbers[0], numbers[1] = spread(ours), str(len(ours))
            numbers[3] = Spread(mean_and_deviation(ours)[0] - entry.cell.mean, sign=True)
        name = PAPER_NAMES[entry.data]
        rows.append(
            [name, label(entry.line.config), *sizes, entry.precision or NOTHING, *numbers, *entry.verdict]
        )
    return Grid(header, rows, target.note, words=2)


def write_results(folder: Path, start: Path, complain: Callable[[str], None] | None = None) -> str:
    """The text of RESULTS.md for the records in a folder, their paths as seen from `start`."""
    shelf = Shelf(read_results(folder, complain))
    by_table = {name: entries(TARGETS[name], shelf) for name in TABLES}
    stand_ins = ablations_on_cifar100(shelf)
    lines = [entry.line for listed in by_table.values() for entry in listed]
    lines += [line for shown in stand_ins.values() for line in shown.lines]
    used = {path: record for line in lines for path, record in line.records.values()}

    parts = [INTRODUCTION, _summary(by_table)]
    for name, listed in by_table.items():
        parts.append(_section(name, TARGETS[name].title, table(TARGETS[name], listed)))
    for name, shown in stand_ins.items():
        parts.append(_section(name, f"{TARGETS[name].title}, on CIFAR100", cells_grid(shown)))
    others = [record for path, record in shelf.records if path not in used]
    if others:
        parts.append("## Records that are no cell of the paper\n\n" + markdown(other_runs(others)))
    if used:
        rows = [
            [r["name"], str(r["seed"]), computed_on(r), relative(path, start)] for path, r in used.items()
        ]
        grid = Grid(["run", "seed", "computed on", "record"], rows, words=4)
        parts.append("## Records behind the cells\n\n" + markdown(grid))
    return "\n".join(parts)


def _section(name: str, title: str, grid: Grid) -> str:
    return f"## Table {name.removeprefix('table')}: {title}\n\n{markdown(grid)}"


def _summary(by_table: dict[str, list[Entry]]) -> str:
    rows = []
    for name, listed in by_table.items():
        names = {entry.line.config.name for entry in listed}
        run = {entry.line.config.name for entry in listed if entry.line.records}
        good = {entry.line.config.name for entry in listed if entry.verdict[0] != "no"}
        rows.append([f"Table {name.removeprefix('table')}", *map(str, map(len, (names, run, good)))])
    return markdown(Grid(["table", "cells", "run", "verified"], rows))


def ablations_on_cifar100(shelf: Shelf) -> dict[str, Shown]:
    """Ablations, which the paper made on ImageNet100, that have runs on CIFAR100 besides those of Table 1."""
    seeds = {record["seed"] for _, record in shelf.records}
    of_table1 = {line.config.name for line in expand(TARGETS["table1"], CIFAR100, {})}
    found = {}
    for name in TABLES[1:]:
        lines = [with_records(line, seeds, shelf) for line in expand(TARGETS[name], CIFAR100, {})]
        there = [line for line in lines if line.records]
        if not {line.config.name for line in there} <= of_table1:
            found[name] = Shown(TARGETS[name], CIFAR100, there, {}, ())
    return found


def other_runs(records: Iterable[Record]) -> Grid:
    """One row a group, with what sets it apart from the preset of its method, data and protocol."""
    header = [
        "run",
        "n",
        "phase 0",
        "last",
        "average (head)",
        "average (nearest mean)",
        "differs from its preset in",
    ]
    rows: list[list[Cell]] = []
    for group in group_records(records):
        row: list[Cell] = [group.label, str(len(group.records))]
        head, nearest = group.metrics("head") or [], group.metrics("nearest_mean") or []
        row.append(spread([record["phases"][0]["accuracy"]["head"] for record in group.records]))
        row.append(spread([run["last_accuracy"] for run in head]))
        for metrics in (head, nearest):
            values = [run["average_incremental_accuracy"] for run in metrics]
            row.append(spread(values) if values else NOTHING)
        rows.append([*row, ", ".join(preset_differences(group.records[0])) or "nothing"])
    return Grid(header, rows)
