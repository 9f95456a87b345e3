"""The cells of the paper's tables, each with the runs behind it, and whether they verify it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from phasezero.reproduce.plan import Line, Shelf, expand
from phasezero.reproduce.targets import PAPER_NAMES, Target
from phasezero.reproduce.views import Shown, averages, label, published
from phasezero.results.grid import NOTHING, Cell, Grid, Spread
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.paper import PublishedCell
from phasezero.results.record import Record
from phasezero.results.tables import spread

TOLERANCE = 0.5
ENOUGH = 3


@dataclass(frozen=True)
class Entry:
    """A cell of the paper and the runs of one precision behind it; without runs, one entry with none."""

    data: str
    line: Line
    cell: PublishedCell
    repeated: tuple[int, ...] = ()
    """Seeds that were run more than once; the first by path counts."""

    @property
    def precision(self) -> str:
        return self.line.precision

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
        return ("no" if reasons else "**yes**"), "; ".join(reasons + notes)


def entries(target: Target, shelf: Shelf) -> list[Entry]:
    """In the order of the target."""
    listed = []
    for data in target.data:
        shown = Shown(target, data, expand(target, data, {}), {}, (0, 1, 2))
        for line in shown.lines:
            cell = published(shown, line.config)
            if cell is None:
                raise ValueError(f"{line.config.name} is no cell of the paper")
            runs = by_precision(line, shelf) or [(line, [])]
            listed += [Entry(data, some, cell, tuple(repeated)) for some, repeated in runs]
    return listed


def by_precision(line: Line, shelf: Shelf) -> list[tuple[Line, list[int]]]:
    """The runs of a line, each precision by itself, with the seeds that were run more than once."""
    runs: dict[str, dict[int, tuple[Path, Record]]] = {}
    repeated: dict[str, list[int]] = {}
    for path, record in shelf.of(line.config):
        precision, seed = record["environment"]["precision"], record["seed"]
        if seed in runs.setdefault(precision, {}):
            repeated.setdefault(precision, []).append(seed)
        else:
            runs[precision][seed] = (path, record)
    return [
        (replace(line, records=some, precision=precision), repeated.get(precision, []))
        for precision, some in sorted(runs.items())
    ]


def table(target: Target, listed: Sequence[Entry], notes: Mapping[str, str]) -> Grid:
    """`notes`: by the name of a cell's run, what is to be said beside it."""
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
        "why not; what is known",
    ]
    rows: list[list[Cell]] = []
    for entry in listed:
        protocol, ours = entry.line.config.protocol, averages(entry.line)
        sizes = [str(protocol.base), str(protocol.step), protocol.memory.removeprefix("per_class:")]
        numbers: list[Cell] = [NOTHING, "0", Spread(entry.cell.mean, entry.cell.std), NOTHING]
        if ours:
            numbers[0], numbers[1] = spread(ours), str(len(ours))
            numbers[3] = Spread(mean_and_deviation(ours)[0] - entry.cell.mean, sign=True)
        verified, why = entry.verdict
        remark = ". ".join(filter(None, [why, notes.get(entry.line.config.name, "")]))
        name = PAPER_NAMES[entry.data]
        row = [name, label(entry.line.config), *sizes, entry.precision or NOTHING, *numbers]
        rows.append([*row, verified, remark or NOTHING])
    return Grid(header, rows, target.note, words=2, remarks=True)
