"""Self-supervised label augmentation: images, labels and losses one by one, and the second head within a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero import UserError, run
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.stage import StagePass
from phasezero.initial import Strategies, StrategyOptions, Term
from phasezero.initial.sla import SelfSupervisedLabels, joint_labels, rotations
from phasezero.methods.stage import Batch
from phasezero.nets import Output
from samples import Make, watch_epochs
from slow import normal, rng

LABELS = [2, 0, 1]


def make(weight: float = 1.0) -> SelfSupervisedLabels:
    return SelfSupervisedLabels(SelfSupervisedLabels.Options(weight=weight), Phase(0, 0, 3))


def rotated_batch() -> Batch:
    """Return a batch of three images in four rotations, with three labels."""
    output = Output(normal(12, 5), normal(12, 3, seed=1), normal(12, 3, seed=2), (normal(12, 2, 4, 4, seed=3),))
    return Batch(normal(12, 1, 6, 6, seed=4), torch.tensor(LABELS), output, None, torch.empty(0, 3))


def test_each_image_is_turned_by_a_quarter_four_times() -> None:
    images = normal(3, 2, 6, 6)
    found = rotations(images)
    assert found.shape == (12, 2, 6, 6)
    for turns in range(4):
        for place in range(3):
            for channel in range(2):
                wanted = np.rot90(images[place, channel].numpy(), turns)
                assert np.array_equal(found[3 * turns + place, channel], wanted)


def test_labels_follow_the_order_of_the_images() -> None:
    assert joint_labels(torch.tensor(LABELS)).tolist() == [4 * label + turns for turns in range(4) for label in LABELS]


@pytest.mark.parametrize("weight", [0.0, 1.0, 0.3])
def test_the_loss_adds_the_mean_cross_entropy_of_the_joint_head(weight: float) -> None:
    strategy, batch = make(weight), rotated_batch()
    head = strategy.make_module(5, rng()).double()
    (block,), (bias,) = head.blocks, head.biases
    assert block.shape == (12, 5)
    torch.nn.init.normal_(bias, generator=rng(1))
    weights, offsets = block.detach().numpy(), bias.detach().numpy()
    total = 0.0
    for turns in range(4):
        for place, label in enumerate(LABELS):
            scores = np.exp(weights @ batch.output.features[3 * turns + place].numpy() + offsets)
            total -= np.log(scores[4 * label + turns] / scores.sum())
    found = strategy.compute_loss(lambda _: torch.tensor(7.0).double(), batch, batch.numbers)
    assert found.item() == pytest.approx(7 + weight * total / 12, rel=1e-10)


def test_the_method_and_the_terms_see_upright_images_only() -> None:
    seen = []

    class Spy(Term):
        def __call__(self, batch: Batch) -> Tensor:
            seen.append(batch)
            return batch.output.features.sum() * 0

    def loss(batch: Batch) -> Tensor:
        seen.append(batch)
        return batch.output.features.sum() * 0

    strategy, batch = make(), rotated_batch()
    parts = [Spy(StrategyOptions("spy"), strategy.phase), strategy]
    combined = Strategies(parts, 5, rng(), torch.device("cpu"))
    strategy.head.double()
    combined.around(loss)(batch)
    assert len(seen) == 2
    for upright in seen:
        assert torch.equal(upright.images, batch.images[:3])
        assert torch.equal(upright.labels, batch.labels)
        for part, whole in zip(upright.output[:3], batch.output[:3], strict=True):
            assert torch.equal(part, whole[:3])
        assert torch.equal(upright.output.maps[0], batch.output.maps[0][:3])


def test_the_joint_head_is_trained_in_phase_0_and_then_discarded(
    toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[list[Tensor]] = []
    optimised = []

    def note(stage_pass: StagePass, epoch: int) -> None:
        if stage_pass.strategies is None:
            optimised.append(None)
            return
        own = stage_pass.strategies.parameters
        heads.append([parameter.detach().clone() for parameter in own])
        known = {id(parameter) for group in stage_pass.program.optimizer.param_groups for parameter in group["params"]}
        optimised.append({id(parameter) for parameter in own} <= known)

    watch_epochs(monkeypatch, note)
    model = run(toy_config("lucir+sla/glyphs/b50s10", protocol__phase_sizes=[4, 2]), data=toy_data).model
    assert optimised == [True, True, None, None]
    assert [tuple(parameter.shape) for parameter in heads[0]] == [(16, 64), (16,)]
    assert all(not torch.equal(first, second) for first, second in zip(*heads, strict=True))
    plain = run(toy_config("lucir/glyphs/b50s10", protocol__phase_sizes=[4, 2]), data=toy_data).model
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in plain.state_dict().items()
    }


def test_images_that_are_not_square_are_rejected() -> None:
    with pytest.raises(UserError, match=r"initial sla: images must be square, got \(4, 6\)"):
        make().transform(torch.zeros(2, 1, 4, 6), torch.empty(0, 2))
