"""What is compiled once serves every phase and every run of a process, however the head grows; and what a stage
is too short for is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.engine import step
from phasezero.engine.device import COMPILATION_PAYS, Device
from phasezero.engine.passes import StagePass
from phasezero.engine.trainer import check
from phasezero.initial import TERMS
from phasezero.nets import model as models
from phasezero.presets import with_terms

Make = Callable[..., RunConfig]


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Compiles as the engine does on a GPU, but with a backend that only counts the graphs it is given."""
    torch._dynamo.reset()
    counting = CompileCounter()

    def compiled(function: Any) -> Any:
        return torch.compile(function, backend=counting, dynamic=False, fullgraph=True)

    original = StagePass.__init__

    def with_compiled_sizes(
        self: StagePass, stage: Any, loss: Any, model: Any, teacher: Any, *rest: Any
    ) -> None:
        original(self, stage, loss, model, teacher, *rest)
        self.compile_networks(teacher)
        if teacher is None:  # phase 0, as long stages have it
            self.program.compile_judge(stage.schedule.batch_size)

    monkeypatch.setattr(models, "compiled", compiled)
    monkeypatch.setattr(step, "compiled", compiled)
    monkeypatch.setattr(StagePass, "__init__", with_compiled_sizes)
    models.compiled_look.cache_clear()
    yield counting
    models.compiled_look.cache_clear()
    torch._dynamo.reset()


def test_one_compilation_for_all_phases_and_runs(
    counter: CompileCounter, toy_config: Make, toy_data: ImageData
) -> None:
    config = toy_config()
    run(config, data=toy_data)
    assert counter.frame_count == 3  # the model in training, the teacher in evaluation, the loss of phase 0
    run(replace(config, seed=1), data=toy_data)
    other_eta = replace(config.initial[0], weight=0.25)
    run(replace(config, initial=(other_eta,)), data=toy_data)
    run(config.override({"protocol.phase_sizes": [4, 1, 1]}), data=toy_data)
    assert counter.frame_count == 3
    run(replace(config, initial=()), data=toy_data)
    assert counter.frame_count == 4  # another loss


def test_another_network_is_compiled_for_itself(
    counter: CompileCounter, toy_config: Make, toy_data: ImageData
) -> None:
    run(toy_config(), data=toy_data)
    before = counter.frame_count
    run(toy_config().override({"network.last_relu": True}), data=toy_data)
    assert counter.frame_count == before + 2  # in training and as a teacher; the loss is the same


@pytest.mark.parametrize("term", list(TERMS))
def test_every_term_is_compiled_with_the_loss(
    counter: CompileCounter, term: str, toy_config: Make, toy_data: ImageData
) -> None:
    """Also the mimic, whose oracle was trained just before, and so runs compiled wherever it can."""
    run(with_terms(toy_config(), [term]), data=toy_data)
    oracles_loss = 1 if term == "mimic" else 0
    assert counter.frame_count == 3 + oracles_loss


def test_a_stage_that_leaves_the_network_still_compiles_nothing(
    counter: CompileCounter, toy_config: Make, toy_data: ImageData
) -> None:
    """BiC fits its pairs on batches of another size in each phase."""
    config = toy_config("bic/glyphs/b50s10", method__bias_epochs=2)
    record = run(config, data=toy_data)
    assert all("bias" in phase["loss"] for phase in record["phases"][1:])
    assert counter.frame_count == 3  # the model in training, the teacher in evaluation, the loss of phase 0


def test_algorithms_are_searched_for_where_a_stage_is_long_enough(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 and 6 steps in BiC's training here, 2 in its fit."""
    searched: list[tuple[str, int]] = []
    epoch = StagePass.epoch

    def watched(self: StagePass, number: int, *rest: Any) -> Any:
        searched.append((self.stage.name, self.program.searched_size))
        return epoch(self, number, *rest)

    monkeypatch.setattr(StagePass, "epoch", watched)
    config = toy_config("bic/glyphs/b50s10", method__bias_epochs=2)
    for enough, found in ((6, {("train", 16), ("bias", 0)}), (9, {("train", 0), ("bias", 0)})):
        monkeypatch.setattr("phasezero.engine.passes.SEARCH_PAYS", enough)
        run(config, data=toy_data)
        assert set(searched) == found
        searched.clear()


def test_long_runs_are_compiled_on_a_gpu_and_short_ones_are_not(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    choose = Device.choose

    def watched(wanted: Any, steps: int = 0) -> Device:
        asked.append(steps)
        return choose(wanted)

    monkeypatch.setattr(Device, "choose", watched)
    config = toy_config()
    check(config, toy_data)
    first = config.training.first
    images = 14 * config.protocol.base
    assert asked == [first.epochs * -(-images // first.batch_size)]

    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("phasezero.engine.device.has_triton", lambda: True)
    on_gpu = config.override({"engine.device": "cuda"}).engine
    assert Device.choose(on_gpu, COMPILATION_PAYS - 1).engine == "captured"
    assert Device.choose(on_gpu, COMPILATION_PAYS).engine == "compiled"
