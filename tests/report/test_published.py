"""The published numbers, against cells read off the printed tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from phasezero.report.published import gain, gap, published_cells, published_for
from samples import make_record


def test_every_row_is_read_and_is_as_printed() -> None:
    cells = published_cells()
    sizes = {"table1_main": 72, "table2_ablation_B": 20, "table3_ablation_R": 20, "table4_decorrelation": 4}
    assert Counter(key[0] for key in cells) == Counter(cell.table for cell in cells.values()) == sizes
    printed = {
        ("CIFAR100", "lucir", False, 50, 10): (66.27, 0.28),
        ("CIFAR100", "lucir", True, 50, 10): (67.26, 0.16),
        ("CIFAR100", "lwf", False, 50, 10): (53.59, 0.51),
        ("CIFAR100", "podnet", True, 50, 2): (62.24, 0.32),
        ("CIFAR100", "aanet(lucir)", True, 50, 5): (68.62, 0.17),
        ("ImageNet100", "bic", False, 50, 10): (70.07, None),
        ("ImageNet", "lucir", True, 100, 100): (57.42, 0.11),
    }
    found = {key: cells["table1_main", *key, 20] for key in printed}
    assert {key: (cell.mean, cell.std) for key, cell in found.items()} == printed
    assert cells["table3_ablation_R", "ImageNet100", "lucir", True, 50, 5, 40].mean == 72.06


def test_gap_and_gain() -> None:
    cell = published_cells()["table1_main", "CIFAR100", "lucir", False, 50, 10, 20]
    assert gap([66.0, 67.0], cell) == pytest.approx(0.23)
    assert gain([67.0, 69.0], [66.0, 65.0, 67.0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("fields", "mean"),
    [
        ({}, 66.27),
        ({"initial": ["cwd:0.5"]}, 67.26),
        ({"method": "aanet", "initial": ["cwd:0.5"]}, 70.30),
        ({"sizes": (50, *[5] * 10)}, 60.80),
        ({"data": "imagenet100-cwd"}, 70.60),
        ({"data": "imagenet100-cwd", "method": "podnet"}, 75.71),
        ({"data": "imagenet100-cwd", "per_class": 40}, 72.41),  # ablation of R
        ({"data": "imagenet100-cwd", "sizes": (20, *[10] * 8)}, 61.21),  # ablation of B
        ({"data": "imagenet100-cwd", "initial": ["decov"]}, 71.39),  # appendix
        ({"data": "imagenet", "sizes": [100] * 10, "drop": 1}, 56.40),
        ({"seed": 7, "name": "mine", "settings": {"engine.precision": "fp16", "engine.threads": 3}}, 66.27),
        # None, from here on.
        ({"settings": {"training.later.epochs": 159}}, None),
        ({"settings": {"training.first.lr": 0.2}}, None),
        ({"settings": {"network.name": "resnet32"}}, None),
        ({"settings": {"method.lambda_base": 4.0}}, None),
        ({"data": "glyphs"}, None),
        ({"data": "imagenet"}, None),  # a hundred classes are not ImageNet
        ({"method": "finetune"}, None),
        ({"initial": ["mimic:10"]}, None),
        ({"initial": ["cwd:0.5", "cwd:0.5"]}, None),
        ({"sizes": (50, 20, 10, 10, 10)}, None),
        ({"sizes": (100,)}, None),
        ({"per_class": 10}, None),
        ({"finished": 3}, None),
        ({"initial": ["cwd:0.75"]}, None),  # the paper's coefficient on CIFAR100 is 0.5
        ({"initial": ["cwd:0.5"], "data": "imagenet100-cwd"}, None),  # and 0.75 on ImageNet100
        ({"method": "lucir-original"}, None),
        ({"class_order": "podnet1"}, None),
        ({"data": "imagenet100-podnet", "method": "podnet"}, None),
        ({"config": {"protocol": {"memory": "per_class:20"}}}, None),  # of another version
    ],
)
def test_a_run_finds_its_cell_or_none(fields: dict[str, Any], mean: float | None) -> None:
    cell = published_for(make_record(**fields))
    assert (cell and cell.mean) == mean


def test_notes_caution_about_other_classes() -> None:
    cells = [published_for(make_record(data="imagenet100-cwd", method=one)) for one in ("lucir", "podnet")]
    assert [cell and "may have used other classes" in cell.note for cell in cells] == [False, True]
