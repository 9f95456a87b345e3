"""What the page shows, taken from the records: plain values for JSON, with every mean already computed."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from typing import Any, Literal, get_args

from phasezero import __version__
from phasezero.analysis.record import SPLITS, Analysis, Split, measured
from phasezero.config import leaves
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.paper import published_classifier, published_for
from phasezero.results.record import Classifier, Metrics, PhaseRecord, Record
from phasezero.results.tables import (
    CLASSIFICATION,
    Group,
    conditions,
    differences,
    group_records,
    repeated_seeds,
)

CLASSIFIERS: tuple[Classifier, ...] = get_args(Classifier)
MetricName = Literal["average_incremental_accuracy", "last_accuracy", "forgetting"]

MOST_MATRIX_BYTES = 3_500_000
"""Room for all confusion matrices, of the page's 5 MB: forty runs of 26 phases of CIFAR-100 need 2 to 2.5."""


def page_content(records: Sequence[Record], analyses: Sequence[Sequence[Analysis]] = ()) -> dict[str, Any]:
    """Everything on the page; `analyses` belong to the records at the same places."""
    groups = group_records(records)
    # Comparable groups stand together, so that their lines get different colours.
    common = [conditions(group.records[0]) for group in groups]
    groups.sort(key=lambda group: common.index(conditions(group.records[0])))
    runs = [(index, record) for index, group in enumerate(groups) for record in group.records]
    classes = {_class_list(record): record["data"] for record in records}
    matrices, kept = _matrices([record for _, record in runs])
    found = {id(record): some for record, some in zip(records, analyses, strict=False)}
    return {
        "version": __version__,
        "classification": CLASSIFICATION,
        "differences": [
            {"what": one.what, "owners": list(one.owners.items())} for one in differences(groups)
        ],
        "repeated": repeated_seeds(groups),
        "matrices": kept,
        "groups": [
            _group(group) | {"spectra": _spectra([found.get(id(record), ()) for record in group.records])}
            for group in groups
        ],
        "settings": _settings(groups),
        "runs": [
            _run(record)
            | {
                "group": index,
                "classes": list(classes).index(_class_list(record)),
                "matrices": matrix,
            }
            for (index, record), matrix in zip(runs, matrices, strict=True)
        ],
        "classes": [
            {
                "hash": data["class_hash"],
                "data": data["name"],
                "order": data["class_order"],
                "names": data["class_names"],
                "ids": [] if data["class_ids"] == data["class_names"] else data["class_ids"],
                "train_images": data["train_images"],
                "test_images": data["test_images"],
            }
            for data in classes.values()
        ],
    }


def _class_list(record: Record) -> tuple[str, ...]:
    data = record["data"]  # the hash is over ids, which two data sets may share
    return data["name"], data["class_order"], data["class_hash"], *data["class_names"]


def _settings(groups: Sequence[Group]) -> list[tuple[str, list[str | None]]]:
    """The settings in which the groups' configurations differ, each with its value in every group."""
    configs = [dict(leaves(group.records[0]["config"])) for group in groups]
    keys = dict.fromkeys(key for config in configs for key in config if key not in ("name", "seed"))
    values = {key: [json.dumps(one[key]) if key in one else None for one in configs] for key in keys}
    return [(key, found) for key, found in values.items() if len(set(found)) > 1]


def _group(group: Group) -> dict[str, Any]:
    first = group.records[0]
    cell = published_for(first)
    paper = None
    if cell is not None:
        number, _, what = cell.table.removeprefix("table").partition("_")
        paper = {
            "mean": cell.mean,
            "sd": cell.std,
            "source": f"Table {number} ({what.replace('_', ' ')}): {cell.note.replace('+-', ' ± ')}",
            "by": published_classifier(first["method"]),
        }
    return {
        "label": group.label,
        "n": len(group.records),
        "seen": group.seen,
        "conditions": conditions(first),
        "own": group.classifier,
        "results": {classifier: _results(group, classifier) for classifier in CLASSIFIERS},
        "paper": paper,
    }


def _results(group: Group, classifier: Classifier) -> dict[str, Any] | None:
    accuracies, metrics = group.accuracies(classifier), group.metrics(classifier)
    if accuracies is None or metrics is None:
        return None
    lost = [losses for run in metrics if (losses := run["forgetting_by_phase"]) is not None]
    return {
        "curve": [_spread(values) for values in accuracies],
        "last": _metric(metrics, "last_accuracy"),
        "average": _metric(metrics, "average_incremental_accuracy"),
        "forgetting": _metric(metrics, "forgetting"),
        "lost": [_spread(values) for values in zip(*lost, strict=True)],
    }


def _metric(metrics: Sequence[Metrics], name: MetricName) -> list[float | None] | None:
    values = [value for run in metrics if (value := run[name]) is not None]
    return _spread(values) if values else None


def _spectra(runs: Sequence[Sequence[Analysis]]) -> dict[int, dict[str, Any]]:
    """For each phase that was analysed: by split alpha_k in percent (Eq. 3), over the n runs that have it."""
    found: dict[int, list[Analysis]] = {}
    for analysis in (one for run in runs for one in run):
        found.setdefault(analysis["phase"], []).append(analysis)
    return {phase: _mean_shares(found[phase]) for phase in sorted(found)}


def _mean_shares(analyses: Sequence[Analysis]) -> dict[str, Any]:
    """At those k that all of them looked at."""
    ks = [k for k in analyses[0]["k"] if all(k in other["k"] for other in analyses)]

    def share(analysis: Analysis, split: Split, k: int) -> float:
        return 100 * measured(analysis, split, "raw")["alpha_mean"][analysis["k"].index(k)]

    means: dict[str, Any] = {
        split: [_spread([share(one, split, k) for one in analyses]) for k in ks] for split in SPLITS
    }
    return {"n": len(analyses), "k": ks, **means}


def _spread(values: Sequence[float]) -> list[float | None]:
    """Mean and deviation, to a precision that two printed decimals survive."""
    mean, deviation, _ = mean_and_deviation(values)
    return [round(mean, 6), None if deviation is None else round(deviation, 6)]


def _run(record: Record) -> dict[str, Any]:
    phases = record["phases"]
    return {
        "seed": record["seed"],
        "method": record["method"],
        "initial": record["initial"],
        "sizes": [phase["new_classes"] for phase in phases],
        "by_phase": {
            classifier: [
                [round(value, 3) for value in phase["by_phase"][classifier] or []] for phase in phases
            ]
            for classifier in CLASSIFIERS
            if record["summary"][classifier] is not None
        },
        "seconds": [{k: round(v, 4) for k, v in phase["seconds"].items()} for phase in phases],
        "train_images": [phase["train_images"] for phase in phases],
        "exemplars": [phase["memory"]["total"] for phase in phases],
        "timing": record["timing"],
        "environment": record["environment"],
        "config": json.dumps(
            record["config"], indent=2, ensure_ascii=False
        ),  # as Python writes it: 0.0 stays
    }


def _matrices(records: Sequence[Record]) -> tuple[list[list[str]], str]:
    """For each run its phases' confusion matrices, and which were kept: all, the last of each run, or none."""
    runs = [[encode_confusion(phase) for phase in record["phases"]] for record in records]
    for kept, first in (("all", 0), ("last", -1)):
        chosen = [phases[first:] for phases in runs]
        if sum(len(text) for phases in chosen for text in phases) <= MOST_MATRIX_BYTES:
            return chosen, kept
    return [[] for _ in runs], "none"


def encode_confusion(phase: PhaseRecord) -> str:
    """The entries in reading order as (steps since the one before, count), each a varint; deflated, base64.

    A matrix of 100 classes has some 2000 entries of 10000; this takes about two bytes for each.
    """
    confusion, seen = phase["confusion"], phase["seen_classes"]
    entries = sorted(zip(confusion["true"], confusion["predicted"], confusion["count"], strict=True))
    packed, before = bytearray(), -1
    for true, predicted, count in entries:
        place = true * seen + predicted
        for number in (place - before, count):
            while number > 127:
                packed.append(number & 127 | 128)
                number >>= 7
            packed.append(number)
        before = place
    return base64.b64encode(zlib.compress(packed, 9)).decode("ascii")
