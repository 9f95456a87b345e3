"""What is compiled once serves every phase and every run of a process, however the head grows; and what a stage
is too short for is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from phasezero.data.images import ImageData
from phasezero.engine import stage
from phasezero.engine.device import COMPILATION_PAYS, Device
from phasezero.engine.setup import check
from phasezero.initial import STRATEGIES
from phasezero.nets import model as models
from phasezero.presets import with_strategies
from samples import Make, train, watch_epochs


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Compile as on a GPU, but with a backend that only counts the graphs it is given, and without a capture."""
    torch._dynamo.reset()
    counting, choose = CompileCounter(), Device.choose

    def compiled(function: Any) -> Any:
        return torch.compile(function, backend=counting, dynamic=False, fullgraph=True)

    monkeypatch.setattr(models, "compiled", compiled)
    monkeypatch.setattr(stage, "compiled", compiled)
    monkeypatch.setattr(stage, "CapturedStep", lambda program: program.run)
    monkeypatch.setattr(stage, "COMPILATION_PAYS", 7)  # 8 steps of phase 0, 6 of a later phase
    monkeypatch.setattr(Device, "choose", lambda *wanted: replace(choose(*wanted), engine="compiled"))
    models.compiled_backbone.cache_clear()
    yield counting
    models.compiled_backbone.cache_clear()
    torch._dynamo.reset()


def test_one_compilation_for_all_phases_and_runs(
    counter: CompileCounter, toy_config: Make, toy_data: ImageData
) -> None:
    config = toy_config()
    train(config, data=toy_data)
    assert counter.frame_count == 3  # the model in training, the teacher in evaluation, the loss of phase 0
    train(replace(config, seed=1), data=toy_data)
    other_eta = replace(config.initial[0], weight=0.25)
    train(replace(config, initial=(other_eta,)), data=toy_data)
    train(config.override({"protocol.phase_sizes": [4, 1, 1]}), data=toy_data)
    assert counter.frame_count == 3
    train(replace(config, initial=()), data=toy_data)
    assert counter.frame_count == 4  # another loss
    train(config.override({"network.last_relu": True}), data=toy_data)
    assert counter.frame_count == 6  # another network, in training and as a teacher; the loss is the same


@pytest.mark.parametrize("term", list(STRATEGIES))
def test_every_term_is_compiled_with_the_loss(
    counter: CompileCounter, term: str, toy_config: Make, toy_data: ImageData
) -> None:
    """Also the mimic, whose oracle was trained just before, and so runs compiled wherever it can."""
    train(with_strategies(toy_config(), [term]), data=toy_data)
    # The loss of an oracle or a teacher, or a backbone for batches of rotated images.
    others = 1 if term in ("mimic", "self_distillation", "sla") else 0
    assert counter.frame_count == 3 + others


def test_a_stage_that_leaves_the_network_still_compiles_nothing(
    counter: CompileCounter, toy_config: Make, toy_data: ImageData
) -> None:
    """BiC fits its pairs on batches of another size in each phase."""
    config = toy_config("bic/glyphs/b50s10", method__bias_epochs=2)
    record = train(config, data=toy_data)
    assert all("bias" in phase["loss"] for phase in record["phases"][1:])
    assert counter.frame_count == 3  # the model in training, the teacher in evaluation, the loss of phase 0


def test_algorithms_are_searched_for_where_a_stage_is_long_enough(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """8 and 6 steps in BiC's training here, 2 in its fit."""
    searched: list[tuple[str, int]] = []
    watch_epochs(monkeypatch, lambda one, epoch: searched.append((one.stage.name, one.program.searched_size)))
    config = toy_config("bic/glyphs/b50s10", method__bias_epochs=2)
    for enough, found in ((6, {("train", 16), ("bias", 0)}), (9, {("train", 0), ("bias", 0)})):
        monkeypatch.setattr(stage, "SEARCH_PAYS", enough)
        train(config, data=toy_data)
        assert set(searched) == found
        searched.clear()


def test_long_runs_are_compiled_on_a_gpu_and_short_ones_are_not(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    config, choose = toy_config(), Device.choose

    def watched(wanted: Any, steps: int = 0) -> Device:
        asked.append(steps)
        return choose(wanted)

    with monkeypatch.context() as patched:
        patched.setattr(Device, "choose", watched)
        check(config, toy_data)
    first = config.training.first
    assert asked == [first.epochs * -(-14 * config.protocol.base // first.batch_size)]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("phasezero.engine.device.has_triton", lambda: True)
    on_gpu = config.override({"engine.device": "cuda"}).engine
    assert Device.choose(on_gpu, COMPILATION_PAYS - 1).engine == "captured"
    assert Device.choose(on_gpu, COMPILATION_PAYS).engine == "compiled"
