"""The table of a target on one data set next to the paper's numbers, and the files that hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from phasezero.config import RunConfig
from phasezero.data.catalog import find_data_set
from phasezero.identity import Group
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS, classifier_of
from phasezero.paper.targets import Target
from phasezero.presets import usual_config
from phasezero.records.files import relative, write_whole
from phasezero.records.run import Record
from phasezero.report.grid import NOTHING, Cell, Grid, Spread, comma_separated, latex, markdown
from phasezero.report.published import PublishedCell, gain, gap, published_cell
from phasezero.report.tables import Runs, accuracies_of, group_classifier, seen_classes, spread

NOT_RUN = "not run"
ABOUT_CELLS = (
    "Average incremental accuracy in percent, mean ± sample standard deviation over n runs. Gap: ours minus the "
    "paper's, where both use the same data. Gain: over the same method without the term."
)

Found = tuple[Path, Record]


def paper_name(data: str) -> str:
    """Return the paper's name of a data set, or its own name if the paper has no number for it."""
    return find_data_set(data).paper_name or data


@dataclass(frozen=True)
class Row:
    """A row of a table or a curve of a figure: the runs of one configuration, by seed."""

    panel: str
    config: RunConfig
    extra: bool = False
    """Whether --method added it, so that it has no published number."""
    records: Mapping[int, Found] = field(default_factory=dict)
    """The records that exist, by seed, in the order of seeds."""
    again: Sequence[int] = ()
    """The seeds that were run more than once. Each counts once."""
    precision: str = ""
    """The precision of all records if each precision has its own row, otherwise empty."""

    @property
    def weight(self) -> float:
        """Return the weight of the phase-0 term; 0 without a term."""
        return self.config.initial[0].weight if self.config.initial else 0.0

    @property
    def averages(self) -> list[float]:
        """Return each run's average incremental accuracy by its method's own classifier, or by the head without it."""
        runs = [record for _, record in self.records.values()]
        summaries = [run["summary"].get(classifier_of(run["method"])) or run["summary"]["head"] for run in runs]
        return [metrics["average_incremental_accuracy"] for metrics in summaries if metrics is not None]

    @property
    def sizes(self) -> tuple[str, str, str]:
        """Return B, S and R as a table shows them."""
        protocol = self.config.protocol
        first, *later = protocol.phase_sizes or (protocol.base, protocol.step)
        return str(first), "+".join(map(str, later)) or "-", protocol.memory.removeprefix("per_class:")

    @property
    def paths(self) -> list[Path]:
        return [path for path, _ in self.records.values()]

    def seeded(self, seed: int) -> RunConfig:
        return replace(self.config, seed=seed)


@dataclass(frozen=True)
class Table:
    """A target on one data set: its rows, with the records that exist."""

    target: Target
    data: str
    rows: Sequence[Row]
    seeds: Sequence[int] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the user changed."""
    chosen: str = ""
    """The choice by --method and --step, if it leaves rows out."""
    diverged: int = 0
    """How many runs without a record have diverged."""

    @property
    def missing(self) -> list[RunConfig]:
        """Return the runs without a record."""
        return [row.seeded(seed) for row in self.rows for seed in self.seeds if seed not in row.records]

    @property
    def replaced(self) -> str:
        """Return the remark that the data is not the paper's, or an empty text."""
        *others, last = known = [paper_name(name) for name in self.target.data]
        if paper_name(self.data) in known or not self.target.in_paper:
            return ""
        if (own := find_data_set(self.data)).instead_of in self.target.data:
            return f"{self.data} is another choice of {own.size[0]} classes than the paper's ({own.instead_of})."
        names = f"{', '.join(others)} and {last}" if others else last
        return f"{self.data} replaces {names}, which the paper used; published numbers are for {self.dataset}."

    @property
    def dataset(self) -> str:
        """Return the paper's name of the data set whose published numbers are shown."""
        own, known = find_data_set(self.data).instead_of or self.data, [paper_name(one) for one in self.target.data]
        return paper_name(own) if paper_name(own) in known else known[0]

    @property
    def conditions(self) -> list[str]:
        """Return the remarks on what was run, where that differs from the paper."""
        said = []
        configs = [row.config for row in self.rows if find_data_set(self.data).short_epochs]
        later = {(config.training.later.epochs, usual_config(config).training.later.epochs) for config in configs}
        for epochs, usual in sorted(later):
            if epochs < usual:
                said.append(f"Later phases are trained for {epochs} epochs instead of the preset's {usual}.")
        if self.settings:
            said.append(f"Changed by hand: {', '.join(f'{key}={value}' for key, value in self.settings.items())}.")
        if self.chosen:
            said.append(f"Only {self.chosen}; the other rows are left out.")
        if extra := dict.fromkeys(self.label(row.config) for row in self.rows if row.extra):
            said.append(f"Not in the paper: {', '.join(extra)}.")
        used = [(self.label(row.config), sorted(set(map(precision_of, row.records.values())))) for row in self.rows]
        if mixed := [f"{label}: {', '.join(precisions)}" for label, precisions in used if len(precisions) > 1]:
            said.append(f"Runs in different precisions are averaged together ({'; '.join(mixed)}).")
        return said

    @property
    def gaps(self) -> list[str]:
        """Return the remarks on runs without a record."""
        counts = ((self.diverged, "diverged"), (len(self.missing) - self.diverged, "are missing"))
        return [f"{number} of {len(self.seeds) * len(self.rows)} runs {what}." for number, what in counts if number]

    @property
    def remarks(self) -> list[str]:
        """Return the remarks on differences from the paper, which every output of ours shows."""
        return [*filter(None, [self.replaced, *self.conditions, *self.gaps, self.target.note])]

    @property
    def caption(self) -> str:
        name = self.target.name.replace("table", "Table ").replace("fig", "Fig. ")
        where = paper_name(self.data)
        name = f"{name} of the paper" if self.target.in_paper else name.capitalize()
        return " ".join([f"{name}, on {where}: {self.target.title}.", *self.remarks])

    @property
    def figure_caption(self) -> str:
        """Return the caption of a figure, for the readers of a paper: without the state of our runs."""
        name = f" (Fig. {self.target.name.removeprefix('fig')} of the CwD paper)" * self.target.in_paper
        replaced = f"{self.replaced.partition(';')[0].rstrip('.')}." * bool(self.replaced)
        title = f"{self.target.title}, on {paper_name(self.data)}{name}."
        return " ".join(filter(None, [title, replaced, *self.conditions, self.target.note]))

    def label(self, config: RunConfig) -> str:
        """Return `LUCIR + CwD`, with the coefficient if it is unusual or differs between rows of the method."""
        alike = [row.config for row in self.rows if row.config.method_name == config.method_name]
        several = len({term.weight for other in alike for term in other.initial if term.name == "cwd"}) > 1
        parts = [method_label(config)]
        for term, usual in zip(config.initial, usual_config(config).initial, strict=True):
            kind = STRATEGIES[term.name]
            unusual = several or kind.looks_ahead or term != usual
            parts.append((kind.label or term.name) + f" ({kind.coefficient} {term.weight:g})" * unusual)
        return " + ".join(parts)

    def published(self, row: Row) -> PublishedCell | None:
        """Return the paper's cell for a row, if it has one."""
        # On other data another coefficient is usual, so a curve over coefficients has no cell there.
        if row.extra or self.target.shows_models or (self.target.view == "sweep" and self.replaced):
            return None
        return published_cell(row.config, self.dataset)


def precision_of(found: Found) -> str:
    return found[1]["environment"]["precision"]


def method_label(config: RunConfig) -> str:
    """Return the label of a method in tables: `LUCIR`, `LUCIR (original)`."""
    plain, variant = METHODS[config.method.name].label or config.method.name, config.method.variant
    return f"{plain} ({variant})" if variant else plain


@dataclass(frozen=True)
class Comparison:
    """A row next to the paper's cell, and next to the same method without its phase-0 term."""

    ours: Sequence[float]
    cell: PublishedCell | None
    plain: Row | None
    """The row without the term, in the same precision."""
    gap: float | None
    gain: float | None
    published_gain: float | None

    @property
    def cells(self) -> list[Cell]:
        """Return ours, n, the paper's number, the gap, our gain and the paper's gain."""
        ours: Cell = spread(self.ours) if self.ours else NOT_RUN
        paper: Cell = Spread(self.cell.mean, self.cell.std) if self.cell else NOTHING
        return [ours, str(len(self.ours)), paper, *map(signed, (self.gap, self.gain, self.published_gain))]


def signed(difference: float | None) -> Cell:
    return NOTHING if difference is None else Spread(difference, sign=True)


def compare_row(table: Table, row: Row) -> Comparison:
    """Compare a row with the paper and with the same method without the term."""
    ours, cell, own = row.averages, table.published(row), (row.config.method_name, row.sizes)
    without = [other for other in table.rows if row.config.initial and not other.config.initial]
    without = [other for other in without if (other.config.method_name, other.sizes) == own]
    plain = next((other for other in without if other.precision == row.precision or not row.records), None)
    plain_averages = plain.averages if plain else []
    plain_cell = table.published(without[0]) if without else None
    comparable = not table.replaced and all(key.startswith("engine.") for key in table.settings)
    our_gap = gap(ours, cell) if ours and cell and comparable else None
    our_gain = gain(ours, plain_averages) if ours and plain_averages else None
    published_gain = gain([cell.mean], [plain_cell.mean]) if cell and plain_cell else None
    return Comparison(ours, cell, plain, our_gap, our_gain, published_gain)


def cells_grid(table: Table) -> Grid:
    """Return a grid with our number, the paper's number and the gain of a phase-0 term in both, for each row."""
    paper = f"paper ({table.dataset})" if table.replaced else "paper"
    header = ["method", "B", "S", "R", "ours", "n", paper, "gap", "gain", "paper's gain"]
    several = len({row.precision for row in table.rows}) > 1
    names = [table.label(row.config) + f" ({row.precision})" * several for row in table.rows]
    lines = [[name, *row.sizes, *compare_row(table, row).cells] for name, row in zip(names, table.rows, strict=True)]
    return Grid(header, lines, f"{table.caption} {ABOUT_CELLS}")


def curves_grid(table: Table, *, every_phase: bool = False) -> Grid:
    """Return the same grid with the accuracy after phase 0 and the last phase, or after each phase by classes seen."""
    cells = cells_grid(table)
    curves = [_curve(table, row) for row in table.rows]
    counts = sorted({count for curve in curves for count in curve}) if every_phase else []
    header = [*cells.header[:4], "phase 0", *(f"{count} classes" for count in counts), "last", *cells.header[4:]]
    lines: list[list[Cell]] = []
    for curve, line in zip(curves, cells.rows, strict=True):
        known = list(curve.values()) or [NOTHING]
        lines.append([*line[:4], known[0], *(curve.get(count, NOTHING) for count in counts), known[-1], *line[4:]])
    return Grid(header, lines, cells.caption)


def runs_of(table: Table, row: Row) -> Runs:
    """Return a row's runs as a group for a figure."""
    return Group(table.label(row.config), tuple(record for _, record in row.records.values()))


def _curve(table: Table, row: Row) -> dict[int, Cell]:
    """Return the accuracy after each phase by the classes seen, by the method's own classifier or else the head."""
    if not row.records:
        return {}
    runs = runs_of(table, row)
    accuracies = accuracies_of(runs, group_classifier(runs)) or []
    return dict(zip(seen_classes(runs), map(spread, accuracies), strict=False))


def methods_grid(table: Table) -> Grid:
    """Return Table 1 in the paper's layout: a row for each method, and below it the gain of its phase-0 term."""
    by_label: dict[str, dict[str, Row]] = {}
    for row in table.rows:
        by_label.setdefault(table.label(row.config), {})[row.sizes[1]] = row
    steps = list(dict.fromkeys(row.sizes[1] for row in table.rows))
    header = ["method", *(part for step in steps for part in (f"S={step}", "paper", "gap"))]
    lines: list[list[Cell]] = []
    for label, by_step in by_label.items():
        compared = [compare_row(table, by_step[step]) if step in by_step else None for step in steps]
        line: list[Cell] = [label]
        gains: list[Cell] = [f"gain of {label.partition(' + ')[2]}"]
        for comparison in compared:
            ours, n, paper, away, gained, paper_gained = comparison.cells if comparison else [NOTHING] * 6
            line += [replace(ours, note=f"n={n}") if isinstance(ours, Spread) else ours, paper, away]
            gains += [gained, paper_gained, NOTHING]
        lines += [line, gains] if any(isinstance(cell, Spread) for cell in gains) else [line]
    return Grid(header, lines, f"{table.caption} {ABOUT_CELLS}")


@dataclass(frozen=True)
class Output:
    """The output for a target: its table, the tables of checked statements, and the files of figures and data."""

    grid: Grid
    further: Sequence[Grid] = ()
    files: Sequence[Path] = ()


def write_texts(table: Table, output: Output, base: Path) -> list[Path]:
    """Write base.md (with figures and the records behind the numbers), base.tex and base.csv (a line for each row)."""
    start, grids, behind = base.parent, [output.grid, *output.further], []
    for row in table.rows:
        for seed, (path, record) in row.records.items():
            made = [str(seed), computed_on(record), relative(path, start)]
            behind.append([table.label(row.config), row.config.name, *made])
    title, remarks = table.target.title, "".join(f"- {remark}\n" for remark in table.remarks)
    pictures = "".join(f"![{title}]({path.name})\n\n" for path in output.files if path.suffix == ".png")
    text = f"# {table.target.name}: {title}\n\n{remarks}\n{pictures}" + "\n".join(map(markdown, grids))
    if behind:
        text += "\n## Records\n\n" + markdown(Grid(["method", "run", "seed", "computed on", "record"], behind, words=5))
    csv = comma_separated(_for_programs(table, output.grid, start))
    texts = {".md": text, ".tex": "\n".join(map(latex, grids)), ".csv": csv}
    written = {base.with_name(base.name + suffix): text for suffix, text in texts.items()}
    for path, text in written.items():
        write_whole(path, text)
    return list(written)


def _for_programs(table: Table, grid: Grid, start: Path) -> Grid:
    """Return the table for a file without a caption: data, remarks and records are columns."""
    if table.target.view in ("methods", "board", "study"):
        grid = cells_grid(table)
    elif table.target.view == "curves":
        grid = curves_grid(table, every_phase=True)
    rows: list[Row | None] = list(table.rows)
    if grid.header[0] == "model":  # sorted, and named after their runs
        by_name = {row.config.name: row for row in table.rows}
        rows = [by_name.get(str(line[0])) for line in grid.rows]
    remarks = " ".join(table.remarks)
    lines: list[list[Cell]] = []
    for line, row in zip(grid.rows, rows, strict=True):
        paths = [relative(path, start) for path in row.paths] if row else []
        plain = [NOTHING if cell == NOT_RUN else cell for cell in line]  # keep words out of columns of numbers
        lines.append([*plain, table.data, remarks, " ".join(paths)])
    return Grid([*grid.header, "data", "remarks", "records"], lines)


def computed_on(record: Record) -> str:
    return f"{record['environment']['device_name']}, {record['environment']['precision']}"
