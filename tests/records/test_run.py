"""The record: schema, reading, writing, what two runs must share. versions/: records as earlier versions wrote them."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.records import files, jsonfile, run as records
from phasezero.records.analysis import find_analyses, read_analysis

VERSIONS = Path(__file__).parent / "versions"
VALIDATOR = jsonschema.Draft202012Validator(jsonfile.load_schema("run"))


@pytest.fixture
def record() -> Any:
    """A whole record of phases of 3, 1 and 2 classes, as it lies in its file."""
    return json.loads((VERSIONS / "1.json").read_text())


def test_the_summary_is_that_of_the_phases() -> None:
    rows = {"head": [[80.0], [76.0, 90.0], [72.0, 86.0, 70.0]], "nearest_mean": [[79.0], [75.0, 75.0], None]}
    accuracies = {"head": [80.0, 76.0, 72.0], "nearest_mean": [79.0, 75.0, None]}
    phases: Any = [
        {"accuracy": {name: accuracies[name][i] for name in rows}, "by_phase": {name: rows[name][i] for name in rows}}
        for i in range(3)
    ]
    found = records.summarise(phases)
    assert found["head"] == records.Metrics(
        average_incremental_accuracy=76.0, last_accuracy=72.0, forgetting=6.0, forgetting_by_phase=[8.0, 4.0]
    )
    assert found["nearest_mean"] is None  # not measured in every phase


def test_the_confusion_is_that_of_the_head(record: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(jsonfile.load_schema("run"))
    VALIDATOR.validate(record)
    for phase in record["phases"]:
        full = np.zeros((phase["seen_classes"],) * 2, dtype=np.int64)
        full[phase["confusion"]["true"], phase["confusion"]["predicted"]] = phase["confusion"]["count"]
        assert np.trace(full) * 100 / full.sum() == phase["accuracy"]["head"]
        assert full.sum() == phase["test_images"]
        made = records.phase_record(
            phase_sizes=[3, 1, 2][: phase["phase"] + 1],
            confusions={"head": full},
            train_images=phase["train_images"],
            memory_per_class=phase["memory"]["per_class"],
            loss=phase["loss"],
            seconds=phase["seconds"],
        )
        unmeasured = {"nearest_mean": None, "uncorrected": None}
        assert made == {**phase, **{key: {**phase[key], **unmeasured} for key in ("accuracy", "by_phase")}}


def every_object(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [where] if isinstance(value, dict) else []
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return found + [path for key, entry in entries for path in every_object(entry, (*where, key))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def of_seed(record: Any, seed: int) -> Any:
    return {**record, "seed": seed, "config": {**record["config"], "seed": seed}}


OPEN = {("summary", "head"), ("summary", "nearest_mean")}  # metrics may be added


def reread(record: Any, folder: Path) -> Any:
    """Write a record as it is, without the checks of `write_record`, and read it."""
    (folder / "record.json").write_text(json.dumps(record))
    return records.read_record(folder)


def test_schema_is_strict_where_views_rely_on_it(record: Any) -> None:
    for path in every_object(record):
        changed = copy.deepcopy(record)
        at(changed, path)["stray"] = "value"
        assert VALIDATOR.is_valid(changed) == (path[:1] == ("config",) or path in OPEN), path


def test_schema_and_reader_name_every_missing_key(record: Any, tmp_path: Path) -> None:
    optional = {"since_start", "share_seconds", "gpu"}
    for path in every_object(record):
        for key in () if "loss" in path or path[:1] == ("config",) else at(record, path).keys() - optional:
            changed = copy.deepcopy(record)
            del at(changed, path)[key]
            assert not VALIDATOR.is_valid(changed), (path, key)
            with pytest.raises(UserError, match=rf"record\.json: .*{key}"):
                reread(changed, tmp_path)


def test_comparable_part_ignores_clock_and_machine_only(record: Any) -> None:
    other = copy.deepcopy(record)
    other["timing"] |= {"seconds_total": 99.0, "since_start": 123.0}
    other["phases"][0]["gpu"] = {"peak_memory_mib": 900.5, "capture_seconds": 3.0}
    other["phases"][0]["seconds"]["train"] = 99.0
    other["environment"]["device_name"] = "another"
    VALIDATOR.validate(other)
    assert records.comparable_part(record) == records.comparable_part(other)
    other["phases"][0]["loss"]["train"][0] += 1e-12
    assert records.comparable_part(record) != records.comparable_part(other)
    assert "seconds" in record["phases"][0]  # the record itself is left alone


def test_class_hash_depends_on_order_and_boundaries() -> None:
    # Fixed: sha256 of ["n01","n02"] as compact JSON, by another program.
    assert records.class_hash(["n01", "n02"]).startswith("5f295ee604ac0ef3")
    hashes = {records.class_hash(ids) for ids in (["a", "b"], ["b", "a"], ["ab"], ["a,b"], ['a","b'])}
    assert len(hashes) == 5
    assert records.class_hash([1, 2]) == records.class_hash(["1", "2"])


# ---- old records, and records of later versions -----------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(VERSIONS.glob("*.json")), ids=lambda path: path.name)
def test_a_record_of_an_earlier_version_is_read(path: Path, tmp_path: Path) -> None:
    written, found = json.loads(path.read_text()), records.read_record(path)
    assert records.summarise(found["phases"]) == found["summary"] == written["summary"]
    assert RunConfig.from_record(found["config"]).label == "lucir+cwd"
    records.write_record(tmp_path / "again.json", found)
    again = json.loads((tmp_path / "again.json").read_text())
    assert again.pop(jsonfile.DIGEST)
    assert list(again) == list(written)
    assert again == written


def test_every_committed_record_and_analysis_is_read() -> None:
    folder, heard = Path(__file__).parents[2] / "results", list[str]()
    found = records.load_records([folder], heard.append)
    assert heard == []
    assert len(found) > 100
    for _, one in found:
        RunConfig.from_record(one["config"])
    assert len([read_analysis(path) for path in find_analyses([folder])]) > 10


def test_what_a_later_version_added_is_kept(record: Any, tmp_path: Path) -> None:
    """A metric, a classifier, and a fact at every level."""
    record["summary"]["head"]["plasticity"] = 12.5
    for phase in record["phases"]:
        phase["accuracy"]["ridge"] = phase["accuracy"]["head"]
        phase["by_phase"]["ridge"] = phase["by_phase"]["head"]
    record["summary"]["ridge"] = record["summary"]["head"]
    for path in every_object(record):
        if path[:1] not in (("summary",), ("phases",)):
            at(record, path)["added"] = 1
    assert reread(record, tmp_path) == record


def test_metrics_and_classifiers_that_a_summary_lacks_are_computed(
    record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = copy.deepcopy(record["summary"])
    for phase in record["phases"]:  # measured in the phases, not in the summary
        phase["accuracy"]["ridge"], phase["by_phase"]["ridge"] = phase["accuracy"]["head"], phase["by_phase"]["head"]
    assert reread(record, tmp_path)["summary"] == {**whole, "ridge": whole["head"]}
    metrics = records._metrics

    def with_first(phases: Any, classifier: str) -> Any:
        found = metrics(phases, classifier)
        return found and {**found, "first_accuracy": phases[0]["accuracy"][classifier]}

    monkeypatch.setattr(records, "_metrics", with_first)
    found = records.read_record(tmp_path)["summary"]
    first = record["phases"][0]["accuracy"]
    assert found["nearest_mean"] == {**whole["nearest_mean"], "first_accuracy": first["nearest_mean"]}
    assert found["uncorrected"] is None


# ---- files ------------------------------------------------------------------------------------------------------


def test_round_trip_and_lists_on_one_line(record: Any, tmp_path: Path) -> None:
    record["config"] |= {"out": "ü", "lr": [0.1, 1e-9], "nested": {"empty": {}, "none": None, "l": [[1], []]}}
    path = tmp_path / "new" / "folder" / "record.json"
    records.write_record(path, record)
    assert records.read_record(path) == records.read_record(path.parent) == record
    assert list(path.parent.iterdir()) == [path]
    assert '\n    "per_class": [3, 3, 3, 3, 3, 3],\n' in path.read_text(encoding="utf-8")
    with pytest.raises(TypeError, match="not a string"):
        jsonfile.write_json(path, {"a": {1: 2}}, "table")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number_is_refused_and_the_place_named(record: Any, tmp_path: Path, bad: float) -> None:
    record["phases"][2]["loss"]["train"][1] = bad
    with pytest.raises(UserError, match=r"phases\[2\]\.loss\.train\[1\]"):
        records.write_record(tmp_path / "record.json", record)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(
    step: str, record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    records.write_record(path, record)
    changed = of_seed(record, 2)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        records.write_record(path, changed)
    assert list(tmp_path.iterdir()) == [path]
    assert records.read_record(path)["seed"] == 0


def test_reading_says_what_is_wrong(record: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(UserError, match=r"record\.json: no record"):
        records.read_record(tmp_path)
    last = json.dumps(record["summary"]["head"]["last_accuracy"])
    for text, message in [
        ("{half", "not JSON"),
        ("[1]", "not a record"),
        ('{"a":' * 200_000, "not JSON"),
        *((json.dumps(record).replace(last, number), "not a finite") for number in ("NaN", "-Infinity", "1e999")),
    ]:
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            records.read_record(path)
        assert str(path) in str(caught.value)
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 10)
    with pytest.raises(UserError, match=r"^\S*/record\.json: larger than 0 MiB"):
        records.read_record(tmp_path)


DAMAGE: list[tuple[str, Any, str]] = [
    ("schema_version", 7, "schema_version is 7, this phasezero reads 1"),
    ("phases", "none", "phases should be array"),
    ("phases", [], "phases is empty"),
    ("seed", True, "seed should be integer"),
    ("initial", [5], r"initial\[0\] should be string"),
    ("summary.head.last_accuracy", 99.0, "summary.head contradicts the phases"),
    ("summary.head.forgetting", -50.0, "summary.head contradicts the phases"),
    ("summary.head.forgetting", None, "summary.head contradicts the phases"),
    ("summary.head.forgetting_by_phase", [8.0], "summary.head contradicts the phases"),
    ("summary.nearest_mean", None, "summary.nearest_mean contradicts the phases"),
    ("phases.1.by_phase.head", [], r"phases\[1\].by_phase.head has 0 entries and should have 2"),
    ("phases.2.by_phase.head", [1.0] * 4, r"phases\[2\].by_phase.head has 4 entries and should have 3"),
    ("phases.0.confusion.true", [0], r"phases\[0\].confusion.true has 1 entries"),
    ("phases.0.confusion.true.0", 3, r"phases\[0\].confusion.true has a class that was not seen"),
    ("phases.0.confusion.true.0", -1, r"confusion.true\[0\] should be at least 0"),
    ("phases.2.memory.per_class.3", -1, r"memory.per_class\[3\] should be at least 0"),
    ("phases.2.by_phase.head.1", 100.5, r"by_phase.head\[1\] should be at most 100"),
    ("phases.0.accuracy.head", 100.5, "accuracy.head should be at most 100"),
    ("phases.0.accuracy.head", 10**400, "a whole number of 401 digits"),
    ("phases.0.seconds.train", "long", "seconds.train should be number"),
    ("data.class_order_indices", [0], "data.class_order_indices has 1 entries and should have 6"),
    ("config.initial", ["cwd"], r"config.initial\[0\] should be object"),
    ("config.initial", [{"weight": 0.5}], r"missing key 'config.initial\[0\].name'"),
    ("config.method", "lucir", "config.method should be object"),
    ("name", "a\x1b[2Jb", "name has a character that cannot be printed"),
    ("data.class_names.0", "\ud800", r"data.class_names\[0\] has a character that cannot be printed"),
    ("config.protocol.memory", "\x9b2J", "config.protocol.memory has a character that cannot be printed"),
    ("config.further", {"\x1b[2J": 1}, r"the key '\\x1b\[2J' has a character that cannot be printed"),
]


@pytest.mark.parametrize(("path", "value", "message"), DAMAGE, ids=[path for path, _, _ in DAMAGE])
def test_damage_is_named_by_its_place(record: Any, tmp_path: Path, path: str, value: Any, message: str) -> None:
    *parents, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    at(record, tuple(parents))[last] = value
    with pytest.raises(UserError, match=rf"record\.json: .*{message}"):
        reread(record, tmp_path)


def test_a_summary_may_be_rounded_otherwise(record: Any, tmp_path: Path) -> None:
    record["summary"]["head"]["average_incremental_accuracy"] += 1e-9
    assert reread(record, tmp_path) == record


# ---- many records -----------------------------------------------------------------------------------------------


def test_load_records_takes_files_run_folders_and_trees_once_each(record: Any, tmp_path: Path) -> None:
    for seed in range(3):
        records.write_record(tmp_path / "grid" / str(seed) / "record.json", of_seed(record, seed))
    (tmp_path / "empty").mkdir()
    paths = [tmp_path / "grid" / "1", tmp_path / "grid" / "2" / "record.json", str(tmp_path / "grid")]
    heard: list[str] = []
    found = records.load_records(paths, heard.append)
    assert [(path.parent.name, one["seed"]) for path, one in found] == [("1", 1), ("2", 2), ("0", 0)]
    assert heard == []
    (tmp_path / "link").symlink_to(tmp_path / "grid")
    assert len(records.load_records([tmp_path / "grid", tmp_path / "link"], heard.append)) == 3
    with pytest.raises(UserError, match=r"empty: no record\.json"):
        records.load_records([tmp_path / "empty"], heard.append)
    with pytest.raises(UserError, match="nowhere"):
        records.load_records([tmp_path / "nowhere"], heard.append)


def test_a_damaged_record_stops_only_those_who_named_it(record: Any, tmp_path: Path) -> None:
    for seed in range(2):
        records.write_record(tmp_path / str(seed) / "record.json", of_seed(record, seed))
    damaged = tmp_path / "0" / "record.json"
    damaged.write_text(damaged.read_text()[:100])
    heard: list[str] = []
    found = records.load_records([tmp_path], heard.append)
    assert [one["seed"] for _, one in found] == [1]
    (complaint,) = heard
    assert str(damaged) in complaint
    assert "not JSON" in complaint
    for named in (damaged, damaged.parent):
        with pytest.raises(UserError, match="not JSON"):
            records.load_records([tmp_path, named], heard.append)
    (tmp_path / "1" / "record.json").unlink()
    with pytest.raises(UserError, match=r"no record\.json that can be read"):
        records.load_records([tmp_path], heard.append)
