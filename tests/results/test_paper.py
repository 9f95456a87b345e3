"""The published numbers, against cells read off the printed tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from phasezero.results.paper import published_cells, published_classifier, published_for
from phasezero.results.record import Record

Make = Callable[..., Record]


@pytest.mark.parametrize(
    ("dataset", "method", "cwd", "b", "s", "mean", "std"),
    [
        ("CIFAR100", "LUCIR", False, 50, 10, 66.27, 0.28),
        ("CIFAR100", "lucir", True, 50, 10, 67.26, 0.16),
        ("CIFAR100", "LwF", False, 50, 10, 53.59, 0.51),
        ("CIFAR100", "PODNet", True, 50, 2, 62.24, 0.32),
        ("CIFAR100", "AANet(LUCIR)", True, 50, 5, 68.62, 0.17),
        ("ImageNet100", "BiC", False, 50, 10, 70.07, None),
        ("ImageNet", "LUCIR", True, 100, 100, 57.42, 0.11),
    ],
)
def test_table_1(
    dataset: str, method: str, cwd: bool, b: int, s: int, mean: float, std: float | None
) -> None:
    cell = published_cells().get(("table1_main", dataset, method.lower(), cwd, b, s, 20))
    assert cell is not None
    assert (cell.mean, cell.std, cell.table) == (mean, std, "table1_main")


def test_every_row_is_read_and_named_once() -> None:
    assert Counter(key[0] for key in published_cells()) == {
        "table1_main": 72,
        "table2_ablation_B": 20,
        "table3_ablation_R": 20,
        "table4_decorrelation": 4,
    }
    cell = published_cells()["table3_ablation_R", "ImageNet100", "lucir", True, 50, 5, 40]
    assert cell is not None
    assert cell.mean == 72.06


@pytest.mark.parametrize(
    ("fields", "mean"),
    [
        ({}, 66.27),
        ({"initial": ["cwd:0.5"]}, 67.26),
        ({"method": "lwf"}, 53.59),
        ({"method": "aanet", "initial": ["cwd:0.5"]}, 70.30),
        ({"sizes": (50, *[5] * 10)}, 60.80),
        ({"data": "imagenet100-cwd"}, 70.60),
        ({"data": "imagenet100-cwd", "method": "podnet"}, 75.71),
        ({"data": "imagenet100-cwd", "per_class": 40}, 72.41),  # ablation of R
        ({"data": "imagenet100-cwd", "sizes": (20, *[10] * 8)}, 61.21),  # ablation of B
        ({"data": "imagenet100-cwd", "initial": ["decov"]}, 71.39),  # appendix
        ({"data": "imagenet", "sizes": [100] * 10, "drop": 1}, 56.40),
    ],
)
def test_a_run_finds_its_cell(make_record: Make, fields: dict[str, object], mean: float) -> None:
    cell = published_for(make_record(**fields))
    assert cell is not None
    assert cell.mean == mean


@pytest.mark.parametrize(
    "fields",
    [
        {"data": "glyphs"},
        {"data": "imagenet"},  # a hundred classes are not ImageNet
        {"method": "finetune"},
        {"initial": ["mimic:10"]},
        {"initial": ["cwd:0.5", "decov:1"]},
        {"initial": ["cwd:0.5", "cwd:0.5"]},
        {"sizes": (50, 20, 10, 10, 10)},
        {"sizes": (100,)},
        {"per_class": 10},
        {"per_class": 0},
        {"finished": 3},
        {"initial": ["cwd:0.75"]},  # the paper's coefficient on CIFAR100 is 0.5
        {"initial": ["cwd:0.5"], "data": "imagenet100-cwd"},  # and 0.75 on ImageNet100
        {"method": "lucir-original"},
        {"method": "icarl-sigmoid"},
        {"class_order": "podnet1"},
        {"data": "imagenet100-lucir"},
        {"data": "imagenet100-podnet", "method": "podnet"},
    ],
)
def test_other_runs_find_none(make_record: Make, fields: dict[str, object]) -> None:
    assert published_for(make_record(**fields)) is None


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("training.later.epochs", 159),
        ("training.first.lr", 0.2),
        ("network.name", "resnet32"),
        ("protocol.selection", "random"),
        ("method.lambda_base", 4.0),
    ],
)
def test_one_changed_setting_makes_it_no_cell(make_record: Make, setting: str, value: object) -> None:
    record = make_record()
    *path, last = setting.split(".")
    place: Any = record["config"]
    for key in path:
        place = place[key]
    assert last in place
    assert published_for(record) is not None
    place[last] = value
    assert published_for(record) is None


def test_how_it_was_computed_and_its_name_do_not_matter(make_record: Make) -> None:
    record = make_record(seed=7, name="my own name")
    record["config"]["engine"] |= {"precision": "fp16", "threads": 3}
    assert published_for(record) is not None


def test_a_configuration_of_another_version_is_no_cell(make_record: Make) -> None:
    assert published_for(make_record(config={"protocol": {"memory": "per_class:20"}})) is None
    assert published_for(make_record(config={"no such": 1})) is None


@pytest.mark.parametrize("at_first", [21, 40])  # AANets without its flag: 2,000 in all
def test_a_shrinking_memory_is_not_20_a_class(make_record: Make, at_first: int) -> None:
    record = make_record()
    record["phases"][0]["memory"]["per_class"] = [at_first] * 50
    assert published_for(record) is None


def test_notes_caution_about_other_classes(make_record: Make) -> None:
    def note(**fields: object) -> str:
        cell = published_for(make_record(**fields))
        assert cell is not None
        return cell.note

    assert note() == "reproduced by CwD authors; mean+-std over 3 runs"
    assert "may have used other classes" not in note(data="imagenet100-cwd")
    assert "may have used other classes" in note(data="imagenet100-cwd", method="podnet")


def test_icarl_was_published_with_nearest_mean() -> None:
    assert published_classifier("iCaRL") == "nearest_mean"
    assert published_classifier("lucir") == "head"
