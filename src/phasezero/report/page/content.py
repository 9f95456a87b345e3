"""The page's content from the records: plain values for JSON, with every mean already computed."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import fmean
from typing import Any

from phasezero import __version__
from phasezero.config import complete, leaves
from phasezero.identity import differing, group_by_identity, strategies_of
from phasezero.methods import classifier_of
from phasezero.records.analysis import SPLITS, Analysis
from phasezero.records.metrics import mean_and_deviation
from phasezero.records.run import PhaseRecord, Record
from phasezero.report import tables
from phasezero.report.looks import MARKERS, method_look
from phasezero.report.published import PublishedCell, gap, published_for

MOST_MATRIX_BYTES = 3_500_000
"""Limit for all confusion matrices, of the page's 5 MB: forty runs of 26 phases of CIFAR-100 need 2 to 2.5 MB."""


def page_content(
    records: Sequence[Record], analyses: Sequence[Sequence[Analysis]] = (), repeated: Sequence[str] = ()
) -> dict[str, Any]:
    """Return everything on the page; `analyses` belong to the records at the same positions.

    `repeated` says which run of a repeated seed is shown.
    """
    groups = group_by_identity(records)
    runs = [(index, record) for index, group in enumerate(groups) for record in group.members]
    classes = list({json.dumps(record["data"]): record["data"] for record in records}.values())
    matrices, kept = _matrices([record for _, record in runs])
    found = {id(record): some for record, some in zip(records, analyses, strict=False)}
    settings = differing([dict(leaves(complete(group.first["config"]))) for group in groups])
    return {
        "version": __version__,
        "classification": tables.CLASSIFICATION,
        "markers": MARKERS,
        "differences": list(tables.differences(groups).items()),
        "repeated": list(repeated),
        "matrices": kept,
        "groups": [_group(group, found) for group in groups],
        "settings": [
            (key, [None if value is None else json.dumps(value) for value in values])
            for key, values in settings.items()
            if key not in ("name", "seed")
        ],
        "runs": [
            _run(record) | {"group": index, "classes": classes.index(record["data"]), "matrices": matrix}
            for (index, record), matrix in zip(runs, matrices, strict=True)
        ],
        "classes": classes,
    }


Found = Mapping[int, Sequence[Analysis]]
"""The analyses of records, by the records' id()."""


def _group(group: tables.Runs, found: Found) -> dict[str, Any]:
    paper, cell, by = None, published_for(group.first), classifier_of(group.first["method"])
    if cell is not None:
        number, _, what = cell.table.removeprefix("table").partition("_")
        source = f"Table {number} ({what.replace('_', ' ')}): {cell.note.replace('+-', ' ± ')}"
        paper = {"mean": cell.mean, "sd": cell.std, "source": source, "by": by}
    first, *later = [phase["new_classes"] for phase in group.first["phases"]]
    strategies, seeds = strategies_of(group.first), list(group.by_seed())
    return {
        "label": group.label,
        "key": f"{zlib.crc32(group.label.encode()):x}",  # names the group in a link, also to a page of other runs
        "method": group.first["method"],
        "strategies": "+".join(strategies),
        "look": asdict(method_look(group.first["method"], strategies)),
        "data": group.first["data"]["name"],
        "base": first,
        "step": later[0] if len(set(later)) == 1 else None,
        "seeds": seeds,
        "seen": tables.seen_classes(group),
        "conditions": tables.conditions(group),
        "own": tables.group_classifier(group),
        "paper": paper,
        # The numbers over all seeds, and those of each seed for the filter.
        "all": _numbers(group, cell, found),
        "by_seed": {seed: _numbers(group.of_seeds([seed]), cell, found) for seed in seeds} if len(seeds) > 1 else {},
    }


def _numbers(group: tables.Runs, cell: PublishedCell | None, found: Found) -> dict[str, Any]:
    by = classifier_of(group.first["method"])
    classifiers = dict.fromkeys(name for run in group.members for name in run["summary"])
    return {
        "n": len(group.members),
        "results": {name: _results(group, name, cell if name == by else None) for name in classifiers},
        "seconds": _spread([tables.computing_seconds(run) for run in group.members]),
        "spectra": _spectra([model for run in group.members for model in found.get(id(run), ())]),
    }


def _results(group: tables.Runs, classifier: str, cell: PublishedCell | None) -> dict[str, Any] | None:
    """Return the numbers by one classifier; `cell` is the published number of that classifier."""
    accuracies, metrics = tables.accuracies_of(group, classifier), tables.metrics_of(group, classifier)
    if accuracies is None or metrics is None:
        return None
    averages = [run["average_incremental_accuracy"] for run in metrics]
    forgetting = [value for run in metrics if (value := run["forgetting"]) is not None]
    lost = [losses for run in metrics if (losses := run["forgetting_by_phase"]) is not None]
    old = [_old_classes(run, classifier) for run in group.members]
    new = [[(phase["by_phase"][classifier] or [])[-1] for phase in run["phases"]] for run in group.members]
    return {
        "curve": [_spread(values) for values in accuracies],
        "old": [_spread(values) for values in zip(*old, strict=True)],
        "new": [_spread(values) for values in zip(*new, strict=True)],
        "last": _spread([run["last_accuracy"] for run in metrics]),
        "average": _spread(averages),
        "gap": None if cell is None else gap(averages, cell),
        "forgetting": _spread(forgetting) if forgetting else None,
        "lost": [_spread(values) for values in zip(*lost, strict=True)],
    }


def _old_classes(record: Record, classifier: str) -> list[float]:
    """Return, for each phase after the first, the accuracy on the test images of the classes of earlier phases."""
    found, images = [], _test_images(record)
    for index, phase in enumerate(record["phases"][1:], start=1):
        shares = (phase["by_phase"][classifier] or [])[:index]
        found.append(fmean(shares, weights=images[:index]))
    return found


def _test_images(record: Record) -> list[int]:
    """Return the number of test images of the classes of each phase."""
    last = record["phases"][-1]["confusion"]
    by_class: Counter[int] = Counter()
    for true, count in zip(last["true"], last["count"], strict=True):
        by_class[true] += count
    ends = [phase["seen_classes"] for phase in record["phases"]]
    return [sum(by_class[label] for label in range(start, end)) for start, end in pairwise([0, *ends])]


def _spectra(analyses: Sequence[Analysis]) -> dict[int, dict[str, Any]]:
    """Return for each phase that was analysed: by split alpha_k in percent (Eq. 3), over the n runs that have it."""
    found: dict[int, dict[str, Any]] = {}
    for phase in sorted({run["phase"] for run in analyses}):
        runs = [run for run in analyses if run["phase"] == phase]
        ks = [k for k in runs[0]["k"] if all(k in run["k"] for run in runs)]
        found[phase] = {"n": len(runs), "k": ks}
        for split in SPLITS:
            shares = [[100 * run[split]["raw"]["alpha_mean"][run["k"].index(k)] for run in runs] for k in ks]
            found[phase][split] = [_spread(values) for values in shares]
    return found


def _spread(values: Sequence[float]) -> tuple[float, float | None]:
    return mean_and_deviation(values)[:2]


def _run(record: Record) -> dict[str, Any]:
    phases = record["phases"]
    return {
        "seed": record["seed"],
        "sizes": [phase["new_classes"] for phase in phases],
        "by_phase": {
            classifier: [phase["by_phase"][classifier] or [] for phase in phases]
            for classifier, metrics in record["summary"].items()
            if metrics is not None
        },
        "best": _best(record),
        "seconds": [phase["seconds"] for phase in phases],
        "train_images": [phase["train_images"] for phase in phases],
        "exemplars": [phase["memory"]["total"] for phase in phases],
        "timing": record["timing"],
        "environment": record["environment"],
        "config": json.dumps(record["config"], indent=2, ensure_ascii=False),  # as Python formats it: 0.0 stays
    }


def _best(record: Record) -> list[int]:
    """Return how many test images of each class were right (head classifier) after the class's best phase."""
    best = [0] * record["phases"][-1]["seen_classes"]
    for phase in record["phases"]:
        confusion = phase["confusion"]
        for true, predicted, count in zip(confusion["true"], confusion["predicted"], confusion["count"], strict=True):
            if true == predicted:
                best[true] = max(best[true], count)
    return best


def _matrices(records: Sequence[Record]) -> tuple[list[list[str]], str]:
    """Return each run's confusion matrices by phase, and which were kept: all, the last of each run, or none."""
    runs = [[encode_confusion(phase) for phase in record["phases"]] for record in records]
    for kept, first in (("all", 0), ("last", -1)):
        chosen = [phases[first:] for phases in runs]
        if sum(len(text) for phases in chosen for text in phases) <= MOST_MATRIX_BYTES:
            return chosen, kept
    return [[] for _ in runs], "none"


def encode_confusion(phase: PhaseRecord) -> str:
    """Return the entries in reading order as (steps since the entry before, count), each a varint; deflated, base64.

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
