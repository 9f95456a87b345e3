"""The one loop: reproducible and complete."""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from phasezero import UserError, run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.loader import FULL_LIGHT
from phasezero.data.stream import Phase
from phasezero.engine.outcome import PhaseResult
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import Trainer
from phasezero.initial import Workshop
from phasezero.initial.base import Term, TermOptions
from phasezero.presets import build_config
from phasezero.results.record import comparable_part, schema
from samples import Diary

Make = Callable[..., RunConfig]


def test_the_same_seed_gives_the_same_record_and_another_seed_another(
    toy_config: Make, toy_data: ImageData
) -> None:
    config = toy_config()
    first, second = run(config, data=toy_data), run(config, data=toy_data)
    assert json.dumps(comparable_part(first)) == json.dumps(comparable_part(second))
    other = run(replace(config, seed=1), data=toy_data)
    assert other["phases"][0]["loss"] != first["phases"][0]["loss"]
    assert other["data"]["class_hash"] == first["data"]["class_hash"]  # the seed does not move the order


def test_seeds_begin_with_weights_of_their_own(toy_config: Make, toy_data: ImageData) -> None:
    one, same, other = (
        Trainer(toy_config(seed=seed), toy_data).model.backbone.state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(one[name], same[name]) for name in one)
    convolutions = [name for name, weights in one.items() if weights.ndim == 4]
    assert convolutions
    assert not any(torch.equal(one[name], other[name]) for name in convolutions)


def test_class_weights_of_each_phase_and_seed_are_drawn_anew(toy_config: Make, toy_data: ImageData) -> None:
    def drawn(seed: int) -> list[torch.Tensor]:
        """The weights of each phase's two classes, as they are before any training."""
        untrained = {f"training__{which}__epochs": 0 for which in ("first", "later")}
        config = toy_config("finetune/glyphs/b50s10", protocol__phase_sizes=[2, 2, 2], seed=seed, **untrained)
        trainer = Trainer(config, toy_data)
        assert len(list(trainer.run())) == 3
        return [block.detach() for block in trainer.model.head.blocks]

    first, second, third = drawn(0)
    assert not any(torch.equal(*pair) for pair in itertools.combinations((first, second, third), 2))
    assert all(torch.equal(*pair) for pair in zip(drawn(0), (first, second, third), strict=True))
    assert not any(torch.equal(*pair) for pair in zip(drawn(1), (first, second, third), strict=True))


def test_what_was_learned_from_is_known_in_every_later_phase(toy_config: Make, toy_data: ImageData) -> None:
    """A run that goes on after phase 2 stands on the images of phase 0, too."""
    trainer = Trainer(toy_config(), toy_data)
    images = np.array(toy_data.train.images)
    images[toy_data.train.labels == trainer.stream.order[0]] += 1
    changed = Trainer(toy_config(), replace(toy_data, train=replace(toy_data.train, images=images)))
    for phases in (1, 2, 3):
        assert trainer.images_hash(phases) != changed.images_hash(phases)


def test_the_global_generator_is_neither_used_nor_moved(toy_config: Make, toy_data: ImageData) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = run(toy_config(), data=toy_data)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert comparable_part(run(toy_config(), data=toy_data)) == comparable_part(one)


def test_a_record_is_complete_and_fits_the_schema(toy_config: Make, toy_data: ImageData) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    diary = Diary()
    config = toy_config()
    record = run(config, data=toy_data, listener=diary)
    jsonschema.Draft202012Validator(schema()).validate(json.loads(json.dumps(record)))

    assert RunConfig.from_dict(record["config"]) == config
    assert record["initial"] == ["cwd:0.1"]
    assert [phase["seen_classes"] for phase in record["phases"]] == [4, 6, 8]
    # New images, and three exemplars of each class known before.
    assert [phase["train_images"] for phase in record["phases"]] == [4 * 14, 2 * 14 + 12, 2 * 14 + 18]
    assert [phase["test_images"] for phase in record["phases"]] == [24, 36, 48]
    assert record["phases"][-1]["memory"] == {"per_class": [3] * 8, "total": 24}
    assert diary.epochs == [(phase, "train", epoch) for phase in range(3) for epoch in range(2)]
    assert diary.total == diary.images == 2 * (56 + 40 + 46)


def test_accuracies_are_those_of_the_predictions(toy_config: Make, toy_data: ImageData) -> None:
    diary = Diary()
    record = run(toy_config(), data=toy_data, listener=diary)
    for phase, result in zip(record["phases"], diary.results, strict=True):
        truth, head, nearest, uncorrected = result.predictions
        assert uncorrected is None  # LUCIR's head corrects nothing
        assert nearest is not None
        right = sum(int(a == b) for a, b in zip(truth, head, strict=True))
        assert phase["accuracy"]["head"] == 100 * right / len(truth)
        near = sum(int(a == b) for a, b in zip(truth, nearest, strict=True))
        assert phase["accuracy"]["nearest_mean"] == 100 * near / len(truth)
        assert set(truth) == set(range(phase["seen_classes"]))
    average = np.mean([phase["accuracy"]["head"] for phase in record["phases"]])
    assert record["summary"]["head"]["average_incremental_accuracy"] == pytest.approx(average)


def test_training_learns(toy_config: Make, toy_data: ImageData) -> None:
    settings = {f"training.{which}.epochs": 12 for which in ("first", "later")}
    record = run(toy_config().override(settings), data=toy_data)
    assert record["phases"][0]["accuracy"]["head"] > 70  # chance is 25
    losses = record["phases"][0]["loss"]["train"]
    assert losses[-1] < losses[0]


def test_cwd_changes_phase_zero_by_its_weight(toy_config: Make, toy_data: ImageData) -> None:
    plain = run(toy_config("lucir/glyphs/b50s10"), data=toy_data)
    nothing = run(toy_config(initial__0__weight=0.0), data=toy_data)
    with_term = run(toy_config(initial__0__weight=0.5), data=toy_data)
    # Nothing of the weight 0 is left but rounding.
    assert nothing["phases"][0]["loss"]["train"] == pytest.approx(plain["phases"][0]["loss"]["train"])
    assert with_term["phases"][0]["loss"]["train"][0] > plain["phases"][0]["loss"]["train"][0] + 0.05


def test_losses_are_means_over_images(toy_config: Make, toy_data: ImageData) -> None:
    """Of a network that learns next to nothing: near the logarithm of its four classes, however many images."""
    config = toy_config("finetune/glyphs/b50s10", protocol__phase_sizes=[4], training__first__lr=1e-9)
    assert run(config, data=toy_data)["phases"][0]["loss"]["train"] == pytest.approx([np.log(4)] * 2, abs=1)


def test_a_term_is_asked_in_phase_zero_alone(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    begin = Term.__init__

    def watched(term: Term, options: TermOptions, phase: Phase, workshop: Workshop | None = None) -> None:
        made.append(phase.index)
        begin(term, options, phase, workshop)

    monkeypatch.setattr(Term, "__init__", watched)
    assert len(run(toy_config(), data=toy_data)["phases"]) == 3
    assert made == [0]


@pytest.mark.parametrize("sizes", [[5, 1, 1, 1], [3, 4, 1], [1, 7], [8]])
def test_uneven_and_single_class_phases(sizes: list[int], toy_config: Make, toy_data: ImageData) -> None:
    record = run(toy_config(protocol__phase_sizes=sizes), data=toy_data)
    assert [phase["new_classes"] for phase in record["phases"]] == sizes
    assert len(record["phases"][-1]["by_phase"]["head"]) == len(sizes)
    assert (record["summary"]["head"]["forgetting"] is None) == (len(sizes) == 1)


def test_a_total_memory_shrinks_and_no_memory_has_no_nearest_mean(
    toy_config: Make, toy_data: ImageData
) -> None:
    record = run(toy_config(protocol__memory="total:25"), data=toy_data)
    assert [set(phase["memory"]["per_class"]) for phase in record["phases"]] == [{6}, {4}, {3}]
    none = run(toy_config(protocol__memory="per_class:0"), data=toy_data)
    assert none["phases"][1]["train_images"] == 28
    assert none["summary"]["nearest_mean"] is None


def test_the_original_lucirs_switches(toy_config: Make, toy_data: ImageData) -> None:
    settings = {"method.imprint": True, "method.balanced_epochs": 2, "method.balanced_milestones": [1]}
    diary = Diary()
    record = run(toy_config().override(settings), data=toy_data, listener=diary)
    assert "balance" not in record["phases"][0]["loss"]
    assert len(record["phases"][1]["loss"]["balance"]) == 2
    assert record["phases"][1]["train_images"] == 2 * 14 + 4 * 3  # of the main stage, not of the balanced one
    assert record["phases"][2]["memory"]["per_class"] == [3] * 8


def test_lucirs_old_class_weights_do_not_move(toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_config(), toy_data)
    seen: list[list[torch.Tensor]] = []

    class Watch(Diary):
        def phase(self, result: PhaseResult) -> None:
            seen.append([block.detach().clone() for block in trainer.model.head.blocks])

    trainer.listener = Watch()
    list(trainer.run())
    for earlier, later in itertools.pairwise(seen):
        for old, same in zip(earlier, later, strict=False):
            assert torch.equal(old, same)
    assert all(block.grad is None for block in trainer.model.head.blocks)


def test_more_exemplars_than_images_are_refused(toy_config: Make, toy_data: ImageData) -> None:
    with pytest.raises(UserError, match=r"per_class:15: class 'bar \d' has only 14 training images"):
        Trainer(toy_config(protocol__memory="per_class:15"), toy_data)
    all_images = 8 * 14
    Trainer(toy_config(protocol__memory=f"total:{all_images}"), toy_data)
    with pytest.raises(UserError, match=f"there are only {all_images} training images"):
        Trainer(toy_config(protocol__memory=f"total:{all_images + 1}"), toy_data)


def test_what_a_cpu_cannot_do_is_refused(toy_config: Make, toy_data: ImageData) -> None:
    for setting in ({"engine.engine": "captured"}, {"engine.precision": "tf32"}, {"engine.device": "gpu7"}):
        with pytest.raises(UserError, match="engine"):
            Trainer(toy_config(engine__device="cpu").override(setting), toy_data)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_like_float32(precision: str, toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config(engine__device="cpu", protocol__phase_sizes=[4])
    full = run(config, data=toy_data)["phases"][0]["loss"]["train"]
    half = run(config.override({"engine.precision": precision}), data=toy_data)["phases"][0]["loss"]["train"]
    assert half == pytest.approx(full, rel=0.05)  # rounding, not another course
    assert half != full


class Steps:
    """What every step of a run was given: its learning rate and its ticket."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rates: list[float] = []
        self.tickets: list[torch.Tensor] = []
        as_given = StepProgram.run

        def watched(program: StepProgram, ticket: tuple[torch.Tensor, ...]) -> None:
            self.rates.append(float(program.learning_rate))
            self.tickets.append(ticket[0].clone())
            as_given(program, ticket)

        monkeypatch.setattr(StepProgram, "run", watched)


def test_each_epoch_has_the_rate_of_its_phases_schedule(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    config = toy_config(protocol__phase_sizes=[4, 2], protocol__memory="per_class:2")
    first = {"epochs": 4, "milestones": [1, 3], "lr": 0.1, "batch_size": 28}
    later = {"epochs": 3, "milestones": [2], "lr": 0.02, "decay": 0.5, "batch_size": 36}
    schedules = {"training.first": first, "training.later": later}
    settings = {f"{which}.{key}": value for which, keys in schedules.items() for key, value in keys.items()}
    run(config.override(settings), data=toy_data)
    # 4 classes of 14 images are two batches of 28; 2 of 14 and 4 of 2 exemplars are one of 36.
    expected = [rate for rate in (0.1, 0.01, 0.01, 0.001) for _ in range(2)] + [0.02, 0.02, 0.01]
    assert steps.rates == pytest.approx(expected, rel=1e-6)


def test_each_epoch_draws_anew(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every image once an epoch, in another order, cropped and flipped otherwise."""
    steps = Steps(monkeypatch)
    run(toy_config(protocol__phase_sizes=[4], training__first__batch_size=56), data=toy_data)
    one, two = steps.tickets
    assert sorted(one[0].tolist()) == sorted(two[0].tolist()) == sorted(set(one[0].tolist()))
    assert one[0].tolist() != two[0].tolist()
    by_image = [{int(column[0]): column[1:].tolist() for column in ticket.T} for ticket in (one, two)]
    differing = sum(by_image[0][image] != by_image[1][image] for image in by_image[0])
    assert differing > len(by_image[0]) / 2
    assert one.shape[0] == 4  # image, top, left, flip


def test_each_phase_draws_anew(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    settings = {"protocol__phase_sizes": [2, 2], "protocol__memory": "per_class:0"}
    epoch = {
        f"training__{which}__{key}": n
        for which in ("first", "later")
        for key, n in (("batch_size", 28), ("epochs", 1))
    }
    run(toy_config("finetune/glyphs/b50s10", **settings, **epoch), data=toy_data)
    first, second = steps.tickets
    assert first.shape == second.shape == (4, 28)
    assert first[1:].tolist() != second[1:].tolist()


def test_brightness_reaches_the_batches(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(monkeypatch)
    run(toy_config(protocol__phase_sizes=[4], training__brightness=0.25), data=toy_data)
    light = torch.cat([ticket[4] for ticket in steps.tickets]).double() / FULL_LIGHT
    assert 0.75 <= light.min() < 0.85
    assert 1.15 < light.max() <= 1.25


def test_seconds_since_the_start_hold_all_others(toy_config: Make, toy_data: ImageData) -> None:
    record = run(toy_config(engine__device="cpu"), data=toy_data)
    in_phases = sum(phase["seconds"]["total"] for phase in record["phases"])
    assert 0 < in_phases <= record["timing"]["seconds_total"] <= record["timing"]["since_start"]
    assert all("gpu" not in phase for phase in record["phases"])


@pytest.mark.parametrize("photos", ["files", "resident"])
def test_a_folder_of_photos_trains(photos: str, tmp_path: Path, toy_config: Make) -> None:
    rng = np.random.default_rng(0)
    for side, count in (("train", 5), ("val", 2)):
        for name in "abcd":
            (tmp_path / side / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 255, (40 + number, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / side / name / f"{number}.png")
    settings = {
        "protocol.data": f"folder:{tmp_path}",
        "protocol.class_order": [3, 0, 2],
        "protocol.base": 2,
        "protocol.step": 1,
        "training.first.epochs": 1,
        "training.later.epochs": 1,
        "engine.photos": photos,
    }
    record = run(toy_config().override(settings))
    assert record["config"]["engine"]["photos"] == record["environment"]["photos"] == photos
    assert record["data"]["class_names"] == ["d", "a", "c"]
    assert record["phases"][-1]["test_images"] == 6


def live_bytes() -> int:
    """Of all tensors that Python can reach, each storage counted once."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


@pytest.mark.parametrize("method", ["lucir", "podnet", "bic"])
def test_memory_grows_by_class_weights_and_exemplars_alone(method: str, toy_data: ImageData) -> None:
    config = build_config(method, "glyphs", base=2, step=1).override(
        {
            "protocol.phase_sizes": [2, 1, 1, 1, 1, 1, 1],
            "protocol.memory": "per_class:2",
            "training.first.epochs": 1,
            "training.later.epochs": 1,
        }
    )
    trainer = Trainer(config, toy_data)
    after = [live_bytes() for _ in trainer.run()]
    growth = [later - earlier for earlier, later in itertools.pairwise(after)][
        1:
    ]  # phase 1 brings the teacher
    a_class = max(block.numel() for block in trainer.model.head.blocks[1:]) * 4
    assert max(growth) <= 2 * a_class + 4096, (
        growth
    )  # the model's and the teacher's; a few indices and counts


def test_a_terms_coefficient_is_no_part_of_compiled_code(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every eta of a curve would be compiled anew."""
    plain, traced = StepProgram.judge, list[str]()

    def keep(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        traced.append(graph.code)
        return graph.forward

    def judge(self: StepProgram, *given: Any) -> torch.Tensor:
        torch._dynamo.reset()
        traced.clear()
        return torch.compile(plain, backend=keep, fullgraph=True, dynamic=False)(self, *given)

    monkeypatch.setattr(StepProgram, "judge", judge)
    codes = []
    for eta in (0.25, 0.75):
        config = toy_config(initial=[{"name": "cwd", "weight": eta}], training__first__epochs=1)
        run(replace(config, protocol=replace(config.protocol, phase_sizes=(4,))), data=toy_data)
        codes.append(traced[0])
    assert "0.25" not in codes[0]
    assert codes[0] == codes[1]
