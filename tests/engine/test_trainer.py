"""The training loop is reproducible and complete."""

from __future__ import annotations

import gc
import itertools
import json
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from phasezero import UserError
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.loader import FULL_LIGHT
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import Trainer
from phasezero.records.jsonfile import load_schema
from phasezero.records.run import comparable_part
from samples import Diary, Make, train


def test_the_same_seed_gives_the_same_record_and_another_seed_another(toy_config: Make, toy_data: ImageData) -> None:
    """Torch's global generator is neither used nor moved."""
    config, records = toy_config(), []
    for seed in (5, 6):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        records.append(train(config, data=toy_data))
        assert torch.equal(torch.get_rng_state(), before)
    first, second = records
    assert json.dumps(comparable_part(first)) == json.dumps(comparable_part(second))
    other = train(replace(config, seed=1), data=toy_data)
    assert other["phases"][0]["loss"] != first["phases"][0]["loss"]
    assert other["data"]["class_hash"] == first["data"]["class_hash"]  # the seed does not move the order


def test_weights_of_each_phase_and_seed_are_drawn_anew(toy_config: Make, toy_data: ImageData) -> None:
    def drawn(seed: int) -> list[torch.Tensor]:
        """Return the convolutions, and the weights of each phase's two classes, as they are before any training."""
        untrained = {f"training__{which}__epochs": 0 for which in ("first", "later")}
        config = toy_config("finetune/glyphs/b50s10", protocol__phase_sizes=[2, 2, 2], seed=seed, **untrained)
        trainer = Trainer(config, toy_data)
        assert len(list(trainer.run())) == trainer.phases_done == 3
        convolutions = [one.detach() for one in trainer.model.backbone.parameters() if one.ndim == 4]
        return [*convolutions, *(block.detach() for block in trainer.model.head.blocks)]

    first = drawn(0)
    assert not any(torch.equal(*pair) for pair in itertools.combinations(first[-3:], 2))
    assert all(torch.equal(*pair) for pair in zip(drawn(0), first, strict=True))
    assert not any(torch.equal(*pair) for pair in zip(drawn(1), first, strict=True))


def test_the_images_of_phase_0_are_part_of_every_later_hash(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_config(), toy_data)
    images = np.array(toy_data.train.images)
    images[toy_data.train.labels == trainer.stream.order[0]] += 1
    changed = Trainer(toy_config(), replace(toy_data, train=replace(toy_data.train, images=images)))
    for phases in (1, 2, 3):
        assert trainer.images_hash(phases) != changed.images_hash(phases)


def test_a_record_is_complete_and_fits_the_schema(toy_config: Make, toy_data: ImageData) -> None:
    diary, config = Diary(), toy_config()
    record = train(config, data=toy_data, callback=diary)
    jsonschema.Draft202012Validator(load_schema("run")).validate(json.loads(json.dumps(record)))
    assert list(record) == load_schema("run")["required"]  # in this order

    written = RunConfig.from_dict(record["config"])
    assert replace(written, name="") == replace(config, name="")
    assert record["initial"] == ["cwd:0.1"]
    assert [phase["seen_classes"] for phase in record["phases"]] == [4, 6, 8]
    # New images, and three exemplars of each class known before.
    assert [phase["train_images"] for phase in record["phases"]] == [4 * 14, 2 * 14 + 12, 2 * 14 + 18]
    assert [phase["test_images"] for phase in record["phases"]] == [24, 36, 48]
    assert record["phases"][-1]["memory"] == {"per_class": [3] * 8, "total": 24}
    assert diary.epochs == [(phase, "train", epoch) for phase in range(3) for epoch in range(2)]
    assert diary.total == diary.images == 2 * (56 + 40 + 46)
    in_phases = sum(phase["seconds"]["total"] for phase in record["phases"])
    assert 0 < in_phases <= record["timing"]["seconds_total"] <= record["timing"]["since_start"]


def test_accuracies_are_those_of_the_predictions(toy_config: Make, toy_data: ImageData) -> None:
    diary = Diary()
    record = train(toy_config(), data=toy_data, callback=diary)
    assert [result.record for result in diary.results] == record["phases"]
    for result in diary.results:
        truth, by = result.predictions
        assert set(by) == {"head", "nearest_mean"}  # LUCIR's head corrects no bias
        for classifier, answers in by.items():
            right = sum(int(a == b) for a, b in zip(truth, answers, strict=True))
            assert result.record["accuracy"][classifier] == 100 * right / len(truth)
        assert result.record["accuracy"]["uncorrected"] is None
        assert set(truth) == set(range(result.phase.seen))


def test_training_learns(toy_config: Make, toy_data: ImageData) -> None:
    (phase,) = train(toy_config(protocol__phase_sizes=[4], training__first__epochs=12), data=toy_data)["phases"]
    assert phase["accuracy"]["head"] > 70  # chance is 25
    assert phase["loss"]["train"][-1] < phase["loss"]["train"][0]


def test_cwd_changes_phase_zero_by_its_weight(toy_config: Make, toy_data: ImageData) -> None:
    def losses(name: str = "lucir+cwd/glyphs/b50s10", **settings: Any) -> list[float]:
        config = toy_config(name, protocol__phase_sizes=[4], **settings)
        return train(config, data=toy_data)["phases"][0]["loss"]["train"]

    plain = losses("lucir/glyphs/b50s10")
    assert losses(initial__0__weight=0.0) == pytest.approx(plain)  # nothing is left of it but rounding
    assert losses(initial__0__weight=0.5)[0] > plain[0] + 0.05


def test_losses_are_means_over_images(toy_config: Make, toy_data: ImageData) -> None:
    """The loss of a network that learns next to nothing is near the logarithm of its four classes."""
    config = toy_config("finetune/glyphs/b50s10", protocol__phase_sizes=[4], training__first__lr=1e-9)
    assert train(config, data=toy_data)["phases"][0]["loss"]["train"] == pytest.approx([np.log(4)] * 2, abs=1)


def test_a_total_memory_shrinks_and_no_memory_has_no_nearest_mean(toy_config: Make, toy_data: ImageData) -> None:
    record = train(toy_config(protocol__memory="total:25"), data=toy_data)
    assert [set(phase["memory"]["per_class"]) for phase in record["phases"]] == [{6}, {4}, {3}]
    none = train(toy_config(protocol__memory="per_class:0"), data=toy_data)
    assert none["phases"][1]["train_images"] == 28
    assert none["summary"]["nearest_mean"] is None


def test_train_images_are_those_of_the_main_stage(toy_config: Make, toy_data: ImageData) -> None:
    phases = train(toy_config(method__imprint=True, method__balanced_epochs=2), data=toy_data)["phases"]
    assert [list(phase["loss"]) for phase in phases] == [["train"], ["train", "balance"], ["train", "balance"]]
    assert len(phases[1]["loss"]["balance"]) == 2
    assert phases[1]["train_images"] == 2 * 14 + 4 * 3


def test_what_cannot_run_is_refused(toy_config: Make, toy_data: ImageData) -> None:
    with pytest.raises(
        UserError, match=r"per_class:15: class 'bar \d' has only 14 .* at most per_class:14, or use total"
    ):
        Trainer(toy_config(protocol__memory="per_class:15"), toy_data)
    all_images = 8 * 14
    Trainer(toy_config(protocol__memory=f"total:{all_images}"), toy_data)
    with pytest.raises(
        UserError, match=f"there are only {all_images} training images; keep at most total:{all_images}"
    ):
        Trainer(toy_config(protocol__memory=f"total:{all_images + 1}"), toy_data)
    for setting in ({"engine.engine": "captured"}, {"engine.precision": "tf32"}, {"engine.device": "gpu7"}):
        with pytest.raises(UserError, match=next(iter(setting))):
            Trainer(toy_config(engine__device="cpu").override(setting), toy_data)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_like_float32(precision: str, toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config(engine__device="cpu", protocol__phase_sizes=[4])
    full = train(config, data=toy_data)["phases"][0]["loss"]["train"]
    half = train(config.override({"engine.precision": precision}), data=toy_data)["phases"][0]["loss"]["train"]
    assert half == pytest.approx(full, rel=0.05)  # rounding, not another course
    assert half != full


class Steps:
    """Record what every step of a run was given: its learning rate and its plan."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rates: list[float] = []
        self.plans: list[torch.Tensor] = []
        as_given = StepProgram.run

        def watched(program: StepProgram, plan: tuple[torch.Tensor, ...]) -> None:
            self.rates.append(float(program.learning_rate))
            self.plans.append(plan[0].clone())
            as_given(program, plan)

        monkeypatch.setattr(StepProgram, "run", watched)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def test_each_epoch_has_the_rate_of_its_phases_schedule(toy_config: Make, toy_data: ImageData, steps: Steps) -> None:
    config = toy_config(protocol__phase_sizes=[4, 2], protocol__memory="per_class:2")
    first = {"epochs": 4, "milestones": [1, 3], "lr": 0.1, "batch_size": 28}
    later = {"epochs": 3, "milestones": [2], "lr": 0.02, "decay": 0.5, "batch_size": 36}
    schedules = {"training.first": first, "training.later": later}
    settings = {f"{which}.{key}": value for which, keys in schedules.items() for key, value in keys.items()}
    train(config.override(settings), data=toy_data)
    # 4 classes of 14 images are two batches of 28; 2 of 14 and 4 of 2 exemplars are one of 36.
    expected = [rate for rate in (0.1, 0.01, 0.01, 0.001) for _ in range(2)] + [0.02, 0.02, 0.01]
    assert steps.rates == pytest.approx(expected, rel=1e-6)


def test_each_epoch_draws_anew(toy_config: Make, toy_data: ImageData, steps: Steps) -> None:
    """Every image comes once an epoch, in another order, cropped and flipped otherwise."""
    train(toy_config(protocol__phase_sizes=[4], training__first__batch_size=56), data=toy_data)
    one, two = steps.plans
    assert sorted(one[0].tolist()) == sorted(two[0].tolist()) == sorted(set(one[0].tolist()))
    assert one[0].tolist() != two[0].tolist()
    by_image = [{int(column[0]): column[1:].tolist() for column in plan.T} for plan in (one, two)]
    differing = sum(by_image[0][image] != by_image[1][image] for image in by_image[0])
    assert differing > len(by_image[0]) / 2
    assert one.shape[0] == 4  # image, top, left, flip


def test_each_phase_draws_anew(toy_config: Make, toy_data: ImageData, steps: Steps) -> None:
    settings = {"protocol__phase_sizes": [2, 2], "protocol__memory": "per_class:0"}
    short = {"batch_size": 28, "epochs": 1}
    epoch = {f"training__{which}__{key}": n for which in ("first", "later") for key, n in short.items()}
    train(toy_config("finetune/glyphs/b50s10", **settings, **epoch), data=toy_data)
    first, second = steps.plans
    assert first.shape == second.shape == (4, 28)
    assert first[1:].tolist() != second[1:].tolist()


def test_brightness_reaches_the_batches(toy_config: Make, toy_data: ImageData, steps: Steps) -> None:
    train(toy_config(protocol__phase_sizes=[4], training__brightness=0.25), data=toy_data)
    light = torch.cat([plan[4] for plan in steps.plans]).double() / FULL_LIGHT
    assert 0.75 <= light.min() < 0.85
    assert 1.15 < light.max() <= 1.25


def live_bytes() -> int:
    """Return the size of all tensors that Python can reach and that are not frozen, each storage counted once."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


@pytest.mark.parametrize("method", ["lucir", "podnet", "bic"])
def test_memory_grows_by_class_weights_and_exemplars_alone(method: str, toy_config: Make, toy_data: ImageData) -> None:
    settings = {"protocol__phase_sizes": [2, 1, 1, 1, 1], "protocol__memory": "per_class:2"}
    gc.freeze()  # what was there before is not looked at: there is a lot of it
    trainer = Trainer(toy_config(f"{method}/glyphs/b50s10", **settings), toy_data)
    after = [live_bytes() for _ in trainer.run()]
    gc.unfreeze()
    assert min(after) > 100_000
    growth = [later - earlier for earlier, later in itertools.pairwise(after)][1:]  # phase 1 brings the teacher
    a_class = max(block.numel() for block in trainer.model.head.blocks[1:]) * 4
    assert max(growth) <= 2 * a_class + 4096, growth  # the model's and the teacher's; a few indices and counts
