"""The leaderboard: phase-0 strategies with methods that continue from them, next to published numbers.

Two settings are never mixed. Strict: one ResNet-18 at test time and at most 20 exemplars per class, as in the CwD
paper. Open: any network and memory. All runs of the board are strict.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import resources
from pathlib import Path
from statistics import fmean

from phasezero.config import RunConfig
from phasezero.paper.plan import expand
from phasezero.paper.tables import Row, Table, method_label, paper_name
from phasezero.paper.targets import CIFAR100, TARGETS
from phasezero.report.board import PLAIN, Board, Point, PublishedLine, draw_boards
from phasezero.report.grid import NOTHING, Cell, Grid, Spread
from phasezero.report.looks import method_look
from phasezero.report.published import published_cell
from phasezero.report.style import write_every_format
from phasezero.report.tables import computing_seconds, spread

STEPS = (10, 5, 2)
"""The steps S that the published tables have."""


@dataclass(frozen=True)
class Anchor:
    """A published row on CIFAR100 with B=50."""

    method: str
    setting: str
    """`strict` or `open`."""
    averages: dict[int, float]
    """Average incremental accuracy by S."""
    details: Sequence[str]
    """Network, memory and source."""


@cache
def open_anchors() -> list[Anchor]:
    """Return the published numbers of the open setting."""
    text = resources.files("phasezero.paper").joinpath("anchors.csv").read_text(encoding="utf-8")
    anchors = []
    for row in csv.DictReader(text.splitlines()):
        averages = {step: float(row[f"S{step}"]) for step in STEPS if row[f"S{step}"]}
        anchors.append(Anchor(row["method"], row["setting"], averages, [row["network"], row["memory"], row["source"]]))
    return anchors


def strict_anchors() -> list[Anchor]:
    """Return the CwD paper's rows with CwD, which are in the strict setting."""
    found: dict[str, dict[int, float]] = {}
    for config in (row.config for row in expand(TARGETS["table1"], CIFAR100) if row.config.initial):
        if (cell := published_cell(config, paper_name(CIFAR100))) is not None:
            found.setdefault(f"{method_label(config)} + CwD", {})[config.protocol.step] = cell.mean
    details = ["ResNet-18", "20 per class", "Table 1 of the CwD paper"]
    return [Anchor(method, "strict", averages, details) for method, averages in found.items()]


def strategies_label(table: Table, config: RunConfig) -> str:
    """Return the phase-0 strategies of a run: `augment + CwD`, or `plain` without any."""
    return table.label(config).removeprefix(method_label(config)).removeprefix(" + ") or PLAIN


def board_rows(table: Table) -> dict[tuple[str, str], dict[int, Row]]:
    """Return the rows with records by method and strategies, then by S; the best at the first S comes first."""
    found: dict[tuple[str, str], dict[int, Row]] = {}
    for row in table.rows:
        if row.records:
            key = method_label(row.config), strategies_label(table, row.config)
            found.setdefault(key, {})[row.config.protocol.step] = row
    first = max((step for by_step in found.values() for step in by_step), default=0)

    def place(by_step: dict[int, Row]) -> tuple[bool, float]:
        return first not in by_step, -fmean(by_step.get(first, next(iter(by_step.values()))).averages)

    return dict(sorted(found.items(), key=lambda entry: place(entry[1])))


def kept(row: Row) -> str:
    """Return what a method keeps of old classes, at the end of a run."""
    last = next(record for _, record in row.records.values())["phases"][-1]
    if (statistics := last.get("statistics")) is not None:
        return f"{statistics['bytes'] / 1e6:,.1f} MB of sums"
    return f"{last['memory']['total'] // last['seen_classes']} images per class"


def board_grid(table: Table) -> Grid:
    """Return the leaderboard: accuracy after phase 0, average by S, seconds of a run and what is kept."""
    rows = board_rows(table)
    steps = sorted({step for by_step in rows.values() for step in by_step}, reverse=True)
    header = ["method", "phase 0", "after phase 0", *(f"S={step}" for step in steps), "seconds", "kept"]
    lines: list[list[Cell]] = []
    for (method, strategies), by_step in rows.items():
        first = next(by_step[step] for step in steps if step in by_step)
        records = [record for _, record in first.records.values()]
        start = spread([record["phases"][0]["accuracy"]["head"] or 0.0 for record in records])
        averages = [_average(by_step[step]) if step in by_step else NOTHING for step in steps]
        seconds = f"{fmean(map(computing_seconds, records)):,.0f}"
        lines.append([method, strategies, start, *averages, seconds, kept(first)])
    about = (
        "Average incremental accuracy in percent, mean ± sample standard deviation over n runs, best first. Seconds: "
        f"computing time of a run with S={steps[0] if steps else 10}, with its phase 0, by itself or as its share of "
        "a GPU that several runs shared. Strict setting: one network, at most 20 exemplars per class."
    )
    return Grid(header, lines, f"{table.caption} {about}", words=2, remarks=True)


def _average(row: Row) -> Spread:
    return replace(spread(row.averages), note=f"n={len(row.averages)}")


def anchors_of(table: Table) -> list[Anchor]:
    """Return the published numbers on the table's data: CIFAR100 has some."""
    return [*strict_anchors(), *open_anchors()] if table.data == CIFAR100 else []


def anchors_grids(table: Table) -> list[Grid]:
    """Return the published numbers, a table for each setting."""
    grids = []
    for setting in ("strict", "open"):
        lines: list[list[Cell]] = []
        for anchor in (anchor for anchor in anchors_of(table) if anchor.setting == setting):
            numbers = [f"{anchor.averages[step]:.2f}" if step in anchor.averages else NOTHING for step in STEPS]
            lines.append([anchor.method, *anchor.details[:2], *numbers, anchor.details[2]])
        header = ["published", "network", "exemplars", *(f"S={step}" for step in STEPS), "source"]
        caption = f"Published numbers in the {setting} setting, on {paper_name(table.data)} with B=50."
        grids += [Grid(header, lines, caption, words=3, remarks=True)] if lines else []
    return grids


def draw_board(table: Table, base: Path, suffixes: Sequence[str]) -> list[Path]:
    """Draw average accuracy over the seconds of a run, a panel for each S."""
    rows, boards = board_rows(table), []
    methods = {method_label(row.config): row.config.method.name for row in table.rows}
    for step in sorted({step for by_step in rows.values() for step in by_step}, reverse=True):
        points = []
        for (label, strategies), by_step in rows.items():
            if step in by_step:
                seconds = fmean(computing_seconds(record) for _, record in by_step[step].records.values())
                points.append(Point(label, methods[label], strategies, seconds, by_step[step].averages))
        looks = {f"{label} + CwD": method_look(method, ["cwd"]) for label, method in methods.items()}
        lines = [
            PublishedLine(anchor.method, anchor.averages[step], looks.get(anchor.method))
            for anchor in anchors_of(table)
            if step in anchor.averages
        ]
        boards.append(Board(f"S={step}", points, lines))
    device = next(record for row in table.rows for _, record in row.records.values())["environment"]["device_name"]
    make = partial(draw_boards, boards, device=device, caption=table.figure_caption)
    return write_every_format(base, make, suffixes)
