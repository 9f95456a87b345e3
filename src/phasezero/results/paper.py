"""The published numbers: tables of the CwD paper (CVPR 2022), as data, found by the record of a run.

All are average incremental accuracies. A run has one only if it is the preset that stands for the cell.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from phasezero.config import RunConfig, leaves
from phasezero.errors import UserError
from phasezero.presets import build_config
from phasezero.results.record import Classifier, Record

# What the paper calls a data set, by our name and the number of classes. Three lists go by the name of ImageNet100:
# CwD's, LUCIR's (same classes, other order) and PODNet's (9 in common). The paper's LUCIR rows used CwD's; for the
# others nobody has said.
_DATA = {
    ("cifar100", 100): "CIFAR100",
    ("imagenet100-cwd", 100): "ImageNet100",
    ("imagenet", 1000): "ImageNet",
}
_METHODS = {"aanet": "aanet(lucir)"}  # the paper's AANet rows are AANets on top of LUCIR
_TERMS = {"decov": "+dc", "sdc": "+sdc"}  # the appendix writes these as methods of their own


@dataclass(frozen=True)
class PublishedCell:
    """One cell of a published table; `std` is None where none was printed."""

    mean: float
    std: float | None
    note: str
    table: str


Key = tuple[str, str, str, bool, int, int, int]


@cache
def published_cells() -> dict[Key, PublishedCell]:
    """(table, data set, method in lower case, cwd, B, S, R) -> cell, in the order of the file."""
    text = resources.files("phasezero.results").joinpath("paper_tables.csv").read_text(encoding="utf-8")
    cells: dict[Key, PublishedCell] = {}
    for row in csv.DictReader(text.splitlines()):
        sizes = int(row["B"]), int(row["S"]), int(row["R"])
        key = (row["table"], row["dataset"], row["method"].lower(), row["cwd"] == "1", *sizes)
        std = float(row["std"]) if row["std"] else None
        cells[key] = PublishedCell(float(row["mean"]), std, row["source_note"], row["table"])
    return cells


def published_classifier(method: str) -> Classifier:
    """Which classifier the published numbers come from: the head, but nearest mean for iCaRL."""
    return "nearest_mean" if method.lower() == "icarl" else "head"


def published_for(record: Record) -> PublishedCell | None:
    """The published cell (Table 1, else an ablation) that a run is an attempt at.

    None for any other run: of other data, stopped early, or with a setting that the cell's preset does not have.
    The note is extended where the published run may differ in its classes.
    """
    data, phases = record["data"], record["phases"]
    dataset = _DATA.get((data["name"], data["classes"]))
    later = {phase["new_classes"] for phase in phases[1:]}
    # R is read off what was kept, not off the rule: a fixed total (AANets' default) is not 20 a class.
    kept = {count for phase in phases for count in phase["memory"]["per_class"]}
    finished = phases[-1]["seen_classes"] == data["classes"]
    terms = [term.partition(":")[0] for term in record["initial"]]
    if dataset is None or len(later) != 1 or len(kept) != 1 or not finished or len(terms) > 1:
        return None
    exemplars = kept.pop()
    cell = find_cell(dataset, record["method"], terms, phases[0]["new_classes"], later.pop(), exemplars)
    memory = {"protocol.memory": f"per_class:{exemplars}"}
    if cell is None or preset_differences(record, plain=True, settings=memory):
        return None
    unsure = dataset == "ImageNet100" and record["method"] != "lucir"
    caution = f"; the published run may have used other classes than {data['name']}" if unsure else ""
    return replace(cell, note=cell.note + caution)


def preset_differences(
    record: Record, *, plain: bool = False, settings: Mapping[str, Any] | None = None
) -> list[str]:
    """Settings, how it was computed aside, in which a run is not the preset of its name; all if there is none.

    `plain`: the preset of the method itself, for a variant of it too. `settings` are changed in the preset.
    """
    try:
        config = RunConfig.from_dict(record["config"])
        protocol, method = config.protocol, config.label.partition("+")[0]
        usual = build_config(
            config.method.name if plain else method,
            protocol.data,
            initial=[term.name for term in config.initial],
            base=protocol.base,
            step=protocol.step,
        ).override(settings or {})
    except UserError:  # another version's, or somebody's own
        return ["there is no such preset"]
    expected = dict(leaves(usual.to_dict()))
    return [
        key if isinstance(value, list) else f"{key}={value}"
        for key, value in leaves(config.to_dict())
        if not key.startswith(("engine.", "name", "seed")) and expected.get(key) != value
    ]


def find_cell(
    dataset: str, method: str, terms: Sequence[str], base: int, step: int, exemplars: int
) -> PublishedCell | None:
    """The first table's cell for a data set by the paper's name, and a method and its terms by ours."""
    name = _METHODS.get(method.lower(), method.lower())
    name += "".join(_TERMS.get(term, f"+{term}") for term in terms if term != "cwd")
    for table in dict.fromkeys(key[0] for key in published_cells()):
        cell = published_cells().get((table, dataset, name, "cwd" in terms, base, step, exemplars))
        if cell is not None:
            return cell
    return None
