"""What the page shows, taken from the records: plain values for JSON, with every mean already computed."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from phasezero import __version__
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.paper import published_classifier, published_for
from phasezero.results.record import Classifier, Metrics, PhaseRecord, Record
from phasezero.results.tables import Group, conditions, differences, group_records, repeated_seeds

MOST_MATRIX_BYTES = 3_500_000
"""Room for all confusion matrices, of the page's 5 MB: forty runs of 26 phases of CIFAR-100 need 2 to 2.5."""

Analysis = Mapping[str, Any]
"""What `analysis.json` beside a record holds."""


def page_content(records: Sequence[Record], analyses: Sequence[Analysis | None] = ()) -> dict[str, Any]:
    """Everything on the page; `analyses` belong to the records at the same places."""
    groups = group_records(records)
    runs = [(index, record) for index, group in enumerate(groups) for record in group.records]
    classes = {record["data"]["class_hash"]: record["data"] for record in records}
    hashes = list(classes)
    matrices, kept = _matrices([record for _, record in runs])
    found = {id(record): analysis for record, analysis in zip(records, analyses, strict=False)}
    return {
        "version": __version__,
        "differences": [
            {"what": one.what, "owners": list(one.owners.items())} for one in differences(groups)
        ],
        "repeated": repeated_seeds(groups),
        "matrices": kept,
        "groups": [_group(group) for group in groups],
        "runs": [
            {
                "group": index,
                "classes": hashes.index(record["data"]["class_hash"]),
                "matrices": matrix,
                **_run(record, found.get(id(record)) or {}),
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


def _group(group: Group) -> dict[str, Any]:
    first = group.records[0]
    cell = published_for(first)
    paper = None
    if cell is not None:
        theirs = published_classifier(first["method"])
        paper = {"mean": cell.mean, "sd": cell.std, "table": cell.table, "note": cell.note, "by": theirs}
    return {
        "label": group.label,
        "n": len(group.records),
        "seen": group.seen,
        "conditions": conditions(first),
        "results": {classifier: _results(group, classifier) for classifier in get_args(Classifier)},
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


def _metric(
    metrics: Sequence[Metrics], name: Any
) -> list[float | None] | None:  # name: a key, which a TypedDict wants as a literal
    values = [value for run in metrics if (value := run[name]) is not None]
    return _spread(values) if values else None


def _spread(values: Sequence[float]) -> list[float | None]:
    """Mean and deviation, to a precision that two printed decimals survive."""
    mean, deviation, _ = mean_and_deviation(values)
    return [round(mean, 6), None if deviation is None else round(deviation, 6)]


def _run(record: Record, analysis: Analysis) -> dict[str, Any]:
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
            for classifier in get_args(Classifier)
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
        "spectra": analysis.get("spectra"),
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
