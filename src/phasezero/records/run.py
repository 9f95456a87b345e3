"""The record of a run: a JSON file of facts. Tables and figures are views of it.

The types here and run.schema.json describe the same shape, for Python and for other programs. Old records stay
readable: new fields are optional, and metrics that an old summary lacks are computed from its phases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, Unpack, cast

import numpy as np

from phasezero.errors import UserError
from phasezero.records import metrics
from phasezero.records.consistency import check_consistent, class_hash as class_hash, record_contradictions
from phasezero.records.files import find_files
from phasezero.records.jsonfile import Lists, check_content, load_schema, read_json, write_json

SCHEMA_VERSION = 1
FILE_NAME = "record.json"

CLASSIFIERS = ("head", "nearest_mean", "uncorrected")
"""Classifiers in every record, with null if a classifier was not measured. Others may be added.

`nearest_mean`: the nearest mean of exemplars. `uncorrected`: the head without its bias correction (BiC).
"""


class DataFacts(TypedDict):
    """The data of a run. Classes are in class order."""

    name: str
    class_ids: list[str]
    class_names: list[str]
    class_order: str
    class_order_indices: list[int]
    train_images: int
    test_images: int


class DataRecord(DataFacts):
    classes: int
    class_hash: str


class Memory(TypedDict):
    per_class: list[int]
    total: int


class PhaseRecord(TypedDict):
    phase: int
    new_classes: int
    seen_classes: int
    train_images: int
    test_images: int
    accuracy: dict[str, float | None]
    """By classifier, in percent."""
    by_phase: dict[str, list[float] | None]
    """By classifier: the accuracy on the classes of each phase so far."""
    confusion: dict[str, list[int]]
    """Confusions of the head: `true` and `predicted` classes, and the `count` of test images."""
    memory: Memory
    loss: dict[str, list[float]]
    seconds: dict[str, float]
    gpu: NotRequired[dict[str, float]]
    statistics: NotRequired[dict[str, int]]
    """What is kept instead of exemplars: how many `numbers`, and their `bytes`."""


class Metrics(TypedDict):
    average_incremental_accuracy: float
    last_accuracy: float
    forgetting: float | None
    forgetting_by_phase: list[float] | None


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
    plugins: NotRequired[dict[str, str]]
    """The sha256 of each loaded plug-in."""


class Part(TypedDict):
    """A part of a run that was made under other conditions than the rest."""

    phases: int
    """How many phases were finished when it stopped."""
    environment: Environment


class RunFacts(TypedDict):
    """The run of a record or an analysis, and what produced it."""

    name: str
    method: str
    initial: list[str]
    seed: int
    config: dict[str, Any]
    """The configuration as written; `RunConfig.from_record` and `identity.settings_of` add newer fields."""
    data: DataRecord
    environment: Environment


class FinishedRun(RunFacts):
    """The record of a run without its summary."""

    phases: list[PhaseRecord]
    timing: Timing
    earlier_parts: NotRequired[list[Part]]
    """Parts of the run that were made under other conditions; `environment` is that of the last part."""


class Record(FinishedRun):
    """The record of a run, as read from its JSON file.

    >>> from phasezero import Record
    >>> sorted(Record.__annotations__)[:4]
    ['config', 'data', 'earlier_parts', 'environment']
    """

    schema_version: int
    phasezero: str
    """The version of the package."""
    summary: dict[str, Metrics | None]
    """By classifier; null unless every phase was measured with it."""


def data_record(**facts: Unpack[DataFacts]) -> DataRecord:
    """Build the data block: add the number of classes and their hash."""
    whole = {**facts, "classes": len(facts["class_ids"]), "class_hash": class_hash(facts["class_ids"])}
    return cast(DataRecord, {key: whole[key] for key in load_schema("run")["$defs"]["data"]["required"]})


def phase_record(
    *,
    phase_sizes: Sequence[int],
    confusions: Mapping[str, metrics.Counts],
    train_images: int,
    memory_per_class: Sequence[int],
    loss: Mapping[str, Sequence[float]],
    seconds: Mapping[str, float],
) -> PhaseRecord:
    """Build the block of the last of these phases; `confusions` are matrices by classifier."""
    head, unmeasured = confusions["head"], dict.fromkeys(CLASSIFIERS)
    true, predicted = np.nonzero(head)
    by_phase = {name: metrics.phase_accuracies(counts, phase_sizes) for name, counts in confusions.items()}
    return PhaseRecord(
        phase=len(phase_sizes) - 1,
        new_classes=phase_sizes[-1],
        seen_classes=sum(phase_sizes),
        train_images=train_images,
        test_images=int(head.sum()),
        accuracy={**unmeasured, **{name: metrics.overall_accuracy(counts) for name, counts in confusions.items()}},
        by_phase={**unmeasured, **by_phase},
        confusion={"true": true.tolist(), "predicted": predicted.tolist(), "count": head[true, predicted].tolist()},
        memory=Memory(per_class=list(memory_per_class), total=sum(memory_per_class)),
        loss={stage: list(values) for stage, values in loss.items()},
        seconds=dict(seconds),
    )


def run_record(**run: Unpack[FinishedRun]) -> Record:
    """Build the record: add the versions of schema and package, and the summary."""
    versions = {"schema_version": SCHEMA_VERSION, "phasezero": run["environment"]["phasezero"]}
    whole: dict[str, Any] = {**versions, **run, "initial": list(run["initial"]), "summary": summarise(run["phases"])}
    optional = [key for key in ("earlier_parts",) if whole.get(key)]
    return cast(Record, {key: whole[key] for key in (*load_schema("run")["required"], *optional)})


def summarise(phases: Sequence[PhaseRecord]) -> dict[str, Metrics | None]:
    """Build the summary block: by classifier, None unless every phase was measured with it."""
    return {name: _metrics(phases, name) for name in phases[0]["accuracy"]}


def _metrics(phases: Sequence[PhaseRecord], classifier: str) -> Metrics | None:
    accuracies = [value for phase in phases if (value := phase["accuracy"].get(classifier)) is not None]
    matrix = [row for phase in phases if (row := phase["by_phase"].get(classifier)) is not None]
    if not len(accuracies) == len(matrix) == len(phases):
        return None
    return Metrics(
        average_incremental_accuracy=metrics.average_incremental_accuracy(accuracies),
        last_accuracy=accuracies[-1],
        forgetting=metrics.forgetting(matrix),
        forgetting_by_phase=metrics.forgetting_by_phase(matrix),
    )


def device_share(record: Record) -> float:
    """Return the share of a GPU that a run had to itself; 1 on a CPU, where parallel runs have their own cores."""
    timing, own = record["timing"], record["timing"]["seconds_total"]
    return timing.get("share_seconds", own) / own if own and record["environment"]["device"] != "cpu" else 1.0


NOT_COMPARED = ("timing", "environment", "earlier_parts", "phasezero")


def comparable_part(record: Record) -> dict[str, Any]:
    """Return what two runs of a configuration and seed must share bit for bit, without times, machine and versions."""
    part: dict[str, Any] = {k: v for k, v in record.items() if k not in NOT_COMPARED}
    phases = [{k: v for k, v in phase.items() if k not in ("seconds", "gpu")} for phase in record["phases"]]
    return {**part, "phases": phases}


def write_record(path: str | Path, record: Record) -> None:
    """Write a record as JSON atomically.

    >>> import pathlib, tempfile
    >>> from phasezero import read_record, write_record
    >>> record = getfixture("record")  # what phasezero.run(...).record gives
    >>> folder = tempfile.TemporaryDirectory()
    >>> write_record(pathlib.Path(folder.name) / "record.json", record)
    >>> read_record(folder.name) == record
    True
    """
    write_json(path, record, "record")


def read_record(path_or_folder: str | Path) -> Record:
    """Read a record from a file, or from the record.json in a folder.

    >>> from phasezero import read_record
    >>> record = read_record(getfixture("record_file"))
    >>> record["summary"]["head"]["last_accuracy"] == record["phases"][-1]["accuracy"]["head"]
    True
    """
    path = _own_file(Path(path_or_folder))
    return parse_record(path, read_json(path, "record"))


def parse_record(path: Path, value: dict[str, Any]) -> Record:
    """Check a record that was read from a file, and add fields that an old record lacks."""
    if (version := value.get("schema_version", "none")) != SCHEMA_VERSION:
        raise UserError(f"{path}: schema_version is {version!r}, this phasezero reads {SCHEMA_VERSION}")
    check_content(path, value, "run", _lists)
    return _complete(path, value)


def _lists(record: dict[str, Any]) -> Lists:
    data = record["data"]
    for name in ("class_ids", "class_names", "class_order_indices"):
        yield f"data.{name}", data[name], data["classes"]
    for place, phase in enumerate(record["phases"]):
        for name, row in phase["by_phase"].items():
            if isinstance(row, list):  # None: not measured
                yield f"phases[{place}].by_phase.{name}", row, place + 1
        for name in ("true", "predicted"):
            yield f"phases[{place}].confusion.{name}", phase["confusion"][name], len(phase["confusion"]["count"])


def _complete(path: Path, value: dict[str, Any]) -> Record:
    """Add the metrics that an old summary lacks; raise UserError if parts of the record contradict each other."""
    check_consistent(path, record_contradictions(value))
    summary = dict(value["summary"])
    for classifier, computed in summarise(value["phases"]).items():
        expected: dict[str, Any] = {**(computed or {})}
        written = summary.get(classifier, expected) or {}
        both = expected.keys() & written.keys()
        if bool(written) != bool(expected) or not all(_same(written[key], expected[key]) for key in both):
            raise UserError(f"{path}: summary.{classifier} contradicts the phases; one of them was changed")
        summary[classifier] = {**expected, **written} or None
    return cast(Record, {**value, "summary": summary})


def _same(first: Any, other: Any) -> bool:
    """Compare metrics (a number, a list of numbers or None) up to rounding differences between machines."""
    if first is None or other is None:
        return first is other
    return np.shape(first) == np.shape(other) and np.allclose(first, other, rtol=1e-9, atol=1e-6)


def _own_file(path: Path) -> Path:
    return path / FILE_NAME if path.is_dir() else path


def find_records(paths: Iterable[str | Path]) -> list[Path]:
    """Return files of records: each path is a file, a run's folder, or a folder searched at any depth."""
    return find_files(paths, FILE_NAME)


def sound_records(paths: Sequence[str | Path], warn: Callable[[str], None]) -> list[tuple[Path, Record]]:
    """Read the records that `find_records` finds.

    A damaged record raises UserError if its file was named. If a search found it, it is left out with a warning.
    """
    found, named = [], {_own_file(Path(path)).resolve() for path in paths}
    for path in find_records(paths):
        try:
            found.append((path, read_record(path)))
        except UserError as error:
            if path in named:
                raise
            warn(f"{error}; left out")
    return found


def load_records(paths: Sequence[str | Path], warn: Callable[[str], None]) -> list[tuple[Path, Record]]:
    """Read records like `sound_records`; raise UserError if no record can be read."""
    if not (found := sound_records(paths, warn)):
        raise UserError(f"{', '.join(map(str, paths))}: no {FILE_NAME} that can be read")
    return found
