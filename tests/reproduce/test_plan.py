"""What is there already, what is left, in which order, how long it will take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from phasezero.analysis.record import analysis_name, write_analysis
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine.checkpoint import finished_phases
from phasezero.engine.device import Device, processor_name
from phasezero.errors import UserError
from phasezero.experiment import run
from phasezero.presets import preset
from phasezero.reproduce.conduct import Wish, attach, choose_targets, in_words, plan
from phasezero.reproduce.estimate import Pace, estimate
from phasezero.reproduce.plan import (
    Filters,
    Shelf,
    choose_data,
    expand,
    missing_runs,
    phase_zero_of,
    with_records,
)
from phasezero.reproduce.targets import TARGETS
from phasezero.results.record import Record
from samples import analysis_of

Make = Callable[..., Record]
HERE = Path("there/record.json")


def names(shown_lines: object) -> list[str]:
    return [line.config.name for line in shown_lines]  # type: ignore[attr-defined]


def test_filters() -> None:
    (shown,) = plan(Wish(("table1",), ("cifar100",), filters=Filters(("lucir",), (10, 2))))
    assert names(shown.lines) == [
        "lucir/cifar100/b50s10",
        "lucir+cwd/cifar100/b50s10",
        "lucir/cifar100/b50s2",
        "lucir+cwd/cifar100/b50s2",
    ]
    (shown,) = plan(Wish(("table1",), ("cifar100",), filters=Filters(("lucir+cwd", "bic"), (5,))))
    assert names(shown.lines) == ["bic/cifar100/b50s5", "lucir+cwd/cifar100/b50s5"]
    with pytest.raises(UserError, match="nothing is left"):  # DC is in Table 4, S=2 in Table 1
        plan(Wish(("table1", "table4"), ("cifar100",), filters=Filters(("lucir+decov",), (2,))))


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (Filters(("lucir", "foo")), "unknown method here 'foo'"),
        (Filters(("lucir+cdw",)), r"did you mean 'lucir\+cwd'"),
        (Filters(("podnet",)), "unknown method here 'podnet'"),
        (Filters((), (10, 7)), "--step 7: these tables and figures have S=10 or S=5"),
    ],
)
def test_what_no_run_is_called_is_refused(filters: Filters, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(Wish(("table2",), ("cifar100",), filters=filters))


def test_data_named_twice_count_once() -> None:
    assert [shown.data for shown in plan(Wish(("table2",), ("glyphs", "cifar100", "glyphs")))] == [
        "glyphs",
        "cifar100",
    ]


def test_data_and_seeds_are_the_papers_unless_said() -> None:
    assert [shown.data for shown in plan(Wish(("table1",)))] == ["cifar100", "imagenet100-cwd", "imagenet"]
    assert plan(Wish(("table1",)))[0].seeds == (0, 1, 2)
    assert plan(Wish(("fig3",), seeds=(4,)))[0].seeds == (4,)
    assert [target.name for target in choose_targets(["fig5", "table1", "fig5"])] == ["fig5", "table1"]
    assert len(choose_targets(["all"])) == len(TARGETS)
    with pytest.raises(UserError, match="did you mean 'table1'"):
        choose_targets(["tabel1"])
    with pytest.raises(UserError, match="table2 is not defined on 'imagenet'"):
        choose_data(TARGETS["table2"], ["imagenet"])
    with pytest.raises(UserError, match="unknown data set"):
        choose_data(TARGETS["table2"], ["imagenet99"])


def test_a_record_is_known_by_what_moves_its_numbers(record_of: Make) -> None:
    line = expand(TARGETS["table1"], "cifar100", {})[3]
    elsewhere = {"name": "mine", "engine.device": "cpu", "engine.threads": 7, "seed": 1}
    same = record_of(line.config.override(elsewhere))
    changed = record_of(line.config.override({"training.first.lr": 0.05}))
    found = with_records(line, (0, 1, 2), Shelf([(HERE, changed), (HERE, same)]).of(line.config))
    assert list(found.records) == [1]
    assert with_records(line, (0,), Shelf([(HERE, same)]).of(line.config)).records == {}
    exact = replace(line, config=line.config.override({"engine.precision": "tf32"}))
    shelf = Shelf([(HERE, record_of(line.config, precision="bf16"))])
    assert with_records(exact, (0,), shelf.of(exact.config)).records == {}
    assert list(with_records(line, (0,), shelf.of(line.config)).records) == [0]


def test_records_of_settings_that_are_no_more_are_left_alone(record_of: Make) -> None:
    line = expand(TARGETS["table1"], "cifar100", {})[3]
    old = record_of(line.config)
    old["config"]["training"]["nesterov"] = True
    assert with_records(line, (0,), Shelf([(HERE, old)]).of(line.config)).records == {}


def test_what_is_there_is_not_run_again(record_of: Make) -> None:
    wish = Wish(("table4",), ("glyphs",), seeds=(0, 1))
    there = [(HERE, record_of(line.seeded(0))) for line in plan(wish)[0].lines[:3]]
    (shown,) = attach(plan(wish), there)
    left = missing_runs((line, shown.seeds) for line in shown.lines)
    assert [(config.label, config.seed) for config in left] == [
        ("lucir+cwd", 0),
        ("lucir", 1),
        ("lucir+decov", 1),
        ("lucir+sdc", 1),
        ("lucir+cwd", 1),
    ]


def test_figures_of_models_need_the_model_or_its_analysis(record_of: Make, tmp_path: Path) -> None:
    wish = Wish(("fig10",), ("glyphs",))
    config = plan(wish)[0].lines[0].seeded(0)
    record = record_of(config)
    there = [(tmp_path / "record.json", record)]
    assert attach(plan(wish), there)[0].lines[0].records == {}
    write_analysis(
        tmp_path / analysis_name(0), analysis_of(config, [0.5] * 4)
    )  # of another phase than the last
    assert attach(plan(wish), there)[0].lines[0].records == {}
    write_analysis(tmp_path / analysis_name(1), analysis_of(config, [0.5] * 6))
    assert list(attach(plan(wish), there)[0].lines[0].records) == [0]
    (tmp_path / "analysis-phase1.json").rename(tmp_path / "checkpoint.safetensors")
    assert list(attach(plan(wish), there)[0].lines[0].records) == [0]


def test_of_a_seed_in_two_precisions_the_usual_one_is_taken(record_of: Make) -> None:
    wish = Wish(("table4",), ("cifar100",), seeds=(0,))
    lines = plan(wish)[0].lines
    first = record_of(lines[0].seeded(0), precision="bf16")  # first in the folder, but the odd one out
    others = [record_of(line.seeded(0), precision="fp16") for line in lines[:3]]
    only = record_of(lines[3].seeded(0), precision="bf16")
    (shown,) = attach(plan(wish), [(HERE, record) for record in (first, *others, only)])
    used = [line.records[0][1]["environment"]["precision"] for line in shown.lines]
    assert used == ["fp16", "fp16", "fp16", "bf16"]  # where there is no other, it is taken as it is


def test_runs_that_share_phase_0_do_not_start_together() -> None:
    wish = Wish(("table1",), ("glyphs",), seeds=(0,))
    order = missing_runs((line, shown.seeds) for shown in plan(wish) for line in shown.lines)
    assert len(order) == 27
    first = order[:7]
    assert len({phase_zero_of(config) for config in first}) == 7  # LUCIR's is AANet's too
    assert {phase_zero_of(config) for config in order} == {phase_zero_of(config) for config in first}


def test_a_run_of_two_targets_is_run_once() -> None:
    wish = Wish(("table1", "fig5", "table2"), ("glyphs",), seeds=(0,))
    order = missing_runs((line, shown.seeds) for shown in plan(wish) for line in shown.lines)
    # Of Fig. 5 all six are cells of Table 1; of Table 2 LUCIR and LUCIR+CwD at B=50 with S=10 and 5 are.
    assert len(order) == 27 + 20 - 4


def test_estimates_from_records(record_of: Make, tmp_path: Path) -> None:
    wish = Wish(("table1",), ("glyphs",), seeds=(0,), filters=Filters(("lucir",), (10, 5)))
    (shown,) = plan(wish)
    order = missing_runs((line, (0,)) for line in shown.lines)
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
    assert (
        estimate(order, [record], tmp_path, workers=2).seconds == found.seconds
    )  # each has cores of its own
    assert (
        Pace([record]).of(order[0].override({"network.name": "resnet32"}), _device(order[0]), first=True)[1]
        is False
    )
    record["config"] = {}  # made elsewhere: of what network, nobody knows
    assert Pace([record]).of(order[0], _device(order[0]), first=True)[1] is False


def test_what_a_run_begins_with_is_its_whole_phase_zero_until_somebody_has_finished_it(
    tmp_path: Path,
) -> None:
    """LUCIR is to train the phase 0 that AANet takes over; but it may be stopped before."""
    lucir, aanet = (
        preset(f"{method}/glyphs/b50s10").override(
            {"protocol.phase_sizes": [2, 1, 1], "training.first.epochs": 1}
        )
        for method in ("lucir", "aanet")
    )
    before = estimate([lucir, aanet], [], tmp_path)
    (pace, _), (later, _) = (
        Pace([]).of(aanet, Device.choose(aanet.engine), first=one) for one in (True, False)
    )
    phase_zero, phase_one = 2 * 168 * pace, (168 + 2 * 20) * aanet.training.later.epochs * later
    assert before.next_phase == pytest.approx([phase_zero, phase_zero])

    store = tmp_path / "store"
    run(lucir, store=store)
    found = estimate([lucir, aanet], [], tmp_path, store=store)
    assert found.next_phase[1] == pytest.approx(phase_one)
    assert found.seconds == pytest.approx([before.seconds[0] - phase_zero, before.seconds[1]])
    other = replace(aanet, seed=1)
    assert estimate([other], [], tmp_path, store=store).next_phase == pytest.approx([phase_zero])
    for entry in store.glob("*.safetensors"):
        entry.write_bytes(b"damaged")
    assert estimate([aanet], [], tmp_path, store=store).next_phase == pytest.approx([phase_zero])


def test_a_gpu_is_shared_by_runs_at_once(
    record_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of a run that had a third of the GPU tells a third of its seconds; three at once take all again."""
    wish = Wish(("table1",), ("glyphs",), seeds=(0,), filters=Filters(("lucir",), (10,)))
    (shown,) = plan(wish)
    order = missing_runs((line, (0,)) for line in shown.lines)
    record = record_of(order[0])
    record["environment"] |= {"device": "cuda", "device_name": "a GPU"}
    gpu = SimpleNamespace(description="a GPU", torch=torch.device("cuda"))
    monkeypatch.setattr(Device, "choose", lambda engine: gpu)
    alone = estimate(order, [record], tmp_path).seconds
    record["timing"]["share_seconds"] = record["timing"]["seconds_total"] / 3
    assert estimate(order, [record], tmp_path, workers=1).seconds == pytest.approx([s / 3 for s in alone])
    assert estimate(order, [record], tmp_path, workers=3).seconds == pytest.approx(alone)


def test_cores_are_nobody_elses(record_of: Make) -> None:
    """Runs side by side on a CPU took the time that they took, whatever their share."""
    config = preset("lucir/glyphs/b50s10")
    record = record_of(config)
    record["environment"] |= {"device": "cpu", "device_name": processor_name()}
    alone = Pace([record]).of(config, _device(config), first=True)
    record["timing"]["share_seconds"] = record["timing"]["seconds_total"] / 3
    assert Pace([record]).of(config, _device(config), first=True) == alone


def test_a_phase_0_that_may_hold_an_oracles_training_tells_no_pace(record_of: Make) -> None:
    config = preset("lucir+mimic/glyphs/b50s10")
    record = record_of(config)
    record["environment"]["device_name"] = processor_name()
    known = [Pace([record]).of(config, _device(config), first=first)[1] for first in (True, False)]
    assert known == [False, True]


def test_a_later_phase_is_guessed_to_take_longer() -> None:
    configs = [preset(f"{method}/glyphs/b50s10") for method in ("finetune", "aanet")]
    (first, plain), (same, adaptive) = (
        [Pace([]).of(config, _device(config), first=one)[0] for one in (True, False)] for config in configs
    )
    assert first == same < plain < adaptive


@pytest.mark.parametrize("done", [1, 2, 5])
def test_finished_phases_cost_nothing(done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("lucir/glyphs/b50s10")
    monkeypatch.setattr("phasezero.reproduce.estimate.finished_phases", lambda path, config: done)
    pace, _ = Pace([]).of(config, _device(config), first=False)
    images = [10 * 168 + 20 * old for old in range(50 + 10 * (done - 1), 100, 10)]
    left = [config.training.later.epochs * pace * count for count in images]
    found = estimate([config], [], tmp_path)
    assert (found.seconds, found.next_phase) == (pytest.approx([sum(left)]), pytest.approx([left[0]]))


def _device(config: RunConfig) -> Device:
    return Device.choose(config.engine)


def test_an_oracle_is_paid_for_once(tmp_path: Path) -> None:
    (shown,) = plan(Wish(("fig2",), ("glyphs",), seeds=(0,)))
    order = missing_runs((line, (0,)) for line in shown.lines)
    seconds = dict(zip([config.name for config in order], estimate(order, [], tmp_path).seconds, strict=True))
    with_oracle = [name for name in seconds if "mimic" in name and "b50" in name]
    costs = sorted(seconds[name] for name in with_oracle)
    assert costs[-1] > 1.5 * costs[-2]
    assert costs[0] == pytest.approx(costs[2])


def test_an_oracle_knows_the_classes_of_its_run_and_is_the_model_of_all_of_them(tmp_path: Path) -> None:
    """Fig. 1: four of the hundred classes; and the oracle is panel b, so that only one of the two is paid for."""
    (shown,) = plan(Wish(("fig1",), ("glyphs",), seeds=(0,)))
    naive, oracle, mimic, _ = (line.seeded(0) for line in shown.lines)
    pace = Pace([]).of(naive, Device.choose(naive.engine), first=True)[0]
    own, whole = (classes * 168 * naive.training.first.epochs * pace for classes in (2, 4))
    alone, with_oracle = (estimate([one], [], tmp_path).seconds[0] for one in (naive, mimic))
    assert with_oracle - alone == pytest.approx(whole)
    after_oracle = estimate([oracle, mimic], [], tmp_path).seconds
    assert after_oracle == pytest.approx([whole, alone])
    assert alone > own


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_guesses_know_the_network_of_the_sphere(kind: str) -> None:
    """An AlexNet takes CIFAR100's images sooner than a ResNet-18, and glyphs not as the network made for them."""
    device = cast(Device, SimpleNamespace(description="a machine", torch=torch.device(kind)))

    def guess(target: str, data: str) -> float:
        (shown,) = plan(Wish((target,), (data,), seeds=(0,)))
        return Pace([]).of(shown.lines[0].config, device, first=True)[0]

    assert guess("fig1", "cifar100") < guess("fig5", "cifar100")
    assert guess("fig1", "cifar100") == guess("fig1", "glyphs") != guess("fig5", "glyphs")


def test_phases_in_a_checkpoint_are_not_counted(
    toy_data: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    path, config = tmp_path / "checkpoint.safetensors", toy_config()
    assert finished_phases(path, config) == 0
    run(config, data=toy_data, checkpoint=path)
    assert finished_phases(path, config) == 3
    assert finished_phases(path, replace(config, seed=5)) == 0
    path.write_bytes(b"damaged")
    assert finished_phases(path, config) == 0


@pytest.mark.parametrize(("seconds", "words"), [(42, "42 s"), (600, "10 min"), (3 * 3600, "3.0 h")])
def test_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
