"""What a target shows once its runs are there: a table beside the paper's numbers, figures, the files behind them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from phasezero.config import RunConfig
from phasezero.memory import MemoryRule
from phasezero.reproduce.plan import SHORT, Filters, Line, stand_in, usual_config
from phasezero.reproduce.targets import PAPER_NAMES, Target
from phasezero.results.files import write_whole
from phasezero.results.grid import NOTHING, Cell, Grid, Spread, comma_separated, latex, markdown
from phasezero.results.paper import PublishedCell, find_cell, published_classifier
from phasezero.results.record import Record
from phasezero.results.tables import Group, spread

NAMES = {"lwf": "LwF", "icarl": "iCaRL", "bic": "BiC", "lucir": "LUCIR", "podnet": "PODNet", "aanet": "AANet"}
TERM_NAMES = {"cwd": "CwD", "decov": "DC", "sdc": "SDC", "mimic": "oracle"}
COEFFICIENTS = {"cwd": "eta", "mimic": "beta"}

NOT_RUN = "not run"
_ABOUT_CELLS = (
    "Average incremental accuracy in percent, mean ± sample standard deviation over n runs. Gap: ours less the "
    "paper's, where both are of the same data."
)


@dataclass(frozen=True)
class Shown:
    """A target on a data set, with its lines as far as they have records."""

    target: Target
    data: str
    lines: Sequence[Line]
    settings: Mapping[str, object]
    """What was changed by hand."""
    seeds: Sequence[int]
    filters: Filters = Filters()
    diverged: int = 0
    """How many of its runs are known to have diverged; they have no record either."""

    @property
    def remarks(self) -> list[str]:
        """What keeps these numbers from being the paper's; each output says it."""
        said = [stand_in(self.target, self.data)]
        short = {line.config.training.later.epochs for line in self.lines if line.config.name.endswith(SHORT)}
        for epochs in sorted(short):
            said.append(f"Later phases are trained for {epochs} epochs instead of the preset's 6.")
        if self.settings:
            changed = ", ".join(f"{key}={value}" for key, value in self.settings.items())
            said.append(f"Changed by hand: {changed}.")
        if chosen := self.filters.words:
            said.append(f"Only {chosen}; the other rows are left out.")
        mixed = [line for line in self.lines if len(_precisions(line)) > 1]
        if mixed:
            of = "; ".join(f"{self.label(line.config)}: {', '.join(_precisions(line))}" for line in mixed)
            said.append(f"Runs of different precision are averaged together ({of}).")
        missing = sum(seed not in line.records for line in self.lines for seed in self.seeds) - self.diverged
        for number, what in ((self.diverged, "diverged"), (missing, "are not there yet")):
            if number:
                said.append(f"{number} of {len(self.seeds) * len(self.lines)} runs {what}.")
        return [*filter(None, said), *filter(None, [self.target.note])]

    def label(self, config: RunConfig) -> str:
        """Of a line; with every coefficient, where lines of its method differ in it."""
        alike = [line.config for line in self.lines if line.config.method.name == config.method.name]
        cwd = {term.weight for other in alike for term in other.initial if term.name == "cwd"}
        return label(config, weights=len(cwd) > 1)

    @property
    def caption(self) -> str:
        name = self.target.name.replace("table", "Table ").replace("fig", "Fig. ")
        where = PAPER_NAMES.get(self.data, self.data)
        return " ".join([f"{name} of the paper, on {where}: {self.target.title}.", *self.remarks])

    @property
    def dataset(self) -> str:
        """By the paper's name: the data set whose published numbers stand beside ours."""
        own = "imagenet100-cwd" if self.data.startswith("imagenet100-") else self.data
        return PAPER_NAMES[own if own in self.target.data else self.target.data[0]]


def _precisions(line: Line) -> list[str]:
    return sorted({record["environment"]["precision"] for _, record in line.records.values()})


def label(config: RunConfig, *, weights: bool = False) -> str:
    """`LUCIR + CwD`; with the coefficient where it is not the usual one, or with `weights` always."""
    usual = usual_config(config)
    parts = [NAMES.get(config.method.name, config.method.name)]
    for term, own in zip(config.initial, usual.initial, strict=True):
        name = TERM_NAMES.get(term.name, term.name)
        coefficient = f" ({COEFFICIENTS.get(term.name, 'weight')} {term.weight:g})"
        plain = term == own and term.name != "mimic" and not weights
        parts.append(name if plain else name + coefficient)
    return " + ".join(parts)


def published(shown: Shown, config: RunConfig) -> PublishedCell | None:
    """The paper's cell for a line; none for coefficients other than the usual.

    None either for a curve over coefficients on other data: what is usual there is not what the paper's cell is of.
    """
    if shown.target.view == "sweep" and stand_in(shown.target, shown.data):
        return None
    if shown.target.view not in ("methods", "cells", "curves", "sweep"):  # it is about models, not accuracies
        return None
    usual = usual_config(config)
    protocol, rule = config.protocol, MemoryRule.parse(config.protocol.memory)
    if protocol.phase_sizes or config.initial != usual.initial or rule.kind != "per_class":
        return None
    terms = [term.name for term in config.initial]
    return find_cell(shown.dataset, config.method.name, terms, protocol.base, protocol.step, rule.count)


def averages(line: Line) -> list[float]:
    """Average incremental accuracy of each run, by the classifier that the paper used for the method."""
    found = [line.records[seed][1]["summary"] for seed in sorted(line.records)]
    metrics = [summary[published_classifier(line.config.method.name)] for summary in found]
    return [one["average_incremental_accuracy"] for one in metrics if one is not None]


def group(shown: Shown, line: Line) -> Group:
    return Group(shown.label(line.config), tuple(line.records[seed][1] for seed in sorted(line.records)))


def cells_grid(shown: Shown) -> Grid:
    """One row a line: ours and the paper's, and what a phase-0 term gains in both."""
    paper = f"paper ({shown.dataset})" if stand_in(shown.target, shown.data) else "paper"
    header = ["method", "B", "S", "R", "ours", "n", paper, "gap", "gain", "paper's gain"]
    rows: list[list[Cell]] = []
    several = len({line.precision for line in shown.lines}) > 1
    for line in shown.lines:
        sizes = _protocol(line)[1:]
        name = shown.label(line.config) + (f" ({line.precision})" if several else "")
        rows.append([name, *sizes, *_numbers(shown, line, _without_term(shown, line))])
    about = f"{shown.caption} {_ABOUT_CELLS} Gain: over the same method without the term."
    return Grid(header, rows, about)


def curves_grid(shown: Shown, *, every_phase: bool = False) -> Grid:
    """The same with the accuracy after phase 0 and after the last; or after each, by the classes seen."""
    cells = cells_grid(shown)
    curves = [_curve(shown, line) for line in shown.lines]
    counts = sorted({count for curve in curves for count in curve}) if every_phase else []
    added = ["phase 0", *(f"{count} classes" for count in counts), "last"]
    rows: list[list[Cell]] = []
    for curve, row in zip(curves, cells.rows, strict=True):
        first, last = (list(curve.values())[place] if curve else NOTHING for place in (0, -1))
        rows.append([*row[:4], first, *(curve.get(count, NOTHING) for count in counts), last, *row[4:]])
    return Grid([*cells.header[:4], *added, *cells.header[4:]], rows, cells.caption)


def _curve(shown: Shown, line: Line) -> dict[int, Cell]:
    """By the number of classes seen: the accuracy after that phase, by the paper's classifier."""
    if not line.records:
        return {}
    runs = group(shown, line)
    accuracies = runs.accuracies(published_classifier(line.config.method.name)) or []
    return dict(zip(runs.seen, map(spread, accuracies), strict=False))


def _without_term(shown: Shown, line: Line) -> Line | None:
    """The same method and protocol without its phase-0 term; None for a line that has none."""
    twins = [
        one
        for one in shown.lines
        if not one.config.initial and (_protocol(one), one.precision) == (_protocol(line), line.precision)
    ]
    return twins[0] if twins and line.config.initial else None


def methods_grid(shown: Shown) -> Grid:
    """As the paper prints its Table 1: one row a method, three columns for each S (ours, the paper's, the gap).

    Under each row with a phase-0 term, what the term gains: ours and the paper's.
    """
    by_row: dict[str, dict[str, Line]] = {}
    for line in shown.lines:
        by_row.setdefault(shown.label(line.config), {})[_protocol(line)[2]] = line
    steps = list(dict.fromkeys(_protocol(line)[2] for line in shown.lines))
    header = ["method", *(part for step in steps for part in (f"S={step}", "paper", "gap"))]
    rows: list[list[Cell]] = []
    for name, by_step in by_row.items():
        row: list[Cell] = [name]
        gains: list[Cell] = [f"gain of {name.partition(' + ')[2]}"]
        for step in steps:
            cell = by_step.get(step)
            numbers = _numbers(shown, cell, _without_term(shown, cell)) if cell else [NOTHING] * 6
            ours, n, paper, gap, gain, theirs = numbers
            row += [replace(ours, note=f"n={n}") if isinstance(ours, Spread) else ours, paper, gap]
            gains += [gain, theirs, NOTHING]
        rows.append(row)
        if any(_without_term(shown, line) for line in by_step.values()):
            rows.append(gains)
    return Grid(header, rows, f"{shown.caption} {_ABOUT_CELLS} Gain: over the same method without the term.")


def _protocol(line: Line) -> tuple[str, ...]:
    protocol = line.config.protocol
    first, later = str(protocol.base), str(protocol.step)
    if protocol.phase_sizes:
        first, *rest = map(str, protocol.phase_sizes)
        later = "+".join(rest) or NOTHING
    return line.config.method.name, first, later, protocol.memory.removeprefix("per_class:")


def _numbers(shown: Shown, line: Line, base: Line | None) -> list[Cell]:
    ours, cell = averages(line), published(shown, line.config)
    changed = any(not key.startswith("engine.") for key in shown.settings)
    same_data = not stand_in(shown.target, shown.data) and not changed
    row: list[Cell] = [spread(ours) if ours else NOT_RUN, str(len(ours))]
    row.append(Spread(cell.mean, cell.std) if cell else NOTHING)
    comparable = ours and cell and same_data
    row.append(Spread(fmean(ours) - cell.mean, sign=True) if comparable and cell else NOTHING)
    before = averages(base) if base else []
    row.append(Spread(fmean(ours) - fmean(before), sign=True) if ours and before else NOTHING)
    theirs = published(shown, base.config) if base else None
    row.append(Spread(cell.mean - theirs.mean, sign=True) if cell and theirs else NOTHING)
    return row


def sources(shown: Shown, start: Path) -> Grid:
    """The records behind each number, and what computed them."""
    rows = [
        [shown.label(line.config), line.config.name, str(seed), computed_on(record), relative(path, start)]
        for line in shown.lines
        for seed, (path, record) in sorted(line.records.items())
    ]
    return Grid(["method", "run", "seed", "computed on", "record"], rows, words=5)


def computed_on(record: Record) -> str:
    return f"{record['environment']['device_name']}, {record['environment']['precision']}"


def relative(path: Path, start: Path) -> str:
    """As seen from a folder."""
    return Path(os.path.relpath(path.resolve(), start.resolve())).as_posix()


@dataclass(frozen=True)
class Drawn:
    """What a target comes to: its table, those of statements that were checked, files of figures and data."""

    grid: Grid
    further: Sequence[Grid] = ()
    files: Sequence[Path] = ()


def write_texts(shown: Shown, drawn: Drawn, base: Path) -> list[Path]:
    """base.md (with the pictures and the records behind), base.tex, base.csv (one row a line, if there are any)."""
    behind = sources(shown, base.parent)
    pictures = [path.name for path in drawn.files if path.suffix == ".png"]
    images = "".join(f"![{shown.target.title}]({name})\n\n" for name in pictures)
    remarks = "".join(f"- {remark}\n" for remark in shown.remarks)
    grids = [drawn.grid, *drawn.further]
    text = f"# {shown.target.name}: {shown.target.title}\n\n{remarks}\n{images}"
    text += "\n".join(map(markdown, grids))
    if behind.rows:
        text += f"\n## Records\n\n{markdown(behind)}"
    table = comma_separated(_for_programs(shown, drawn.grid, base))
    written = {".md": text, ".tex": "\n".join(map(latex, grids)), ".csv": table}
    paths = [base.with_name(base.name + suffix) for suffix in written]
    for path, content in zip(paths, written.values(), strict=True):
        write_whole(path, content)
    return paths


def _for_programs(shown: Shown, grid: Grid, base: Path) -> Grid:
    """A file without a caption says it in columns: the data, the remarks, the records where rows are lines."""
    if shown.target.view == "methods":
        grid = cells_grid(shown)
    elif shown.target.view == "curves":
        grid = curves_grid(shown, every_phase=True)
    rows = [[*row, shown.data, " ".join(shown.remarks)] for row in grid.rows]
    header = [*grid.header, "data", "remarks"]
    lines: list[Line | None] = list(shown.lines)
    if grid.header[0] == "model":  # in an order of their own, by the names of their runs
        by_name = {line.config.name: line for line in shown.lines}
        lines = [by_name.get(str(row[0])) for row in rows]
    if len(rows) == len(lines):
        header.append("records")
        for row, line in zip(rows, lines, strict=True):
            records = line.records.values() if line else []
            row.append(" ".join(relative(path, base.parent) for path, _ in records))
    # A column of numbers has no words.
    return Grid(header, [[NOTHING if cell == NOT_RUN else cell for cell in row] for row in rows])
