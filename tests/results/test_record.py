"""The record: schema, reading, writing, what two runs must share."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from phasezero.errors import UserError
from phasezero.results import jsonfile
from phasezero.results import record as records
from phasezero.results.record import Record

Make = Callable[..., Record]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(records.schema())
    return jsonschema.Draft202012Validator(records.schema())


@pytest.mark.parametrize("nearest_mean", [False, True])
@pytest.mark.parametrize("sizes", [(50, 10, 10, 10, 10, 10), (3, 1, 2), (4,)])
def test_built_records_follow_the_schema(
    make_record: Make, validator: jsonschema.Draft202012Validator, sizes: tuple[int, ...], nearest_mean: bool
) -> None:
    record = make_record(sizes=sizes, nearest_mean=nearest_mean, initial=["cwd:0.5"])
    validator.validate(json.loads(json.dumps(record)))


def every_object(value: Any, where: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [where] if isinstance(value, dict) else []
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return found + [path for key, entry in entries for path in every_object(entry, (*where, key))]


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def test_schema_is_strict_at_every_level_but_config(
    make_record: Make, validator: jsonschema.Draft202012Validator
) -> None:
    record = make_record(sizes=(3, 1), nearest_mean=True)
    for path in every_object(record):
        changed = copy.deepcopy(record)
        at(changed, path)["stray"] = "value"
        assert validator.is_valid(changed) == (path[:1] == ("config",)), path


def test_schema_and_reader_name_every_missing_key(
    make_record: Make, validator: jsonschema.Draft202012Validator, tmp_path: Path
) -> None:
    record = make_record(sizes=(3, 1), nearest_mean=True)
    free = {("phases", 0, "loss"), ("phases", 1, "loss")}
    for path in every_object(record):
        for key in () if path in free or path[:1] == ("config",) else at(record, path):
            changed = copy.deepcopy(record)
            del at(changed, path)[key]
            assert not validator.is_valid(changed), (path, key)
            (tmp_path / "record.json").write_text(json.dumps(changed))
            with pytest.raises(UserError, match=rf"record\.json: .*{key}"):
                records.read_record(tmp_path)


def test_summary_is_worked_out_from_the_phases(make_record: Make) -> None:
    record = make_record(sizes=(3, 1, 2), nearest_mean=True)  # 80, 76, 72 percent
    assert record["summary"]["head"] == {
        "average_incremental_accuracy": 76.0,
        "last_accuracy": 72.0,
        "forgetting": 6.0,
        "forgetting_by_phase": [8.0, 4.0],
    }
    assert record["summary"]["nearest_mean"] is not None
    assert record["summary"]["nearest_mean"]["last_accuracy"] == 71.0
    record["phases"][1]["accuracy"]["nearest_mean"] = None
    assert records.summarise(record["phases"])["nearest_mean"] is None


def test_sparse_confusion_gives_the_matrix_back(make_record: Make) -> None:
    phase = make_record(sizes=(3, 1))["phases"][1]
    sparse, full = phase["confusion"], np.zeros((4, 4), dtype=np.int64)
    full[sparse["true"], sparse["predicted"]] = sparse["count"]
    assert np.trace(full) * 100 / full.sum() == phase["accuracy"]["head"]
    assert full.sum() == phase["test_images"] == 400


def test_round_trip_and_lists_on_one_line(make_record: Make, tmp_path: Path) -> None:
    record = make_record(
        config={"out": "ü", "lr": [0.1, 1e-9], "nested": {"empty": {}, "none": None, "l": [[1], []]}}
    )
    path = tmp_path / "new" / "folder" / "record.json"
    records.write_record(path, record)
    assert records.read_record(path) == records.read_record(path.parent) == record
    assert list(path.parent.iterdir()) == [path]
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 400  # thousands, were every number on its own line
    assert any(line.startswith('    "per_class": [20, 20, 20') for line in lines)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_not_a_number_is_refused_and_the_place_named(make_record: Make, tmp_path: Path, bad: float) -> None:
    record = make_record()
    record["phases"][2]["loss"]["train"][1] = bad
    with pytest.raises(UserError, match=r"phases\[2\]\.loss\.train\[1\]"):
        records.write_record(tmp_path / "record.json", record)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(
    make_record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    records.write_record(path, make_record(seed=1))

    def fail(*_: object) -> None:
        raise OSError("disk full")

    for step in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            with pytest.raises(OSError, match="disk full"):
                records.write_record(path, make_record(seed=2))
        assert list(tmp_path.iterdir()) == [path]
        assert records.read_record(path)["seed"] == 1


NOT_FINITE = ("NaN", "-Infinity", "1e999")


def test_reading_says_what_is_wrong(make_record: Make, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    with pytest.raises(UserError, match=r"record\.json: no record"):
        records.read_record(tmp_path)
    for text, message in [
        ("{half", "not JSON"),
        ("[1]", "not a record"),
        (json.dumps({**make_record(), "schema_version": 7}), "schema_version is 7, this phasezero reads 1"),
        (json.dumps({**make_record(), "phases": "none"}), "phases should be array"),
        (json.dumps({**make_record(), "phases": []}), "phases is empty"),
        (json.dumps({**make_record(), "seed": True}), "seed should be integer"),
        (json.dumps({**make_record(), "initial": [5]}), r"initial\[0\] should be string"),
        ('{"a":' * 200_000, "not JSON"),
        *((json.dumps(make_record()).replace("80.0", number), "no finite number") for number in NOT_FINITE),
        (
            json.dumps({**make_record(), "phases": make_record()["phases"][:-1]}),
            "summary.head is not that of",
        ),
    ]:
        path.write_text(text)
        with pytest.raises(UserError, match=message) as caught:
            records.read_record(path)
        assert str(path) in str(caught.value)


def test_a_file_that_no_machine_could_hold_is_not_read(
    make_record: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.write_record(tmp_path / "record.json", make_record())
    monkeypatch.setattr(jsonfile, "MOST_BYTES", 1 << 10)
    with pytest.raises(UserError, match=r"record\.json: larger than 0 MiB"):
        records.read_record(tmp_path)


def damaged(record: Record, path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a dotted path."""
    changed: Any = copy.deepcopy(record)
    *parents, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    at(changed, tuple(parents))[last] = value
    return dict(changed)


DAMAGE = [
    ("summary.head.last_accuracy", 99.0, "summary.head is not that of its phases"),
    ("summary.head.average_incremental_accuracy", 76.01, "summary.head is not that of its phases"),
    ("summary.head.forgetting", -50.0, "summary.head is not that of its phases"),
    ("summary.head.forgetting", None, "summary.head is not that of its phases"),
    ("summary.head.forgetting_by_phase", [8.0], "summary.head is not that of its phases"),
    ("summary.nearest_mean", None, "summary.nearest_mean is not that of its phases"),
    ("phases.1.by_phase.head", [], r"phases\[1\].by_phase.head has 0 entries and should have 2"),
    ("phases.2.by_phase.head", [1.0] * 4, r"phases\[2\].by_phase.head has 4 entries and should have 3"),
    ("phases.0.confusion.true", [0], r"phases\[0\].confusion.true has 1 entries"),
    ("phases.0.confusion.predicted", [0], r"phases\[0\].confusion.predicted has 1 entries"),
    ("phases.0.confusion.true.0", 3, r"phases\[0\].confusion.true has a class that was not seen"),
    ("phases.0.confusion.true.0", -1, r"confusion.true\[0\] should be at least 0"),
    ("phases.2.memory.per_class.3", -1, r"memory.per_class\[3\] should be at least 0"),
    ("phases.2.by_phase.head.1", 100.5, r"by_phase.head\[1\] should be at most 100"),
    ("phases.0.accuracy.head", 100.5, "accuracy.head should be at most 100"),
    ("phases.0.accuracy.head", 10**400, "a whole number of 401 digits"),
    ("phases.0.seconds.train", "long", "seconds.train should be number"),
    ("data.class_order_indices", [0], "data.class_order_indices has 1 entries and should have 6"),
    ("data.class_names", ["one"], "data.class_names has 1 entries and should have 6"),
    ("config.initial", ["cwd"], r"config.initial\[0\] should be object"),
    ("config.initial", [{"weight": 0.5}], r"missing key 'config.initial\[0\].name'"),
    ("config.method", "lucir", "config.method should be object"),
    ("config.engine", "captured", "config.engine should be object"),
    ("name", "a\x1b[2Jb", "name has a character that cannot be printed"),
    ("name", "a\rb", "name has a character that cannot be printed"),
    ("data.class_names.0", "\ud800", r"data.class_names\[0\] has a character that cannot be printed"),
    ("config.protocol.memory", "\x9b2J", "config.protocol.memory has a character that cannot be printed"),
    ("config.further", {"\x1b[2J": 1}, r"the key '\\x1b\[2J' has a character that cannot be printed"),
]


@pytest.mark.parametrize(("path", "value", "message"), DAMAGE, ids=[path for path, _, _ in DAMAGE])
def test_damage_is_named_by_its_place(
    make_record: Make, tmp_path: Path, path: str, value: Any, message: str
) -> None:
    record = make_record(sizes=(3, 1, 2), nearest_mean=True, initial=["cwd:0.5"])
    (tmp_path / "record.json").write_text(json.dumps(damaged(record, path, value)))
    with pytest.raises(UserError, match=rf"record\.json: .*{message}"):
        records.read_record(tmp_path)


def test_a_summary_may_be_rounded_otherwise(make_record: Make, tmp_path: Path) -> None:
    record = make_record(sizes=(3, 1, 2))
    record["summary"]["head"]["average_incremental_accuracy"] += 1e-9
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert records.read_record(tmp_path) == record


def test_load_records_takes_files_run_folders_and_trees_once_each(make_record: Make, tmp_path: Path) -> None:
    for seed in range(3):
        records.write_record(
            tmp_path / "grid" / str(seed) / "record.json", make_record(seed=seed, sizes=(2, 1))
        )
    (tmp_path / "empty").mkdir()
    paths = [tmp_path / "grid" / "1", tmp_path / "grid" / "2" / "record.json", str(tmp_path / "grid")]
    heard: list[str] = []
    found = records.load_records(paths, heard.append)
    assert [(path.parent.name, record["seed"]) for path, record in found] == [("1", 1), ("2", 2), ("0", 0)]
    assert heard == []
    (tmp_path / "link").symlink_to(tmp_path / "grid")
    assert len(records.load_records([tmp_path / "grid", tmp_path / "link"], heard.append)) == 3
    with pytest.raises(UserError, match=r"empty: no record\.json"):
        records.load_records([tmp_path / "empty"], heard.append)
    with pytest.raises(UserError, match="nowhere"):
        records.load_records([tmp_path / "nowhere"], heard.append)


def test_a_damaged_record_stops_only_those_who_named_it(make_record: Make, tmp_path: Path) -> None:
    for seed in range(2):
        records.write_record(tmp_path / str(seed) / "record.json", make_record(seed=seed, sizes=(2, 1)))
    damaged = tmp_path / "0" / "record.json"
    damaged.write_text(damaged.read_text()[:100])
    heard: list[str] = []
    found = records.load_records([tmp_path], heard.append)
    assert [record["seed"] for _, record in found] == [1]
    (complaint,) = heard
    assert str(damaged) in complaint
    assert "not JSON" in complaint
    for named in (damaged, damaged.parent):
        with pytest.raises(UserError, match="not JSON"):
            records.load_records([tmp_path, named], heard.append)
    (tmp_path / "1" / "record.json").unlink()
    with pytest.raises(UserError, match=r"no record\.json that can be read"):
        records.load_records([tmp_path], heard.append)


def test_class_hash_depends_on_order_and_boundaries() -> None:
    # Fixed: sha256 of ["n01","n02"] as compact JSON, by another program.
    assert records.class_hash(["n01", "n02"]).startswith("5f295ee604ac0ef3")
    hashes = {records.class_hash(ids) for ids in (["a", "b"], ["b", "a"], ["ab"], ["a,b"], ['a","b'])}
    assert len(hashes) == 5
    assert records.class_hash([1, 2]) == records.class_hash(["1", "2"])


def test_comparable_part_ignores_clock_machine_and_folder_only(make_record: Make) -> None:
    one, two = make_record(), make_record()
    two["timing"]["seconds_total"] = 99.0
    two["timing"]["since_start"] = 123.0
    two["phases"][0]["gpu"] = {"peak_memory_mib": 900.5, "capture_seconds": 3.0}
    jsonschema.validate(two, records.schema())
    two["phases"][0]["seconds"]["train"] = 99.0
    two["environment"]["device_name"] = "another"
    assert records.comparable_part(one) == records.comparable_part(two)
    two["phases"][0]["loss"]["train"][0] += 1e-12
    assert records.comparable_part(one) != records.comparable_part(two)
    assert "seconds" in one["phases"][0]  # the record itself is left alone
