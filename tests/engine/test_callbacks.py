"""Callbacks: all get the same calls, and of an oracle only its epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phasezero.data.images import ImageData
from phasezero.engine.callbacks import Callback, CallbackList, ForwardingCallback
from phasezero.methods import METHODS
from samples import Diary, Make, train


class Notes(ForwardingCallback):
    """A callback that keeps every call."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, tuple[Any, ...]]] = []

    def forward(self, name: str, *facts: Any) -> None:
        self.heard.append((name, facts))


def test_all_callbacks_hear_every_call(toy_data: ImageData, toy_config: Make, tmp_path: Path) -> None:
    first = train(toy_config(), data=toy_data, store=tmp_path)
    one, other = Notes(), Notes()
    train(toy_config(), data=toy_data, callback=CallbackList([one, Callback(), other]), store=tmp_path)
    assert one.heard == other.heard
    names = ["on_phase_reused", "on_run_start", *["on_epoch_end", "on_epoch_end", "on_phase_end"] * 2]
    assert [name for name, _ in one.heard] == names
    (reused,) = one.heard[0][1]
    assert {**reused, "seconds": {}} == {**first["phases"][0], "seconds": {}}
    assert [facts[0].phase.seen for name, facts in one.heard if name == "on_phase_end"] == [6, 8]


def test_the_images_heard_of_are_those_announced(toy_data: ImageData, toy_config: Make) -> None:
    diary = Diary()
    train(toy_config("lucir+mimic/glyphs/b50s10"), data=toy_data, callback=diary)
    # 14 images of 4 classes, then of 2 with 3 exemplars of each old class; two epochs each.
    assert diary.images == diary.total == 2 * (4 * 14) + 2 * (2 * 14 + 4 * 3) + 2 * (2 * 14 + 6 * 3)
    assert [stage for _, stage, _ in diary.epochs[:3]] == ["oracle train", "oracle train", "train"]
    assert [result.phase.index for result in diary.results] == [0, 1, 2]


@pytest.mark.parametrize("method", list(METHODS))
def test_stages_after_the_first_count_no_images(method: str, toy_data: ImageData, toy_config: Make) -> None:
    diary = Diary()
    train(toy_config(f"{method}/glyphs/b50s10"), data=toy_data, callback=diary)
    # BiC holds some images out of those announced.
    assert diary.images < diary.total if method == "bic" else diary.images == diary.total
    assert len(diary.results) == 3
