"""Every registered method, with every registered phase-0 term: it trains, stops and continues, and can be captured.

A new method or term is tested here as soon as it registers itself.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine.oracle import TrainedOracle
from phasezero.engine.stage import StagePass
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import Trainer
from phasezero.initial import STRATEGIES, Strategy
from phasezero.methods import METHODS
from phasezero.methods.base import both_phases
from phasezero.methods.stage import Batch, Loss
from phasezero.nets import Features, Output
from phasezero.nets.model import run_backbone
from phasezero.presets import build_config, has_variant, method_names, split_method
from phasezero.records.run import comparable_part
from samples import StopAfter, StoppedError, train

NAMES = [name for method in METHODS for name in method_names(method) if has_variant(*split_method(name), "glyphs")]
every_name = pytest.mark.parametrize("name", NAMES)


def small(name: str, *terms: str, sizes: tuple[int, ...] = (4, 2), epochs: int = 1, **options: Any) -> RunConfig:
    """Return the method's own glyphs configuration, cut to a few epochs of the toy data."""
    config = build_config(name, "glyphs", initial=terms, base=4, step=2)
    settings: dict[str, Any] = both_phases(epochs=epochs, milestones=[], batch_size=16)
    for key, value in config.to_dict()["method"].items():
        if key.endswith("epochs") and value:
            settings[f"method.{key}"] = epochs
    if config.protocol.memory != "per_class:0":
        settings["protocol.memory"] = "per_class:4"
    own = {f"method.{key}": value for key, value in options.items()}
    return config.override({**settings, "protocol.phase_sizes": sizes, **own})


@every_name
def test_strategies_act_in_phase_0_only(name: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with all strategies at once uses each of them in every step of phase 0 and never again."""
    highest: dict[str, list[int]] = {key: [] for key in STRATEGIES}
    for key in STRATEGIES:

        def watched(part: Strategy, inner: Loss, batch: Batch, numbers: Tensor, key: str = key) -> Tensor:
            highest[key].append(int(batch.labels.max()))
            return original[key](part, inner, batch, numbers)

        monkeypatch.setattr(STRATEGIES[key], "compute_loss", watched)
    record = train(small(name, *STRATEGIES), data=toy_data)
    assert [phase["seen_classes"] for phase in record["phases"]] == [4, 6]
    assert [term.partition(":")[0] for term in record["initial"]] == list(STRATEGIES)
    mixing = 1
    for key in sorted(STRATEGIES, key=lambda key: STRATEGIES[key].rank):
        runs = 1 if key == "self_distillation" else 2  # the teacher's training has all others
        assert len(highest[key]) == 4 * runs * mixing  # batches of 16 of phase 0's 56 images (BiC: 52)
        assert max(highest[key]) == 3
        mixing *= 2 if STRATEGIES[key].rank == 1 else 1  # a mixture has two labels


original = {key: STRATEGIES[key].compute_loss for key in STRATEGIES}


@every_name
def test_every_term_changes_phase_0(name: str, toy_data: ImageData) -> None:
    choices = [(), *((term,) for term in STRATEGIES)]
    losses = [train(small(name, *terms, sizes=(4,)), data=toy_data)["phases"][0]["loss"]["train"] for terms in choices]
    assert len(set(map(tuple, losses))) == len(choices)


@pytest.mark.parametrize(
    ("name", "options", "phase"),
    [
        *((name, {}, 2) for name in NAMES),
        # At the published rate AANets' weights would hardly move.
        ("aanet", {"weights_lr": 1e-3}, 1),
        ("aanet", {"weights_lr": 1e-3}, 2),
        ("aanet", {"weights_lr": 1e-3, "accumulate": False}, 2),
    ],
)
def test_a_stopped_run_continues_to_the_same_record(
    name: str, options: dict[str, Any], phase: int, toy_data: ImageData, tmp_path: Path
) -> None:
    config, checkpoint = small(name, sizes=(4, 2, 2), epochs=2, **options), tmp_path / "checkpoint"
    with pytest.raises(StoppedError):
        train(config, data=toy_data, callback=StopAfter(phase), checkpoint=checkpoint)
    resumed = train(config, data=toy_data, checkpoint=checkpoint)
    assert comparable_part(resumed) == comparable_part(train(config, data=toy_data))


@every_name
def test_phases_of_a_single_class_and_of_more_classes_than_before(name: str, toy_data: ImageData) -> None:
    sizes = (1, 1, 3, 1)
    record = train(small(name, sizes=sizes), data=toy_data)
    assert tuple(phase["new_classes"] for phase in record["phases"]) == sizes


@every_name
def test_losses_can_be_captured(name: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage's loss runs forward and backward on tensors without values: code that reads a value fails."""
    stages: list[str] = []
    original = StagePass.__init__

    def init(self: StagePass, stage: Any, *rest: Any) -> None:
        original(self, stage, *rest)
        stages.append(stage.name)
        without_values(self)

    monkeypatch.setattr(StagePass, "__init__", init)
    config = small(name, *STRATEGIES)
    list(Trainer(config, toy_data, provider=TrainedOracle(config, toy_data)).run())
    # The teacher of self-distillation, its oracle and the run's, and the phases.
    assert stages.count("train") == 3 + (2 if METHODS[config.method.name].trains_later else 1)


def without_values(stage_pass: StagePass) -> None:
    program, loss = stage_pass.program, stage_pass.stage.loss
    (plan, *_) = stage_pass.batches(torch.Generator())
    images, labels, numbers = program.prepare(plan)
    with torch.no_grad():
        output = program.model(images)
        teacher = program.teacher(images) if program.teacher is not None else None
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def fake(output: Output, trains: bool) -> Output:
            *tensors, maps = output
            first = (mode.from_tensor(one.detach()).requires_grad_(trains) for one in tensors)
            return Output(*first, tuple(mode.from_tensor(one.detach()).requires_grad_(trains) for one in maps))

        old = fake(teacher, trains=False) if teacher is not None else None
        drawn = mode.from_tensor(numbers)
        if program.strategies is not None:
            pixels = stage_pass.source.views(plan[:-1])[0].permute(0, 3, 1, 2).float()
            program.strategies.transform(mode.from_tensor(pixels), drawn)
        value = loss(Batch(mode.from_tensor(images), mode.from_tensor(labels), fake(output, trains=True), old, drawn))
        assert value.shape == ()
        value.backward()


@pytest.mark.parametrize("name", list(METHODS))
def test_steps_compile_as_one_graph(name: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backbone and loss of every stage, traced whole (a graph break fails), give the eager step's losses."""
    config = small(name, "cwd")
    plain = train(config, data=toy_data)
    traced = functools.partial(torch.compile, fullgraph=True, dynamic=False, backend="eager")
    traced_backbone, run_as_given, sizes = traced(run_backbone), StepProgram.run, set[int]()

    def backbone(network: nn.Module, images: Tensor, keep_maps: bool) -> Features:
        return (traced_backbone if len(images) in sizes else run_backbone)(network, images, keep_maps)

    def run_traced(program: StepProgram, plan: tuple[Tensor, ...]) -> None:
        if program.compiled_loss is None:
            program.compiled_loss, program.compiled_size = traced(program.compute_loss), plan[0].shape[-1]
            sizes.add(program.compiled_size)  # not all sizes: each needs a trace of its own
        run_as_given(program, plan)

    monkeypatch.setattr("phasezero.nets.model.run_backbone", backbone)
    monkeypatch.setattr(StepProgram, "run", run_traced)
    with torch._dynamo.config.patch(recompile_limit=64):
        compiled = train(config, data=toy_data)
    for one, other in zip(plain["phases"], compiled["phases"], strict=True):
        for stage, losses in one["loss"].items():
            assert losses == pytest.approx(other["loss"][stage], rel=1e-3)
