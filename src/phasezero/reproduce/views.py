"""What a target shows once its runs are there: a table beside the paper's numbers, figures, the files behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phasezero.config import RunConfig
from phasezero.memory import MemoryRule
from phasezero.reproduce.plan import SHORT, SHORT_EPOCHS, Line, stand_in, usual_config
from phasezero.reproduce.targets import PAPER_NAMES, Target
from phasezero.results.grid import NOTHING, Cell, Grid, Spread, comma_separated, latex, markdown
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.paper import PublishedCell, find_cell, published_classifier
from phasezero.results.record import Record
from phasezero.results.tables import Group, spread

NAMES = {"lwf": "LwF", "icarl": "iCaRL", "bic": "BiC", "lucir": "LUCIR", "podnet": "PODNet", "aanet": "AANet"}
TERM_NAMES = {"cwd": "CwD", "decov": "DC", "sdc": "SDC", "mimic": "oracle"}
COEFFICIENTS = {"cwd": "eta", "mimic": "beta"}

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

    @property
    def remarks(self) -> list[str]:
        """What keeps these numbers from being the paper's; each output says it."""
        said = [stand_in(self.target, self.data)]
        if any(line.config.name.endswith(SHORT) for line in self.lines):
            said.append(f"Later phases are trained for {SHORT_EPOCHS} epochs instead of the preset's 6.")
        if self.settings:
            changed = ", ".join(f"{key}={value}" for key, value in self.settings.items())
            said.append(f"Changed by hand: {changed}.")
        missing = sum(seed not in line.records for line in self.lines for seed in self.seeds)
        if missing:
            said.append(f"{missing} of {len(self.seeds) * len(self.lines)} runs are not there yet.")
        return [*filter(None, said), *filter(None, [self.target.note])]

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


def label(config: RunConfig) -> str:
    """`LUCIR + CwD`; with the coefficient where it is not the usual one."""
    usual = usual_config(config)
    parts = [NAMES.get(config.method.name, config.method.name)]
    for term, own in zip(config.initial, usual.initial, strict=True):
        name = TERM_NAMES.get(term.name, term.name)
        coefficient = f" ({COEFFICIENTS.get(term.name, 'weight')} {term.weight:g})"
        parts.append(name + ("" if term == own and term.name != "mimic" else coefficient))
    return " + ".join(parts)


def published(shown: Shown, config: RunConfig) -> PublishedCell | None:
    """The paper's cell for a line; none for coefficients other than the usual."""
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


def group(line: Line) -> Group:
    return Group(label(line.config), tuple(line.records[seed][1] for seed in sorted(line.records)))


def cells_grid(shown: Shown) -> Grid:
    """One row a line: ours and the paper's, and what a phase-0 term gains in both."""
    header = ["method", "B", "S", "R", "ours", "n", "paper", "gap", "gain", "paper's gain"]
    plain = {_protocol(line): line for line in shown.lines if not line.config.initial}
    rows: list[list[Cell]] = []
    for line in shown.lines:
        sizes = _protocol(line)[1:]
        base = plain.get(_protocol(line)) if line.config.initial else None
        rows.append([label(line.config), *map(str, sizes), *_numbers(shown, line, base)])
    about = f"{shown.caption} {_ABOUT_CELLS} Gain: over the same method without the term."
    return Grid(header, rows, about)


def methods_grid(shown: Shown) -> Grid:
    """As the paper prints its Table 1: one row a method, three columns for each S (ours, the paper's, the gap)."""
    by_row: dict[str, dict[str, Line]] = {}
    for line in shown.lines:
        by_row.setdefault(label(line.config), {})[_protocol(line)[2]] = line
    steps = list(dict.fromkeys(_protocol(line)[2] for line in shown.lines))
    header = ["method", "n", *(part for step in steps for part in (f"S={step}", "paper", "gap"))]
    rows: list[list[Cell]] = []
    for name, by_step in by_row.items():
        runs = sorted({len(line.records) for line in by_step.values()})
        row: list[Cell] = [name, "-".join(map(str, dict.fromkeys([runs[0], runs[-1]])))]
        for step in steps:
            ours, _, paper, gap, *_ = (
                _numbers(shown, by_step[step], None) if step in by_step else [NOTHING] * 4
            )
            row += [ours, paper, gap]
        rows.append(row)
    return Grid(header, rows, f"{shown.caption} {_ABOUT_CELLS}")


def _protocol(line: Line) -> tuple[str, ...]:
    protocol = line.config.protocol
    first, later = str(protocol.base), str(protocol.step)
    if protocol.phase_sizes:
        first, *rest = map(str, protocol.phase_sizes)
        later = "+".join(rest) or NOTHING
    return line.config.method.name, first, later, protocol.memory.removeprefix("per_class:")


def _numbers(shown: Shown, line: Line, base: Line | None) -> list[Cell]:
    ours, cell = averages(line), published(shown, line.config)
    same_data = not stand_in(shown.target, shown.data) and not shown.settings
    row: list[Cell] = [spread(ours) if ours else "not run", str(len(ours))]
    row.append(Spread(cell.mean, cell.std) if cell else NOTHING)
    comparable = ours and cell and same_data
    row.append(Spread(_mean(ours) - cell.mean, sign=True) if comparable and cell else NOTHING)
    before = averages(base) if base else []
    row.append(Spread(_mean(ours) - _mean(before), sign=True) if ours and before else NOTHING)
    theirs = published(shown, base.config) if base else None
    row.append(Spread(cell.mean - theirs.mean, sign=True) if cell and theirs else NOTHING)
    return row


def _mean(values: Sequence[float]) -> float:
    return mean_and_deviation(values)[0]


def sources(shown: Shown, start: Path) -> Grid:
    """The records behind each number, and what computed them."""
    rows = [
        [label(line.config), line.config.name, str(seed), computed_on(record), relative(path, start)]
        for line in shown.lines
        for seed, (path, record) in sorted(line.records.items())
    ]
    return Grid(["method", "run", "seed", "computed on", "record"], rows, words=5)


def computed_on(record: Record) -> str:
    return f"{record['environment']['device_name']}, {record['environment']['precision']}"


def relative(path: Path, start: Path) -> str:
    """As short as it can be said from a folder."""
    path, start = path.resolve(), start.resolve()
    return str(path.relative_to(start) if path.is_relative_to(start) else path)


def write_texts(shown: Shown, grid: Grid, pictures: Sequence[Path], base: Path) -> list[Path]:
    """base.md (with the pictures and the records behind), base.tex, base.csv (one row a line, if there are any)."""
    behind = sources(shown, base.parent)
    images = "".join(f"![{shown.target.title}]({one.name})\n\n" for one in pictures if one.suffix == ".png")
    remarks = "".join(f"- {remark}\n" for remark in shown.remarks)
    text = f"# {shown.target.name}: {shown.target.title}\n\n{remarks}\n{images}{markdown(grid)}"
    if behind.rows:
        text += f"\n## Records\n\n{markdown(behind)}"
    written = {".md": text, ".tex": latex(grid), ".csv": comma_separated(_for_programs(shown, grid, base))}
    paths = [base.with_name(base.name + suffix) for suffix in written]
    for path, content in zip(paths, written.values(), strict=True):
        path.write_text(content, encoding="utf-8")
    return paths


def _for_programs(shown: Shown, grid: Grid, base: Path) -> Grid:
    """A file without a caption says it in columns: the data, the remarks, the records where rows are lines."""
    grid = cells_grid(shown) if shown.target.view == "methods" else grid
    rows = [[*row, shown.data, " ".join(shown.remarks)] for row in grid.rows]
    header = [*grid.header, "data", "remarks"]
    if len(rows) == len(shown.lines):
        header.append("records")
        for row, line in zip(rows, shown.lines, strict=True):
            paths = [relative(path, base.parent) for path, _ in line.records.values()]
            row.append(" ".join(paths))
    return Grid(header, rows)
