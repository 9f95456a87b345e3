"""Callbacks: all get the same calls, and of an oracle only its epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phasezero.data.images import ImageData
from phasezero.engine.callbacks import Callback, CallbackList, ForwardingCallback
from phasezero.engine.setup import check
from phasezero.engine.stage import StagePass
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
    assert [name for name, _ in one.heard if name not in ("on_batch_end", "on_activity")] == names
    (reused,) = next(facts for name, facts in one.heard if name == "on_phase_reused")
    assert {**reused, "seconds": {}} == {**first["phases"][0], "seconds": {}}
    assert [facts[0].phase.seen for name, facts in one.heard if name == "on_phase_end"] == [6, 8]


def test_a_cpu_reports_an_epoch_before_it_starts_the_next(
    toy_data: ImageData, toy_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, epoch = Notes(), StagePass.epoch

    def noted(self: StagePass, number: int, *rest: Any) -> Any:
        notes.forward("trains", number)
        return epoch(self, number, *rest)

    monkeypatch.setattr(StagePass, "epoch", noted)
    train(toy_config(), data=toy_data, callback=notes)
    order = [name for name, _ in notes.heard if name in ("trains", "on_epoch_end")]
    assert order == ["trains", "on_epoch_end"] * 6  # two epochs in each of three phases


def test_a_cpu_reports_every_batch(toy_data: ImageData, toy_config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phasezero.engine.callbacks.REPORT_EVERY", 0.0)
    notes = Notes()
    plain = train(toy_config(), data=toy_data)
    watched = train(toy_config(), data=toy_data, callback=notes)
    assert watched["phases"][2]["confusion"] == plain["phases"][2]["confusion"]
    assert [phase["loss"] for phase in watched["phases"]] == [phase["loss"] for phase in plain["phases"]]
    first = [(name, facts) for name, facts in notes.heard if name in ("on_batch_end", "on_epoch_end")]
    size = toy_config().training.first.batch_size
    seen = [min(start + size, 4 * 14) for start in range(0, 4 * 14, size)]  # 14 images of 4 classes
    assert len(seen) > 1
    batches = first[: len(seen)]
    assert [(name, facts[5]) for name, facts in batches] == [("on_batch_end", images) for images in seen]
    # The mean loss over all batches is that of the epoch, which follows.
    assert first[len(seen)][0] == "on_epoch_end"
    assert batches[-1][1][1:5] == first[len(seen)][1][1:5]


@pytest.mark.parametrize(
    ("method", "first", "second"),
    [
        # 14 images of a new class for its exemplars; 6 test images, and 3 exemplars for the mean, of each class.
        ("finetune", {"exemplars": 4 * 14, "test": 4 * (6 + 3)}, {"exemplars": 2 * 14, "test": 6 * (6 + 3)}),
        # A frozen backbone sees each test image once.
        ("ncm", {"features": 4 * 14, "test": 4 * 6}, {"features": 2 * 14, "test": 2 * 6}),
    ],
)
def test_what_is_evaluated_is_announced_and_reported(
    method: str, first: dict[str, int], second: dict[str, int], toy_data: ImageData, toy_config: Make
) -> None:
    notes, config = Notes(), toy_config(f"{method}/glyphs/b50s10")
    if method == "ncm":
        config = config.override({"protocol.memory": "per_class:0"})
    train(config, data=toy_data, callback=notes)
    found: list[dict[str, int]] = [{}, {}, {}]
    for phase, what, images in (facts for name, facts in notes.heard if name == "on_activity"):
        found[phase.index][what] = found[phase.index].get(what, 0) + images
    assert found[:2] == [first, second]
    assert list(check(config, toy_data).evaluated) == [sum(one.values()) for one in found]


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
