"""How long runs will take, and what of it is done already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine.checkpoint import finished_phases
from phasezero.engine.device import Device, processor_name
from phasezero.paper.estimate import Pace, estimate
from phasezero.paper.plan import Request, missing_runs, plan
from phasezero.paper.reproduce import in_words
from phasezero.presets import preset, with_name
from phasezero.records.run import Record
from samples import train

Make = Callable[..., Record]


def pace_of(config: RunConfig, first: bool, *records: Record) -> tuple[float, bool]:
    """Seconds an image on this machine, and whether the records say so."""
    return Pace(records).of(config, Device.choose(config.engine), first=first)


def lucir_runs(*steps: int) -> list[RunConfig]:
    """LUCIR and LUCIR+CwD with seed 0 on glyphs."""
    return missing_runs(plan(Request(("table1",), ("glyphs",), (0,), ("lucir",), steps)))


def test_estimates_from_records(record_of: Make, tmp_path: Path) -> None:
    order = lucir_runs(10, 5)
    record = record_of(order[0])
    record["environment"]["device_name"] = processor_name()
    record["phases"][0] |= {"seconds": {"total": 20.0}, "train_images": 1000, "loss": {"train": [1.0] * 10}}
    record["phases"][1] |= {"seconds": {"total": 9.0}, "train_images": 500, "loss": {"train": [1.0] * 6}}
    first, later = 20 / (1000 * 10), 9 / (500 * 6)
    # 50 classes of 168 images for 10 epochs; then 10 (or 5) new ones and 20 of each old one, for 2 epochs.
    phase_zero = 50 * 168 * 10 * first
    tens = sum(2 * (10 * 168 + 20 * old) for old in range(50, 100, 10)) * later
    fives = sum(2 * (5 * 168 + 20 * old) for old in range(50, 100, 5)) * later
    found = estimate(order, [record], tmp_path)
    assert [config.name.split("/")[0] for config in order] == ["lucir", "lucir+cwd"] * 2
    assert found.seconds == pytest.approx([phase_zero + tens, phase_zero + tens, fives, fives])
    assert not found.guessed
    assert estimate(order, [], tmp_path).guessed
    assert estimate(order, [{**record, "phases": record["phases"][:1]}], tmp_path).guessed  # later phases are
    assert estimate(order, [record], tmp_path, workers=2).seconds == found.seconds  # each has cores of its own
    assert pace_of(order[0].override({"network.name": "resnet32"}), True, record)[1] is False
    record["config"] = {}  # made elsewhere: the network is not known
    assert pace_of(order[0], True, record)[1] is False


def test_a_shared_phase_0_counts_for_every_run_until_it_is_finished(tmp_path: Path) -> None:
    """LUCIR is to train the phase 0 that AANet takes over; but it may be stopped before."""
    lucir, aanet = (
        preset(f"{method}/glyphs/b50s10").override({"protocol.phase_sizes": [2, 1, 1], "training.first.epochs": 1})
        for method in ("lucir", "aanet")
    )
    before = estimate([lucir, aanet], [], tmp_path)
    phase_zero = 2 * 168 * pace_of(aanet, True)[0]
    phase_one = (168 + 2 * 20) * aanet.training.later.epochs * pace_of(aanet, False)[0]
    assert before.next_phase == pytest.approx([phase_zero, phase_zero])

    store = tmp_path / "store"
    train(lucir, store=store)
    found = estimate([lucir, aanet], [], tmp_path, store=store)
    assert found.next_phase[1] == pytest.approx(phase_one)
    assert found.seconds == pytest.approx([before.seconds[0] - phase_zero, before.seconds[1]])
    assert estimate([replace(aanet, seed=1)], [], tmp_path, store=store).next_phase == pytest.approx([phase_zero])
    for entry in store.glob("*.safetensors"):
        entry.write_bytes(b"damaged")
    assert estimate([aanet], [], tmp_path, store=store).next_phase == pytest.approx([phase_zero])


@pytest.mark.parametrize(("kind", "share"), [("cuda", 3), ("cpu", 1)])
def test_a_gpu_is_shared_by_runs_at_once_and_cores_are_not(
    record_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, share: int
) -> None:
    """A run that had a third of the GPU counts for a third of its seconds; three at once take all of it again."""
    order = lucir_runs(10)
    record = record_of(order[0])
    record["environment"] |= {"device": kind, "device_name": "a machine"}
    machine = SimpleNamespace(description="a machine", torch=torch.device(kind))
    monkeypatch.setattr(Device, "choose", lambda engine: machine)
    alone = estimate(order, [record], tmp_path).seconds
    record["timing"]["share_seconds"] = record["timing"]["seconds_total"] / 3
    assert estimate(order, [record], tmp_path, workers=1).seconds == pytest.approx([s / share for s in alone])
    assert estimate(order, [record], tmp_path, workers=3).seconds == pytest.approx(alone)


def test_a_phase_0_that_may_have_trained_an_oracle_gives_no_pace(record_of: Make) -> None:
    config = preset("lucir+mimic/glyphs/b50s10")
    record = record_of(config)
    record["environment"]["device_name"] = processor_name()
    assert [pace_of(config, first, record)[1] for first in (True, False)] == [False, True]


@pytest.mark.parametrize("done", [1, 2, 5])
def test_finished_phases_cost_nothing(done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("lucir/glyphs/b50s10")
    monkeypatch.setattr("phasezero.paper.estimate.finished_phases", lambda path, config: done)
    images = [10 * 168 + 20 * old for old in range(50 + 10 * (done - 1), 100, 10)]
    left = [config.training.later.epochs * pace_of(config, False)[0] * count for count in images]
    found = estimate([config], [], tmp_path)
    assert (found.seconds, found.next_phase) == (pytest.approx([sum(left)]), pytest.approx([left[0]]))


def test_phases_in_a_checkpoint_are_finished(
    toy_data: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    path, config = tmp_path / "checkpoint.safetensors", with_name(toy_config())
    assert finished_phases(path, config) == 0
    train(config, data=toy_data, checkpoint=path)
    assert [finished_phases(path, one) for one in (config, replace(config, seed=5))] == [3, 0]
    path.write_bytes(b"damaged")
    assert finished_phases(path, config) == 0


def test_an_oracle_is_paid_for_once(tmp_path: Path) -> None:
    """Fig. 1: four of the hundred classes. The oracle is panel b, so only one of the two pays for it."""
    naive, oracle, mimic, _ = (row.seeded(0) for row in plan(Request(("fig1",), ("glyphs",)))[0].rows)
    whole = 4 * 168 * naive.training.first.epochs * pace_of(naive, True)[0]
    alone, with_oracle = (estimate([one], [], tmp_path).seconds[0] for one in (naive, mimic))
    assert with_oracle - alone == pytest.approx(whole)
    assert estimate([oracle, mimic], [], tmp_path).seconds == pytest.approx([whole, alone])


@pytest.mark.parametrize(
    ("seconds", "words"), [(42, "42 s"), (600, "10 min"), (3 * 3600, "3 h"), (300 * 86400, "300 days")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_the_later_phases_of_a_frozen_backbone_are_its_evaluation(tmp_path: Path) -> None:
    config = preset("ncm/glyphs/b50s10", seed=0)
    (alone,) = estimate([config], [], tmp_path).seconds
    first = pace_of(config, True)[0]
    # Five phases of 10 classes: 168 training images of each, and a fifth as many test images, at a third of the cost.
    evaluated = 5 * 10 * (168 + 168 // 5)
    assert alone == pytest.approx(first * (50 * 168 * 10 + evaluated / 3))
