"""The record of a run: one JSON file of facts with a versioned schema; tables and figures are views of it.

The shape is written down twice on purpose: as types here, for those who build and read records in Python,
and in record.schema.json, for everybody else. The trainer builds one with `data_record`, `phase_record` after
each phase, and `run_record` at the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from phasezero.errors import UserError
from phasezero.results import metrics
from phasezero.results.jsonfile import (
    load_schema,
    read_json,
    refuse_misfits,
    refuse_other_lengths,
    write_json,
)
from phasezero.results.soundness import lists_of, refuse_unseen_classes, same_numbers

SCHEMA_VERSION = 1
FILE_NAME = "record.json"

Classifier = Literal["head", "nearest_mean", "uncorrected"]
"""`uncorrected`: the head without its bias correction, where the method has one (BiC)."""


class DataRecord(TypedDict):
    name: str
    classes: int
    class_ids: list[str]
    class_names: list[str]
    class_order: str
    class_order_indices: list[int]
    class_hash: str
    train_images: int
    test_images: int


class Accuracy(TypedDict):
    head: float
    nearest_mean: float | None
    uncorrected: float | None


class AccuracyRow(TypedDict):
    head: list[float]
    nearest_mean: list[float] | None
    uncorrected: list[float] | None


class Confusion(TypedDict):
    true: list[int]
    predicted: list[int]
    count: list[int]


class Memory(TypedDict):
    per_class: list[int]
    total: int


class Gpu(TypedDict):
    peak_memory_mib: float
    capture_seconds: float


class PhaseRecord(TypedDict):
    phase: int
    new_classes: int
    seen_classes: int
    train_images: int
    test_images: int
    accuracy: Accuracy
    by_phase: AccuracyRow
    confusion: Confusion
    memory: Memory
    loss: dict[str, list[float]]
    seconds: dict[str, float]
    gpu: NotRequired[Gpu]


class Metrics(TypedDict):
    average_incremental_accuracy: float
    last_accuracy: float
    forgetting: float | None
    forgetting_by_phase: list[float] | None


class Summary(TypedDict):
    head: Metrics
    nearest_mean: Metrics | None
    uncorrected: Metrics | None


class Timing(TypedDict):
    started: str
    seconds_total: float
    since_start: NotRequired[float]
    share_seconds: NotRequired[float]
    reused_phase_zero: bool


class Environment(TypedDict):
    phasezero: str
    python: str
    torch: str
    numpy: str
    cuda: str | None
    cudnn: str | None
    platform: str
    device: str
    device_name: str
    threads: int
    precision: str
    engine: str
    photos: NotRequired[Literal["resident", "files"]]


class RunFacts(TypedDict):
    """Which run something is of, and what made it."""

    phasezero: str
    name: str
    method: str
    initial: list[str]
    seed: int
    config: dict[str, Any]
    data: DataRecord
    environment: Environment


class Record(RunFacts):
    schema_version: int
    phases: list[PhaseRecord]
    summary: Summary
    timing: Timing


def class_hash(ids: Iterable[object]) -> str:
    """sha256 over the ordered class ids: equal only for the same classes in the same order."""
    # JSON, not a join: ["a,b"] and ["a", "b"] must differ.
    text = json.dumps([str(one) for one in ids], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def data_record(
    *,
    name: str,
    class_ids: Sequence[object],
    class_names: Sequence[str],
    class_order: str,
    class_order_indices: Sequence[int],
    train_images: int,
    test_images: int,
) -> DataRecord:
    """The data block; `class_ids` and `class_names` are already in class order."""
    return DataRecord(
        name=name,
        classes=len(class_ids),
        class_ids=[str(one) for one in class_ids],
        class_names=list(class_names),
        class_order=class_order,
        class_order_indices=[int(index) for index in class_order_indices],
        class_hash=class_hash(class_ids),
        train_images=train_images,
        test_images=test_images,
    )


def phase_record(
    *,
    phase_sizes: Sequence[int],
    confusion: metrics.Counts,
    nearest_mean_confusion: metrics.Counts | None,
    uncorrected_confusion: metrics.Counts | None = None,
    train_images: int,
    memory_per_class: Sequence[int],
    loss: Mapping[str, Sequence[float]],
    seconds: Mapping[str, float],
) -> PhaseRecord:
    """The block of the phase just finished; `phase_sizes` are the sizes so far, this phase's last."""

    def overall(counts: metrics.Counts | None) -> float | None:
        return None if counts is None else metrics.overall_accuracy(counts)

    def row(counts: metrics.Counts | None) -> list[float] | None:
        return None if counts is None else metrics.phase_accuracies(counts, phase_sizes)

    true, predicted = np.nonzero(confusion)
    return PhaseRecord(
        phase=len(phase_sizes) - 1,
        new_classes=int(phase_sizes[-1]),
        seen_classes=int(sum(phase_sizes)),
        train_images=train_images,
        test_images=int(confusion.sum()),
        accuracy=Accuracy(
            head=metrics.overall_accuracy(confusion),
            nearest_mean=overall(nearest_mean_confusion),
            uncorrected=overall(uncorrected_confusion),
        ),
        by_phase=AccuracyRow(
            head=metrics.phase_accuracies(confusion, phase_sizes),
            nearest_mean=row(nearest_mean_confusion),
            uncorrected=row(uncorrected_confusion),
        ),
        confusion=Confusion(
            true=true.tolist(), predicted=predicted.tolist(), count=confusion[true, predicted].tolist()
        ),
        memory=Memory(per_class=[int(n) for n in memory_per_class], total=int(sum(memory_per_class))),
        loss={stage: [float(value) for value in values] for stage, values in loss.items()},
        seconds={stage: float(value) for stage, value in seconds.items()},
    )


def run_record(
    *,
    name: str,
    method: str,
    initial: Sequence[str],
    seed: int,
    config: Mapping[str, Any],
    data: DataRecord,
    phases: Sequence[PhaseRecord],
    timing: Timing,
    environment: Environment,
) -> Record:
    """The whole record: adds the version of the schema and of the package, and the summary."""
    return Record(
        schema_version=SCHEMA_VERSION,
        phasezero=environment["phasezero"],
        name=name,
        method=method,
        initial=list(initial),
        seed=seed,
        config=dict(config),
        data=data,
        phases=list(phases),
        summary=summarise(phases),
        timing=timing,
        environment=environment,
    )


def summarise(phases: Sequence[PhaseRecord]) -> Summary:
    """The summary block; a classifier other than the head is None unless every phase has it."""
    head = _metrics([phase["accuracy"]["head"] for phase in phases], [p["by_phase"]["head"] for p in phases])

    def other(classifier: Literal["nearest_mean", "uncorrected"]) -> Metrics | None:
        accuracies = [a for phase in phases if (a := phase["accuracy"][classifier]) is not None]
        rows = [row for phase in phases if (row := phase["by_phase"][classifier]) is not None]
        return _metrics(accuracies, rows) if len(accuracies) == len(rows) == len(phases) else None

    return Summary(head=head, nearest_mean=other("nearest_mean"), uncorrected=other("uncorrected"))


def _metrics(accuracies: Sequence[float], matrix: Sequence[Sequence[float]]) -> Metrics:
    return Metrics(
        average_incremental_accuracy=metrics.average_incremental_accuracy(accuracies),
        last_accuracy=metrics.last_accuracy(accuracies),
        forgetting=metrics.forgetting(matrix),
        forgetting_by_phase=metrics.forgetting_by_phase(matrix),
    )


def comparable_part(record: Record) -> dict[str, Any]:
    """What two runs of one configuration and seed must share bit for bit: no clock, no machine."""
    part: dict[str, Any] = {k: v for k, v in record.items() if k not in ("timing", "environment")}
    computed = ("seconds", "gpu")
    part["phases"] = [{k: v for k, v in phase.items() if k not in computed} for phase in record["phases"]]
    return part


def write_record(path: str | Path, record: Record) -> None:
    write_json(path, record, "record")


YOUNGER_SETTINGS: dict[str, dict[str, Any]] = {"engine": {"photos": "auto"}}
YOUNGER_OPTIONS: dict[str, dict[str, Any]] = {
    "sdc": {"grouping": "neighbours"},
    "podnet": {"finetune_statistics": True},
    "bic": {"bias_settles": False, "set_aside": 0.0, "head_bias": True},
}
"""Settings, and options of methods and terms, that came after the first records, which had these values."""


def with_younger_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as it was written, with the settings it is too old to name."""
    sections: dict[str, Any] = {
        name: settings | config[name] for name, settings in YOUNGER_SETTINGS.items() if name in config
    }
    if "method" in config:
        sections["method"] = _with_younger_options(config["method"])
    if "initial" in config:
        sections["initial"] = [_with_younger_options(term) for term in config["initial"]]
    return {**config, **sections}


def _with_younger_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {**YOUNGER_OPTIONS.get(options["name"], {}), **options}


def read_record(path_or_folder: str | Path) -> Record:
    """Read one record; a folder means the record.json in it."""
    path = _own_file(Path(path_or_folder))
    value = read_json(path, "record")
    if (version := value.get("schema_version", "none")) != SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version is {version!r}, this phasezero reads {SCHEMA_VERSION}")
    refuse_misfits(path, value, schema())
    refuse_other_lengths(path, lists_of(value))
    refuse_unseen_classes(path, value)
    _refuse_other_summary(path, value)
    return cast(Record, {**value, "config": with_younger_settings(value["config"])})


def _refuse_other_summary(path: Path, record: Mapping[str, Any]) -> None:
    """Summaries are shown beside phases: where either was lost or changed, they would tell of different runs."""
    for classifier, found in summarise(record["phases"]).items():
        if not same_numbers(record["summary"][classifier], found):
            raise UserError(
                f"{path}: summary.{classifier} is not that of its phases; a part of them was changed"
            )


def sound_records(paths: Iterable[str | Path], complain: Callable[[str], None]) -> list[tuple[Path, Record]]:
    """Read many: each path is a file, a run's folder, or a folder searched for record.json at any depth.

    One that was named itself must be sound; a damaged one that a search found is left out, and `complain` hears why.
    """
    given = [Path(path) for path in paths]
    named = {_own_file(path).resolve() for path in given if not _is_searched(path)}
    found = []
    for path in find_records(given):
        try:
            found.append((path, read_record(path)))
        except UserError as error:
            if path in named:
                raise
            complain(f"{error}; left out")
    return found


def load_records(paths: Iterable[str | Path], complain: Callable[[str], None]) -> list[tuple[Path, Record]]:
    """`sound_records`, of which there must be one."""
    given = [Path(path) for path in paths]
    found = sound_records(given, complain)
    if not found:
        raise UserError(f"{', '.join(map(str, given))}: no {FILE_NAME} that can be read")
    return found


def _is_searched(path: Path) -> bool:
    return path.is_dir() and not (path / FILE_NAME).exists()


def _own_file(path: Path) -> Path:
    return path / FILE_NAME if path.is_dir() else path


def find_records(paths: Iterable[str | Path]) -> list[Path]:
    """The files that `load_records` reads."""
    found: dict[Path, None] = {}  # a set in order: a run reached by two paths must not count as two seeds
    for path in map(Path, paths):
        if _is_searched(path):
            inside = sorted(path.rglob(FILE_NAME))
            if not inside:
                raise UserError(f"{path}: no {FILE_NAME} in this folder or below it")
            found.update(dict.fromkeys(one.resolve() for one in inside))
        else:
            found[_own_file(path).resolve()] = None
    return list(found)


@cache
def schema() -> dict[str, Any]:
    """record.schema.json, parsed."""
    return load_schema("phasezero.results", "record.schema.json")
