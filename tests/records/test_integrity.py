"""Damage: the digest of a JSON file, and facts of records and analyses that must agree, also without a digest."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phasezero.errors import UserError
from phasezero.records import jsonfile, run as records
from phasezero.records.analysis import read_analysis
from samples import make_analysis

Path_ = tuple[Any, ...]
VERSIONS = Path(__file__).parent / "versions"


@pytest.fixture
def record() -> Any:
    return json.loads((VERSIONS / "1.json").read_text())


def leaves(value: Any, where: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    if isinstance(value, dict | list):
        for key, entry in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(entry, (*where, key))
    else:
        yield where, value


def changed_at(value: Any, where: Path_, new: Any) -> Any:
    changed = copy.deepcopy(value)
    node = changed
    for key in where[:-1]:
        node = node[key]
    node[where[-1]] = new
    return changed


def others(value: Any) -> Any:
    """Another value of the same type, as a person or a flipped bit would make it."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.9 if value else 0.5
    return 1.0 if value is None else f"{value}x"


def accepted(value: Any, folder: Path, read: Any) -> set[str]:
    """The places of a file where a changed value is not noticed; numbers of list entries become #."""
    found, path = set(), folder / "file.json"
    for where, leaf in leaves(value):
        path.write_text(json.dumps(changed_at(value, where, others(leaf))))
        try:
            read(path)
        except UserError:
            continue
        found.add(".".join("#" if isinstance(key, int) else key for key in where))
    return found


def test_the_digest_is_that_of_the_sorted_compact_content(record: Any, tmp_path: Path) -> None:
    record["name"] = record["config"]["name"] = "größer"
    records.write_record(tmp_path / "r", record)
    written = json.loads((tmp_path / "r").read_text(encoding="utf-8"))
    *_, last = written
    assert last == jsonfile.DIGEST == "content_sha256"
    given = written.pop(last)
    text = json.dumps(written, sort_keys=True, separators=(",", ":"))
    assert given == hashlib.sha256(text.encode()).hexdigest()
    # Spaces, escapes and the order of keys do not count.
    (tmp_path / "r").write_text(json.dumps({last: given, **written}, indent=4, ensure_ascii=True))
    assert records.read_record(tmp_path / "r") == record


def test_every_changed_value_of_a_new_file_is_noticed(record: Any, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    records.write_record(path, record)
    assert accepted(json.loads(path.read_text()), tmp_path, records.read_record) == set()
    path.write_text(path.read_text().replace('"margin": 0.5', '"margin": 0.6'))
    with pytest.raises(UserError, match=r"record\.json: the content was changed or damaged after it was written"):
        records.read_record(path)


def test_a_flipped_bit_is_an_error_or_no_change(record: Any, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    records.write_record(path, record)
    content, read = path.read_bytes(), 0
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
        try:
            found: Any = records.read_record(path)
        except UserError:
            continue
        found.pop("content_sha257", None)
        read += 1
        assert {key: found[key] for key in record} == record
    assert read < len(content) / 70  # spaces between values, and the name of the digest


UNDETERMINED = re.compile(
    r"config\.(protocol\.(data|base|step|memory|selection)|network|method|training|engine|initial\.#\.(?!name|weight))"
    r"|data\.(name|class_names\.#|class_order_indices\.#|train_images)$"
    r"|phases\.#\.(train_images|loss\..*|confusion\.predicted\.#|gpu\..*)$"
    r"|timing\..*|environment\.(?!phasezero)"
)
"""What nothing else in a record determines: settings, names, losses, times, the machine, and which wrong class was
predicted."""


def test_an_old_record_accepts_only_what_nothing_else_determines(record: Any, tmp_path: Path) -> None:
    found = accepted(record, tmp_path, records.read_record)
    assert {place for place in found if not UNDETERMINED.match(place)} == set()
    assert "phases.#.loss.train.#" in found


CONTRADICTIONS: list[tuple[Path_, Any, str]] = [
    (("seed",), 7, "seed is 7, but config has 0"),
    (("name",), "another", "name is 'another', but config has"),
    (("method",), "podnet", "method is 'podnet', but config has 'lucir'"),
    (("initial",), [], "config.initial differs"),
    (("phasezero",), "9.9", "phasezero is '9.9', but environment has"),
    (("data", "class_hash"), "0" * 64, "data.class_hash is not the hash of data.class_ids"),
    (("data", "class_order_indices", 0), 56, "data.class_order_indices names a class twice"),
    (("phases", 1, "phase"), 2, r"phases\[1\].phase is 2 and should be 1"),
    (("phases", 1, "seen_classes"), 5, r"phases\[1\].seen_classes is 5 and should be 4"),
    (("phases", 2, "train_images"), 10**6, r"phases\[2\].train_images is 1000000, but the data has"),
    (("phases", 2, "memory", "total"), 1, r"phases\[2\].memory.total is 1, but memory.per_class adds up to 18"),
    (("phases", 0, "seconds", "total"), 1e5, r"phases\[0\].seconds.total is 100000, but its parts add up to"),
    (("phases", 0, "accuracy", "head"), 12.5, r"phases\[0\].accuracy.head contradicts confusion"),
    (("phases", 1, "by_phase", "head", 0), 12.5, r"phases\[1\].by_phase.head contradicts confusion"),
    (("phases", 1, "accuracy", "nearest_mean"), 12.5, "accuracy.nearest_mean contradicts by_phase.nearest_mean"),
    (("phases", 1, "by_phase", "nearest_mean", 0), 12.34, "by_phase.nearest_mean is no share of the phase's test"),
    (("phases", 1, "by_phase", "nearest_mean"), None, "should both be null, or neither"),
    (("phases", 0, "confusion", "count", 0), 10**30, "confusion.count is larger than data.test_images"),
    (("phases", 0, "confusion", "count", 0), 0, "confusion has an empty entry"),
    (("phases", 2, "test_images"), 3, r"phases\[2\].test_images is 3, but confusion has"),
    (("data", "test_images"), 10**300 - 1, "data.test_images is .*, but the last phase has"),
]


@pytest.mark.parametrize(("where", "value", "message"), CONTRADICTIONS, ids=[case[2][:40] for case in CONTRADICTIONS])
def test_a_contradiction_is_named(record: Any, tmp_path: Path, where: Path_, value: Any, message: str) -> None:
    (tmp_path / "record.json").write_text(json.dumps(changed_at(record, where, value)))
    with pytest.raises(UserError, match=rf"record\.json: .*{message}"):
        records.read_record(tmp_path)


def test_a_count_moved_to_another_class_contradicts_the_other_phases(record: Any, tmp_path: Path) -> None:
    """The sum stays, so only the number of test images of each class tells."""
    pairs = record["phases"][2]["confusion"]
    one, other = (next(at for at, label in enumerate(pairs["true"]) if label == wanted) for wanted in (0, 1))
    pairs["count"][one] += 1
    pairs["count"][other] -= 1
    (tmp_path / "record.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"phases\[2\].confusion has \d+ test images of class 0, and \d+ in an earlier"):
        records.read_record(tmp_path)


ANALYSIS: list[tuple[Path_, Any, str]] = [
    (("seed",), 3, "seed is 3, but config has 0"),
    (("seen_classes",), 3, "seen_classes is 3, but phase_sizes adds up to 4"),
    (("classes", 0), "other", "classes differs from data.class_ids"),
    (("data", "class_hash"), "0" * 64, "data.class_hash is not the hash"),
    (("k", 1), 9, "k is not ascending"),
    (("train", "images", 0), 11, "train.images adds up to 41, but the data has 40"),
    (("train", "raw", "alpha_mean", 0), 0.25, "train.raw.alpha_mean is not the mean of alpha"),
    (("test", "unit", "alpha", 0, 2), 0.01, "test.unit.alpha falls with k"),
    (("train", "raw", "information", "mean"), -301.0, "information.mean is not the mean of information.by_class"),
    (("train", "raw", "information", "unavoidable", 0), 54, "information.unavoidable does not follow"),
    (("train", "raw", "information", "floored", 0), 65, "information.floored has more than 64"),
    (("train", "raw", "spectrum_mean", 1), 0.6, "spectrum_mean is not descending"),
    (("train", "raw", "variance", 1), 0.5, "spectrum_mean adds up to 1, but the mean variance is 0.875"),
    (("points",), {"train": [[[1.0, 0.1, 0.0]]] * 4, "test": [[]] * 4}, "points.train has a point that is not of unit"),
]


@pytest.mark.parametrize(("where", "value", "message"), ANALYSIS, ids=[case[2][:40] for case in ANALYSIS])
def test_a_contradiction_in_an_analysis_is_named(tmp_path: Path, where: Path_, value: Any, message: str) -> None:
    path, made = tmp_path / "analysis-phase0.json", json.loads(json.dumps(make_analysis([0.2, 0.3, 0.4, 0.5])))
    path.write_text(json.dumps(made))
    read_analysis(path)
    path.write_text(json.dumps(changed_at(made, where, value)))
    with pytest.raises(UserError, match=rf"analysis-phase0\.json: .*{message}"):
        read_analysis(path)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a pipe, device"), (tmp_path, "a folder")):
        with pytest.raises(UserError, match=f"no record to read .it is {kind}"):
            jsonfile.read_json(path, "record")
