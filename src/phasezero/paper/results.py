"""RESULTS.md: every cell and claim of the paper next to the records and analyses in a folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from phasezero.config import MOST_YAML, NOT_YAML, yaml_fault
from phasezero.data.catalog import DATA_SETS, split_name
from phasezero.errors import UserError, unknown
from phasezero.identity import each_seed_once, group_by_identity
from phasezero.paper.board import anchors_grids, board_grid
from phasezero.paper.claims import CLAIMS, Analyses, CheckedClaim, check_claims
from phasezero.paper.figures import draw_figures, figures_of
from phasezero.paper.plan import RecordIndex, expand, on_cifar100, with_records
from phasezero.paper.study import study_grid
from phasezero.paper.tables import Found, Row, Table, cells_grid, compare_row, computed_on, paper_name, precision_of
from phasezero.paper.targets import CIFAR100, TARGETS
from phasezero.records.analysis import FORMAT, parse_analysis
from phasezero.records.files import read_file, relative
from phasezero.records.jsonfile import read_json
from phasezero.records.run import Record, parse_record
from phasezero.report.grid import NOTHING, Cell, Grid, markdown, paragraph
from phasezero.report.published import preset_differences
from phasezero.report.style import caption_files
from phasezero.report.tables import metrics_of, spread

TABLES = ("table1", "table2", "table3", "table4")
SPHERES = ("fig1", "fig8")
OURS = ("board", "study")
TOLERANCE = 0.5
ENOUGH = 3

ABOUT_SPHERES = (
    "The paper's Figs. 1 and 8: an AlexNet with three-dimensional features on CIFAR100. The paper gives no numbers for "
    "them, and names neither classes nor coefficients."
)
HEADER = ["data", "method", "B", "S", "R", "precision", "ours", "n", "paper", "gap", "verified", "remarks"]

Warn = Callable[[str], None]


def read_results(folder: Path, warn: Warn | None = None) -> tuple[list[Found], Analyses]:
    """Read all records and analyses at any depth; skip JSON files that name another format, such as benchmarks.

    A damaged file raises UserError, or is left out with a warning if `warn` is given. So does a file without a format.
    """
    records, analyses = [], []
    for path in sorted(folder.rglob("*.json")):
        try:
            facts = read_json(path, "record")
            if "schema_version" in facts:
                records.append((path, parse_record(path, facts)))
            elif facts.get("format") == FORMAT:
                analyses.append((path, parse_analysis(path, facts)))
        except UserError as error:
            if warn is None:
                raise
            warn(f"{error}; left out")
            continue
        if "schema_version" not in facts and not isinstance(facts.get("format"), str):
            raise UserError(f"{path}: neither a record nor a file that names its format; add a format, or move it")
    return records, analyses


def read_notes(path: Path, cells: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """Read notes on cells and claims: `cells: {TABLE: {PRESET: TEXT}}` and `claims: {CLAIM: TEXT}`."""

    def check(where: str, value: Any, known: Mapping[str, Any] | None) -> Any:
        if known is None:
            if not isinstance(value, str) or not value.strip():
                raise UserError(f"{path}: {where}: a text is expected")
            return " ".join(value.split())
        value = value or {}
        if not isinstance(value, dict):
            raise UserError(f"{path}: {where} should be a mapping, not {type(value).__name__}")
        if others := [key for key in value if key not in known]:
            raise UserError(f"{path}: {unknown(f'key in {where}', others[0], known)}")
        return {key: check(key, entry, known[key]) for key, entry in value.items()}

    content = read_file(path, "notes", MOST_YAML) if path.exists() else b"{}"
    try:
        values = yaml.safe_load(content.decode("utf-8"))
    except NOT_YAML as error:
        raise UserError(f"{path} is not YAML: {yaml_fault(error)}") from None
    by_table = {name: dict.fromkeys(runs) for name, runs in cells.items()}
    found = check("the file", values, {"cells": by_table, "claims": dict.fromkeys(CLAIMS)})
    return {"cells": {}, "claims": {}, **found}


def write_results(folder: Path, start: Path, warn: Warn | None = None, *, figures: bool = False) -> str:
    """Return the text of RESULTS.md, with paths relative to `start`; with `figures`, draw the figures again."""
    records, analyses = read_results(folder, warn)
    index = RecordIndex(records, dict(analyses))
    names = [*filter(None, (figure for _, figure in CLAIMS.values())), *SPHERES, *OURS]
    if figures and not draw_figures(names, folder, index) and warn:
        warn(f"no figure drawn: {folder} has no record on {paper_name(CIFAR100)} that a figure shows")
    tables = {name: [paper_table(name, data, index) for data in TARGETS[name].data] for name in TABLES}
    rows = {name: [row for table in some for row in table.rows] for name, some in tables.items()}
    notes = read_notes(folder / "notes.yaml", {name: [row.config.name for row in some] for name, some in rows.items()})
    cells = {name: check_cells(some, notes["cells"].get(name, {})) for name, some in tables.items()}
    ablations = ablations_on_cifar100(index)
    ours = [table for table in on_cifar100(OURS, index) if any(row.records for row in table.rows)]
    claims = check_claims(tables["table1"], index, analyses)
    shown = [row for some in (*rows.values(), *(table.rows for table in (*ablations, *ours))) for row in some]
    used = [path for row in shown for path in row.paths] + [path for claim in claims for path in claim.sources]
    folders = {path.parent for path in used}  # a claim that uses an analysis also uses its run
    behind = [(path, record) for path, record in records if path.parent in folders]

    counts = [[f"Table {name[-1]}", *counted] for name, (counted, _) in cells.items()]
    verdicts = [[CLAIMS[claim.key][0], claim.verdict] for claim in claims]
    texts = {f"{name[-1]}: {TARGETS[name].title}": text for name, (_, text) in cells.items()}
    for table in ablations:
        texts[f"{table.target.name[-1]}: {table.target.title}, on CIFAR100"] = markdown(cells_grid(table))
    beyond = []
    for table in ours:
        grids = [board_grid(table), *anchors_grids(table)] if table.target.view == "board" else [study_grid(table)]
        pictures = pictures_of(table.target.name, folder, start)
        beyond.append("\n".join([f"## {table.target.title}\n", *pictures, *map(markdown, grids)]))
    sections = []
    for claim in claims:
        pictures = pictures_of(CLAIMS[claim.key][1], folder, start)
        sections.append(section_of(claim, notes["claims"].get(claim.key, ""), pictures, start))
    if spheres := {name: pictures for name in SPHERES if (pictures := pictures_of(name, folder, start))}:
        sections.append(f"## Features on the sphere\n\n{ABOUT_SPHERES}\n")
        sections += ["\n".join([f"{TARGETS[name].title}:\n", *pictures]) for name, pictures in spheres.items()]
    others = [(path, record) for path, record in records if path not in dict(behind)]
    known = [(path, record) for path, record in others if split_name(record["data"]["name"])[0] in DATA_SETS]
    if others:
        again: list[str] = []
        listed = [record for _, record in each_seed_once(known, again.append, start)]
        parts = [markdown(other_runs(listed))] if listed else []
        if again:
            parts.append("".join(f"- {message}.\n" for message in again))
        if left_out := len(others) - len(known):
            parts.append(f"Not listed: {left_out} of data sets that plug-ins add.\n")
        sections.append("## Records that are not a cell of the paper\n\n" + "\n".join(parts))
    if behind:
        lines = [[run["name"], str(run["seed"]), computed_on(run), relative(path, start)] for path, run in behind]
        grid = Grid(["run", "seed", "computed on", "record"], lines, words=4)
        sections.append(f"## Records behind the cells and claims\n\n{markdown(grid)}")
    template = resources.files("phasezero.paper").joinpath("results.md").read_text(encoding="utf-8")
    return template.removesuffix("\n").format(
        folder=relative(folder, start),
        enough=ENOUGH,
        tolerance=TOLERANCE,
        counts=markdown(Grid(["table", "cells", "run", "verified"], counts)),
        verdicts=markdown(Grid(["claim", "verdict"], verdicts, words=2)),
        cells="\n".join(f"## Table {title}\n\n{text}" for title, text in texts.items()),
        beyond="\n".join(beyond),
        claims="\n".join(sections),
    )


def paper_table(name: str, data: str, index: RecordIndex) -> Table:
    """Return a table of the paper. A row that was run in several precisions appears once for each."""
    rows: list[Row] = []
    for row in expand(TARGETS[name], data):
        runs: dict[str, list[Found]] = {}
        for found in index.runs(row.config):
            runs.setdefault(precision_of(found), []).append(found)
        rows += [replace(with_records(row, runs[one]), precision=one) for one in sorted(runs)] or [row]
    return Table(TARGETS[name], data, rows)


def ablations_on_cifar100(index: RecordIndex) -> list[Table]:
    """Return the ablations, which the paper made on ImageNet100, that have more runs on CIFAR100 than Table 1's."""
    of_table1 = {row.config.name for row in expand(TARGETS["table1"], CIFAR100)}
    tables = [paper_table(name, CIFAR100, index) for name in TABLES[1:]]
    tables = [replace(table, rows=[row for row in table.rows if row.records]) for table in tables]
    return [table for table in tables if not {row.config.name for row in table.rows} <= of_table1]


def check_cells(tables: Sequence[Table], notes: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the numbers of cells, run cells and verified cells, and the table of cells with runs or notes."""
    lines: list[list[Cell]] = []
    missing: Counter[str] = Counter()
    cells, run, verified = set(), set(), set()
    for table, row in ((shown, row) for shown in tables for row in shown.rows):
        name, data, compared = row.config.name, paper_name(table.data), compare_row(table, row)
        note = notes.get(name, "")
        cells.add(name)
        reasons = ["not run"]
        if compared.gap is not None:
            run.add(name)
            reasons = [f"n={len(compared.ours)}, {ENOUGH} are needed"] * (len(compared.ours) < ENOUGH)
            reasons += [f"the gap is beyond {TOLERANCE}"] * (abs(compared.gap) > TOLERANCE)
        elif not note:
            missing[data] += 1
            continue
        verified |= set() if reasons else {name}
        again = [f"seed {seed} was run more than once" for seed in row.again]
        remark = ". ".join(filter(None, ["; ".join(reasons + again), note])) or NOTHING
        start = [data, table.label(row.config), *row.sizes, row.precision or NOTHING]
        lines.append([*start, *compared.cells[:4], "no" if reasons else "**yes**", remark])
    texts = [markdown(Grid(HEADER, lines, words=2, remarks=True))] if lines else []
    if missing:
        where = ", ".join(f"{data} ({count})" for data, count in missing.items())
        texts.append(f"{missing.total()} cells were not run: {where}.\n")
    note = tables[0].target.note
    return [str(len(some)) for some in (cells, run, verified)], "\n".join([*texts, *[f"{note}\n"] * bool(note)])


def section_of(claim: CheckedClaim, note: str, pictures: Sequence[str], start: Path) -> str:
    """Return a claim's section: verdict, sentences, note, figures, tables and sources."""
    parts = [f"### {CLAIMS[claim.key][0]}\n\n**{claim.verdict[0].upper()}{claim.verdict[1:]}.**\n"]
    parts.append("".join(f"- {sentence}\n" for sentence in claim.sentences))
    parts += [f"Note: {note}\n" if note else "", *pictures, *(markdown(grid) for grid in claim.grids if grid.rows)]
    if claim.sources:
        parts.append(f"Based on {', '.join(folded(relative(path, start) for path in claim.sources))}.\n")
    return "\n".join(filter(None, parts))


def pictures_of(target: str, folder: Path, start: Path) -> list[str]:
    """Return the figures of a target as Markdown, each with its caption, with paths relative to `start`."""
    parts = []
    for path in figures_of(target, folder):
        parts.append(f"![{path.stem}]({quote(relative(path, start))})\n")
        if (caption := caption_files(path)[0]).exists():
            parts.append(paragraph(caption.read_text(encoding="utf-8")))
    return parts


def folded(paths: Iterable[str]) -> list[str]:
    """Return `a/seed0/b.json` and `a/seed1/b.json` as `a/seed{0,1}/b.json`."""
    seeds: dict[tuple[str, ...], list[str]] = {}
    for path in dict.fromkeys(paths):
        before, *seed_and_after = re.split(r"(?<=seed)(\d+)", path, maxsplit=1)
        seeds.setdefault((before, *seed_and_after[1:]), []).extend(seed_and_after[:1])
    many = {key: f"{{{','.join(some)}}}" if len(some) > 1 else "".join(some) for key, some in seeds.items()}
    return [f"`{seed.join(key)}`" for key, seed in many.items()]


def other_runs(records: Iterable[Record]) -> Grid:
    """Return a row for each group of runs with its differences from its preset."""
    header = ["run", "n", "phase 0", "last", "average (head)", "average (nearest mean)", "differs from its preset in"]
    lines: list[list[Cell]] = []
    for group in group_by_identity(records):
        head, nearest = metrics_of(group, "head") or [], metrics_of(group, "nearest_mean") or []
        first = spread([record["phases"][0]["accuracy"]["head"] or 0.0 for record in group.members])
        averages = [[run["average_incremental_accuracy"] for run in metrics] for metrics in (head, nearest)]
        last, different = spread([run["last_accuracy"] for run in head]), preset_differences(group.first)
        numbers = [first, last, *(spread(some) if some else NOTHING for some in averages)]
        lines.append([group.label, str(len(group.members)), *numbers, ", ".join(different) or "nothing"])
    return Grid(header, lines, remarks=True)
