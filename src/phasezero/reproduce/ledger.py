"""RESULTS.md: every cell and claim of the paper beside what the records and analyses in a folder say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from phasezero.analysis.record import FORMAT as ANALYSIS
from phasezero.analysis.record import Analysis, read_analysis
from phasezero.errors import UserError
from phasezero.reproduce.cells import ENOUGH, TOLERANCE, Entry, by_precision, entries, table
from phasezero.reproduce.claims import CLAIM_KEYS, check_claims
from phasezero.reproduce.gains import check_gains
from phasezero.reproduce.illustrate import draw_figures, figures_of, pictures
from phasezero.reproduce.notes import FILE_NAME, read_notes
from phasezero.reproduce.plan import Shelf, expand
from phasezero.reproduce.targets import CIFAR100, PAPER_NAMES, TARGETS
from phasezero.reproduce.verdicts import Checked, figure
from phasezero.reproduce.views import Shown, cells_grid, computed_on, relative
from phasezero.results.grid import NOTHING, Cell, Grid, markdown
from phasezero.results.jsonfile import read_json
from phasezero.results.paper import preset_differences
from phasezero.results.record import Record, read_record
from phasezero.results.tables import group_records, spread

TABLES = ("table1", "table2", "table3", "table4")

INTRODUCTION = f"""A cell of the paper is **verified** when the mean of at least {ENOUGH} seeds, trained by the
preset that stands for the cell (the paper's data, method, protocol and schedule; nothing changed), lies within
{TOLERANCE} points of the published mean. Numbers are average incremental accuracies in percent, phase 0 included, by
the classifier that the paper used (nearest mean for iCaRL, else the head): mean ± sample standard deviation over n
seeds; gap: ours less the paper's. Runs in different precision are not averaged together. Other data than the paper's
verify nothing.
"""


CLAIMS = """## Claims of the paper

The paper made all but the first on ImageNet100; here they are held against CIFAR100. Spectra and information are of
training images. "Holds": in every case that was looked at; what was not is named. "On average": the means over
classes and seeds agree (in all comparisons where no number is given), single classes do not. Figures are those of the
paper that show a claim, as far as there are runs for them.
"""

ON_THE_SPHERE = """## Features on the sphere

The paper's Figs. 1 and 8, of an AlexNet with features of three numbers on CIFAR100; it gives no number for them,
and names neither classes nor coefficients.
"""

Analyses = list[tuple[Path, Analysis]]


Complain = Callable[[str], None]


def read_results(
    folder: Path, complain: Complain | None = None
) -> tuple[list[tuple[Path, Record]], Analyses]:
    """All records and analyses at any depth, whatever the files are called.

    A JSON file that names another format (a benchmark) is something else and left out; one that names none is
    refused, so that no result is lost by a misspelling. With `complain`, damaged files are left out and it hears
    why.
    """
    records, analyses = [], []
    for path in sorted(folder.rglob("*.json")):
        try:
            facts = read_json(path, "record")
            if "schema_version" in facts:
                records.append((path, read_record(path)))
                continue
            if facts.get("format") == ANALYSIS:
                analyses.append((path, read_analysis(path)))
                continue
        except UserError as error:
            if complain is None:
                raise
            complain(f"{error}; left out")
            continue
        if not isinstance(facts.get("format"), str):
            raise UserError(f"{path}: neither a record nor a file that names its format; add one, or move it")
    return records, analyses


def write_results(
    folder: Path, start: Path, complain: Complain | None = None, *, figures: bool = False
) -> str:
    """The text of RESULTS.md for the records and analyses in a folder, their paths as seen from `start`.

    With `figures` the paper's are drawn anew; else it shows those that are there.
    """
    records, analyses = read_results(folder, complain)
    if figures and not draw_figures(folder, records) and complain:
        complain(f"no figure drawn: {folder} has no record on {PAPER_NAMES[CIFAR100]} that one is of")
    shelf = Shelf(records)
    by_table = {name: entries(TARGETS[name], shelf) for name in TABLES}
    names = {name: {entry.line.config.name for entry in listed} for name, listed in by_table.items()}
    notes = read_notes(folder / FILE_NAME, names, CLAIM_KEYS)
    stand_ins = ablations_on_cifar100(shelf)
    claims = [check_gains(by_table["table1"]), *check_claims(shelf, analyses)]
    lines = [entry.line for listed in by_table.values() for entry in listed]
    lines += [line for shown in stand_ins.values() for line in shown.lines]
    used = {path for line in lines for path, _ in line.records.values()}
    used |= {path for claim in claims for path in claim.sources}
    analysed = {path.parent for path in used}  # a claim that stands on an analysis does on its run
    used |= {path for path, _ in records if path.parent in analysed}

    made_by = f"# Results\n\nMade by `phasezero results` from the records in `{relative(folder, start)}`.\n"
    parts = [made_by, INTRODUCTION, _summary(by_table), _claims_summary(claims)]
    for name, listed in by_table.items():
        grid = table(TARGETS[name], listed, notes.cells.get(name, {}))
        parts.append(_section(name, TARGETS[name].title, grid))
    for name, shown in stand_ins.items():
        parts.append(_section(name, f"{TARGETS[name].title}, on CIFAR100", cells_grid(shown)))
    parts.append(CLAIMS)
    parts += [
        claim.markdown(notes.claims.get(claim.key, ""), start, figures_of(claim.key, folder))
        for claim in claims
    ]
    if drawn := pictures(folder):
        parts.append(ON_THE_SPHERE)
        parts += [_pictured(title, paths, start) for title, paths in drawn.items()]
    others = [record for path, record in records if path not in used]
    if others:
        parts.append("## Records that are no cell of the paper\n\n" + markdown(other_runs(others)))
    if behind := [(path, record) for path, record in records if path in used]:
        rows = [[r["name"], str(r["seed"]), computed_on(r), relative(path, start)] for path, r in behind]
        grid = Grid(["run", "seed", "computed on", "record"], rows, words=4)
        parts.append("## Records behind the cells and claims\n\n" + markdown(grid))
    return "\n".join(parts)


def _pictured(title: str, paths: Sequence[Path], start: Path) -> str:
    return "\n".join([f"{title}:\n", *(figure(path, start) for path in paths)])


def _claims_summary(claims: Sequence[Checked]) -> str:
    return markdown(Grid(["claim", "verdict"], [[claim.title, claim.verdict] for claim in claims], words=2))


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
    of_table1 = {line.config.name for line in expand(TARGETS["table1"], CIFAR100, {})}
    found = {}
    for name in TABLES[1:]:
        lines = expand(TARGETS[name], CIFAR100, {})
        there = [some for line in lines for some, _ in by_precision(line, shelf)]
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
    return Grid(header, rows, remarks=True)
