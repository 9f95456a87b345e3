"""The average incremental accuracies of the CwD paper (CVPR 2022) as data, and comparisons with our numbers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from statistics import fmean

from phasezero.config import RunConfig
from phasezero.data.catalog import DATA_SETS
from phasezero.errors import UserError
from phasezero.initial import STRATEGIES
from phasezero.memory import MemoryRule
from phasezero.methods import METHODS
from phasezero.presets import changed_settings, usual_config
from phasezero.records.run import Record


@dataclass(frozen=True)
class PublishedCell:
    """A cell of a published table; `std` is None if it was not printed."""

    mean: float
    std: float | None
    note: str
    table: str


Key = tuple[str, str, str, bool, int, int, int]
"""Table, data set, method in lower case, whether with CwD, B, S and R."""


def gap(ours: Sequence[float], cell: PublishedCell) -> float:
    """Return our mean minus the published mean."""
    return fmean(ours) - cell.mean


def gain(with_term: Sequence[float], without: Sequence[float]) -> float:
    """Return what a phase-0 term adds to the mean of a method."""
    return fmean(with_term) - fmean(without)


@cache
def published_cells() -> dict[Key, PublishedCell]:
    """Return all cells, in the order of the file."""
    text = resources.files("phasezero.report").joinpath("published.csv").read_text(encoding="utf-8")
    cells: dict[Key, PublishedCell] = {}
    for row in csv.DictReader(text.splitlines()):
        sizes = int(row["B"]), int(row["S"]), int(row["R"])
        std = float(row["std"]) if row["std"] else None
        cell = PublishedCell(float(row["mean"]), std, row["source_note"], row["table"])
        cells[row["table"], row["dataset"], row["method"].lower(), row["cwd"] == "1", *sizes] = cell
    return cells


def published_cell(config: RunConfig, dataset: str) -> PublishedCell | None:
    """Return the cell for a configuration, from the first table that has it; `dataset` is the paper's name.

    Return None for listed phase sizes, several terms, unusual coefficients and a fixed total of exemplars.
    """
    protocol, rule = config.protocol, MemoryRule.parse(config.protocol.memory)
    other = protocol.phase_sizes or len(config.initial) > 1 or rule.kind != "per_class"
    if other or config.initial != usual_config(config).initial:
        return None
    terms = [term.name for term in config.initial]
    row = METHODS[config.method.name].paper_row or config.method.name
    row += "".join(STRATEGIES[term].paper_suffix or f"+{term}" for term in terms if term != "cwd")
    wanted = dataset, row, "cwd" in terms, protocol.base, protocol.step, rule.count
    return next((cell for key, cell in published_cells().items() if key[1:] == wanted), None)


def published_for(record: Record) -> PublishedCell | None:
    """Return the cell that a run reproduces; None if it has other data or settings, or was stopped early.

    The note is extended where the published run may differ in its classes.
    """
    name, seen = record["data"]["name"], record["phases"][-1]["seen_classes"]
    if name not in DATA_SETS or preset_differences(record, memory=False):
        return None
    config, data = RunConfig.from_record(record["config"]), DATA_SETS[name]
    if config.method.variant or not data.paper_name or not data.size[0] == record["data"]["classes"] == seen:
        return None
    cell = published_cell(config, data.paper_name)
    if cell is None or record["method"] in (data.paper_methods or (record["method"],)):
        return cell
    return replace(cell, note=f"{cell.note}; the published run may have used other classes than {name}")


def preset_differences(record: Record, *, memory: bool = True) -> list[str]:
    """Return the settings in which a run differs from its preset, without exemplars per class if not `memory`."""
    try:
        config = RunConfig.from_record(record["config"])
        usual = usual_config(config)
    except UserError:  # from another version, or from a plug-in that is not loaded
        return ["no such preset"]
    if not memory and config.protocol.memory.startswith("per_class:"):
        usual = replace(usual, protocol=replace(usual.protocol, memory=config.protocol.memory))
    pairs = enumerate(zip(config.initial, usual.initial, strict=True))
    changed = {f"initial.{place}.weight": term.weight for place, (term, own) in pairs if term.weight != own.weight}
    changed |= changed_settings(config, usual)
    return [key if isinstance(value, list) else f"{key}={value}" for key, value in changed.items()]
