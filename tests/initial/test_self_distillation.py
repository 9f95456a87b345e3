"""Self-distillation: Hinton et al.'s loss, and a teacher that is the same phase 0 without it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from phasezero import UserError, run
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.oracle import TrainedOracle
from phasezero.engine.stage import StagePass
from phasezero.engine.store import PhaseZeroStore
from phasezero.initial.self_distillation import SelfDistillation
from phasezero.nets import Output
from samples import Diary, Make, key_of, train, watch_epochs
from slow import batch_of, normal, same_with_gradient, softmax

NAME = "lucir+self_distillation/glyphs/b50s10"
every_temperature = pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])


def term_and_losses(logits: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the term, Hinton et al.'s T^2 * cross-entropy with soft targets, and T^2 * entropy of the targets."""
    old_logits = normal(*logits.shape, seed=1).requires_grad_()

    def teacher(images: Tensor) -> Output:
        return Output(*[old_logits * 1] * 3, ())

    provider: Any = SimpleNamespace(phase_zero=lambda without: teacher)
    term = SelfDistillation(SelfDistillation.Options(temperature=temperature), Phase(0, 0, 4), provider)
    found = term(batch_of(logits, [0] * len(logits)))
    assert torch.autograd.grad(found, old_logits, retain_graph=True, allow_unused=True) == (None,)
    cross = entropy = torch.zeros(()).double()
    for row, old_row in zip(logits, old_logits.detach(), strict=True):
        for q, p in zip(softmax(row / temperature), softmax(old_row / temperature), strict=True):
            cross = cross - p * q.log() * temperature**2 / len(logits)
            entropy = entropy - p * p.log() * temperature**2 / len(logits)
    return found, cross, entropy


@every_temperature
def test_the_value_is_the_divergence_of_softened_probabilities_times_t_squared(temperature: float) -> None:
    logits = normal(5, 4).requires_grad_()
    found, cross, entropy = term_and_losses(logits, temperature)
    same_with_gradient(found, cross - entropy, logits)


@every_temperature
def test_it_is_hintons_cross_entropy_with_soft_targets_up_to_a_constant(temperature: float) -> None:
    first, second = (normal(5, 4, seed=seed).requires_grad_() for seed in (2, 3))
    found, cross, _ = term_and_losses(first, temperature)
    other, other_cross, _ = term_and_losses(second, temperature)
    same_with_gradient(found - other, cross - other_cross, first)


@pytest.mark.parametrize("others", ["", "+cwd", "+augment+sla"])
def test_the_teacher_is_the_same_phase_0_without_it(others: str, toy_config: Make, toy_data: ImageData) -> None:
    name = f"lucir+self_distillation{others}/glyphs/b50s10"
    teacher = TrainedOracle(toy_config(name), toy_data).phase_zero("self_distillation").state_dict()
    for term in {others, ""}:
        alone = toy_config(f"lucir{term}/glyphs/b50s10", protocol__phase_sizes=[4])
        wanted = run(alone, data=toy_data).model.state_dict()
        same = all(torch.equal(own, wanted[key]) for key, own in teacher.items())
        assert same == (term == others)


def test_the_teacher_stays_as_it_is_and_the_model_differs_from_it(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[dict[str, Tensor]] = []

    def note(stage_pass: StagePass, epoch: int) -> None:
        for part in stage_pass.strategies.parts if stage_pass.strategies else ():
            assert not part.teacher.training
            assert not any(parameter.requires_grad for parameter in part.teacher.parameters())
            assert all(parameter.grad is None for parameter in part.teacher.parameters())
            states.append({name: tensor.clone() for name, tensor in part.teacher.state_dict().items()})

    watch_epochs(monkeypatch, note)
    config = toy_config(NAME, protocol__phase_sizes=[4])
    model = run(config, data=toy_data).model.state_dict()
    teacher = TrainedOracle(config, toy_data).phase_zero("self_distillation").state_dict()
    assert len(states) == 2
    for state in states:
        assert all(torch.equal(tensor, teacher[name]) for name, tensor in state.items())
    assert not torch.equal(model["head.blocks.0"], teacher["head.blocks.0"])


def test_the_teacher_comes_from_the_store(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    config, diary, again = toy_config(NAME, protocol__phase_sizes=[4]), Diary(), Diary()
    anew = train(config, data=toy_data, callback=diary)
    assert [stage for _, stage, _ in diary.epochs] == ["teacher train"] * 2 + ["train"] * 2
    train(toy_config("lucir/glyphs/b50s10"), data=toy_data, store=tmp_path)
    reused = train(config, data=toy_data, store=tmp_path, callback=again)
    assert [stage for _, stage, _ in again.epochs] == ["train"] * 2
    assert reused["phases"][0]["loss"] == anew["phases"][0]["loss"]
    assert len(list(PhaseZeroStore(tmp_path).entries())) == 2


def test_without_a_run_the_missing_teacher_is_named() -> None:
    with pytest.raises(UserError, match="self_distillation needs a teacher"):
        SelfDistillation(SelfDistillation.Options(), Phase(0, 0, 4))


def test_methods_that_share_a_phase_0_share_its_self_distillation(toy_config: Make, toy_data: ImageData) -> None:
    settings = {"protocol__phase_sizes": [4], "protocol__memory": "per_class:3"}
    lucir, ridge = (toy_config(f"{name}+self_distillation/glyphs/b50s10", **settings) for name in ("lucir", "ridge"))
    assert key_of(lucir, toy_data) == key_of(ridge, toy_data)
    losses = [train(config, data=toy_data)["phases"][0]["loss"] for config in (lucir, ridge)]
    assert losses[0] == losses[1]


def test_a_stored_teacher_that_looks_ahead_is_not_used_for_other_later_classes(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    name = "lucir+mimic+self_distillation/glyphs/b50s10"
    first, second = (toy_config(name, protocol__phase_sizes=sizes) for sizes in ([2, 2], [2, 1]))
    train(first, data=toy_data, store=tmp_path)
    losses = [train(second, data=toy_data, store=store)["phases"][0]["loss"] for store in (tmp_path, None)]
    assert losses[0] == losses[1]


def test_a_memory_larger_than_phase_0_is_allowed(toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config(NAME, protocol__phase_sizes=[2, 2], protocol__memory="total:40")
    assert train(config, data=toy_data)["phases"]
