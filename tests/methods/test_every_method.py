"""Every registered method with every registered phase-0 term: trains three phases, and never looks at values.

A new method or term is tested here as soon as it registers itself.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.outcome import PhaseResult
from phasezero.engine.passes import StagePass
from phasezero.engine.persist import OracleWorkshop
from phasezero.engine.step import StepProgram
from phasezero.engine.trainer import Trainer
from phasezero.initial import TERMS
from phasezero.initial.cwd import ClassWiseDecorrelation
from phasezero.methods import METHODS
from phasezero.methods.base import Batch, Loss
from phasezero.nets import Output
from phasezero.nets.model import look_through
from phasezero.presets import build_config, fits, method_names, split_method
from phasezero.results.record import comparable_part

Make = Callable[..., RunConfig]
NAMES = [name for method in METHODS for name in method_names(method) if fits(*split_method(name), "glyphs")]
CHOICES = [(), *((term,) for term in TERMS), tuple(TERMS)]


def small(name: str, initial: tuple[str, ...] = ()) -> RunConfig:
    """The method's own glyphs configuration, cut to two epochs of the toy data's three phases."""
    config = build_config(name, "glyphs", initial=initial, base=4, step=2)
    short = {f"training.{which}.{key}": value for which in ("first", "later") for key, value in SHORT.items()}
    fewer = dict.fromkeys(options_named(config, "epochs"), 2)
    keep = {} if config.protocol.memory == "per_class:0" else {"protocol.memory": "per_class:4"}
    return config.override({**short, **fewer, **keep})


SHORT = {"epochs": 2, "milestones": [1], "batch_size": 16}


def options_named(config: RunConfig, ending: str) -> Iterator[str]:
    for key, value in config.to_dict()["method"].items():
        if key.endswith(ending) and isinstance(value, int) and value:
            yield f"method.{key}"


@pytest.mark.parametrize(("name", "initial"), list(itertools.product(NAMES, CHOICES)), ids=str)
def test_three_phases_with_every_term(name: str, initial: tuple[str, ...], toy_data: ImageData) -> None:
    record = run(small(name, initial), data=toy_data)
    assert [phase["seen_classes"] for phase in record["phases"]] == [4, 6, 8]
    assert [term.partition(":")[0] for term in record["initial"]] == list(initial)
    losses = [loss for phase in record["phases"] for values in phase["loss"].values() for loss in values]
    assert losses
    if not initial:
        assert comparable_part(run(small(name), data=toy_data)) == comparable_part(record)


@pytest.mark.parametrize("name", NAMES)
def test_terms_change_phase_zero(name: str, toy_data: ImageData) -> None:
    plain = run(small(name).override({"protocol.phase_sizes": [4]}), data=toy_data)
    for term in TERMS:
        settings = {"protocol.phase_sizes": [4]}
        changed = run(small(name, (term,)).override(settings), data=toy_data)
        assert changed["phases"][0]["loss"] != plain["phases"][0]["loss"], term


@pytest.mark.parametrize("name", NAMES)
def test_terms_act_in_phase_zero_alone(
    name: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    highest: list[int] = []
    plain = ClassWiseDecorrelation.__call__

    def watch(term: ClassWiseDecorrelation, batch: Batch) -> torch.Tensor:
        highest.append(int(batch.labels.max()))
        return plain(term, batch)

    monkeypatch.setattr(ClassWiseDecorrelation, "__call__", watch)
    run(small(name, ("cwd",)), data=toy_data)
    assert len(highest) == 2 * 4  # epochs, and batches of 16 of phase 0's 56 images (BiC: 52)
    assert max(highest) == 3


class StoppedError(Exception):
    pass


class StopInTheLastPhase:
    """A listener that breaks a run off after the first epoch of its third phase."""

    def started(self, phases: int, total_images: int) -> None: ...

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        if phase.index == 2:
            raise StoppedError

    def phase(self, result: PhaseResult) -> None: ...


@pytest.mark.parametrize("name", NAMES)
def test_a_stopped_run_goes_on_to_the_same_record(name: str, toy_data: ImageData, tmp_path: Path) -> None:
    config, checkpoint = small(name), tmp_path / "checkpoint"
    with pytest.raises(StoppedError):
        run(config, data=toy_data, listener=StopInTheLastPhase(), checkpoint=checkpoint)
    resumed = run(config, data=toy_data, checkpoint=checkpoint)
    assert comparable_part(resumed) == comparable_part(run(config, data=toy_data))


@pytest.mark.parametrize("sizes", [[4, 1, 1], [1, 1], [3, 4, 1]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_uneven_and_single_class_phases(name: str, sizes: list[int], toy_data: ImageData) -> None:
    record = run(small(name).override({"protocol.phase_sizes": sizes}), data=toy_data)
    assert [phase["new_classes"] for phase in record["phases"]] == sizes


@pytest.mark.parametrize("name", NAMES)
def test_losses_can_be_captured(name: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage's loss, forward and backward, on tensors without values: whatever asks for one fails."""
    stages: dict[str, int] = {}

    def watch(original: Callable[..., None]) -> Callable[..., None]:
        def init(self: StagePass, stage: Any, loss: Loss, *rest: Any) -> None:
            original(self, stage, loss, *rest)
            stages[stage.name] = stages.get(stage.name, 0) + 1
            without_values(loss, self)

        return init

    monkeypatch.setattr(StagePass, "__init__", watch(StagePass.__init__))
    config = small(name, tuple(TERMS))
    trainer = Trainer(config, toy_data, workshop=OracleWorkshop(config, toy_data))
    list(trainer.run())
    assert stages["train"] == 4  # the oracle's, and those of three phases


def without_values(loss: Loss, stage_pass: StagePass) -> None:
    program = stage_pass.program
    (ticket, *_) = stage_pass.source.train_batches(stage_pass.indices, 8, torch.Generator())
    images, labels = stage_pass.source.prepare(ticket)
    with torch.no_grad():
        output = program.model(images)
        teacher = program.teacher(images) if program.teacher is not None else None
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:

        def fake(found: Output, trains: bool) -> Output:
            def one(tensor: torch.Tensor) -> torch.Tensor:
                return mode.from_tensor(tensor.detach()).requires_grad_(trains)

            maps = tuple(map(one, found.maps))
            return Output(one(found.features), one(found.logits), one(found.similarities), maps)

        batch = Batch(
            mode.from_tensor(images),
            mode.from_tensor(labels),
            fake(output, trains=True),
            fake(teacher, trains=False) if teacher is not None else None,
        )
        value = loss(batch)
        assert value.shape == ()
        value.backward()


@pytest.mark.parametrize("name", list(METHODS))
def test_steps_compile_as_one_graph(name: str, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backbone and loss of every stage, traced whole (a graph break fails), give the eager step's losses."""
    config = small(name, ("cwd",)).override({"protocol.phase_sizes": [4, 2]})
    plain = run(config, data=toy_data)
    traced = functools.partial(torch.compile, fullgraph=True, dynamic=False, backend="eager")
    monkeypatch.setattr("phasezero.nets.model.look_through", traced(look_through))
    run_as_given = StepProgram.run

    def run_traced(program: StepProgram, ticket: tuple[torch.Tensor, ...]) -> None:
        if program.compiled_judge is None:
            program.compiled_judge, program.compiled_size = traced(program.judge), 16
        run_as_given(program, ticket)

    monkeypatch.setattr(StepProgram, "run", run_traced)
    with torch._dynamo.config.patch(recompile_limit=64):
        compiled = run(config, data=toy_data)
    for one, other in zip(plain["phases"], compiled["phases"], strict=True):
        for stage, losses in one["loss"].items():
            assert losses == pytest.approx(other["loss"][stage], rel=1e-3)
