"""Heads that grow, and the copy of a model that becomes a teacher."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from phasezero.nets import CosineHead, Features, GrowingHead, IncrementalModel, LinearHead


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def grown(head: GrowingHead, *sizes: int) -> GrowingHead:
    for seed, size in enumerate(sizes):
        head.grow(size, rng(seed))
    return head


HEADS = {
    "cosine": lambda d: CosineHead(d),
    "linear": lambda d: LinearHead(d),
    "linear with bias": lambda d: LinearHead(d, bias=True),
}
every_head = pytest.mark.parametrize("kind", HEADS)


# ---- scores -----------------------------------------------------------------------------------------------


def test_cosine_scores_by_hand() -> None:
    head = grown(CosineHead(4), 3, 2).double()
    head.scale.data.fill_(2.5)
    features = torch.randn(6, 4, generator=rng(9), dtype=torch.float64)
    scores = head(features)
    assert scores.logits.shape == scores.similarities.shape == (6, 5)
    rows = [row.tolist() for block in head.blocks for row in block]
    for i, f in enumerate(features.tolist()):
        for j, w in enumerate(rows):
            product = sum(a * b for a, b in zip(f, w, strict=True))
            cosine = product / math.sqrt(sum(a * a for a in f)) / math.sqrt(sum(b * b for b in w))
            assert scores.similarities[i, j].item() == pytest.approx(cosine, abs=1e-12)
            assert scores.logits[i, j].item() == pytest.approx(2.5 * cosine, abs=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_linear_scores_by_hand(bias: bool) -> None:
    head = grown(LinearHead(4, bias=bias), 3, 2).double()
    features = torch.randn(6, 4, generator=rng(9), dtype=torch.float64)
    scores = head(features)
    rows = [row.tolist() for block in head.blocks for row in block]
    biases = [value.item() for block in head.biases for value in block] if bias else [0.0] * 5
    for i, f in enumerate(features.tolist()):
        for j, w in enumerate(rows):
            expected = sum(a * b for a, b in zip(f, w, strict=True)) + biases[j]
            assert scores.logits[i, j].item() == pytest.approx(expected, abs=1e-12)
    assert torch.equal(scores.logits, scores.similarities)


def test_a_linear_head_has_a_bias_only_where_asked_for() -> None:
    assert sum(p.numel() for p in grown(LinearHead(4), 3, 2).parameters()) == 5 * 4
    assert sum(p.numel() for p in grown(LinearHead(4, bias=True), 3, 2).parameters()) == 5 * 4 + 5
    assert sum(p.numel() for p in grown(CosineHead(4), 3, 2).parameters()) == 5 * 4 + 1


# ---- growing ----------------------------------------------------------------------------------------------


@every_head
def test_initial_weights_fill_their_range(kind: str) -> None:
    head = grown(HEADS[kind](16), 400)
    bound = 1 / math.sqrt(16)
    parts = [head.blocks[0], *(getattr(head, "biases", None) or ())]
    for part in parts:
        assert part.abs().max() <= bound
        assert part.min() < -0.9 * bound
        assert part.max() > 0.9 * bound
        assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)  # uniform


def test_the_scale_begins_at_one() -> None:
    assert CosineHead(8).scale.item() == 1.0


@every_head
def test_initial_weights_come_from_the_generator(kind: str) -> None:
    one, same, other = (HEADS[kind](8) for _ in range(3))
    one.grow(5, rng(1))
    same.grow(5, rng(1))
    other.grow(5, rng(2))
    assert torch.equal(one.weight(), same.weight())
    assert not torch.equal(one.weight(), other.weight())


@every_head
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_growing_keeps_what_was_there_bit_for_bit(kind: str, dtype: torch.dtype) -> None:
    head = grown(HEADS[kind](8), 5).to(dtype)
    for parameter in head.parameters():
        parameter.data.normal_(generator=rng(3))
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    features = torch.randn(4, 8, generator=rng(4), dtype=dtype)
    old_logits = head(features).logits
    block = head.grow(3, rng(5))
    assert block is list(head.blocks)[-1]
    assert block.shape == (3, 8)
    assert block.dtype == dtype
    assert head.classes == 8
    after = head.state_dict()
    assert len(after) > len(before)
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name
    assert torch.equal(head.weight()[:5], before["blocks.0"])
    assert torch.allclose(head(features).logits[:, :5], old_logits, rtol=1e-6, atol=1e-6)


@every_head
def test_frozen_rows_stay_while_the_rest_learns(kind: str) -> None:
    head = grown(HEADS[kind](8), 5, 4, 3)
    head.freeze_old()
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    optimizer = torch.optim.SGD(
        [parameter for parameter in head.parameters() if parameter.requires_grad],
        lr=0.5,
        momentum=0.9,
        weight_decay=0.1,
    )
    features, labels = torch.randn(24, 8, generator=rng(6)), torch.arange(24) % 12
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(features).logits, labels).backward()
        optimizer.step()
    for name, tensor in head.state_dict().items():
        old = name.startswith(("blocks", "biases")) and not name.endswith(".2")
        assert torch.equal(tensor, before[name]) == old, name


@every_head
def test_freezing_with_one_block_freezes_nothing(kind: str) -> None:
    head = grown(HEADS[kind](8), 5)
    head.freeze_old()
    assert all(parameter.requires_grad for parameter in head.parameters())


# ---- the teacher ------------------------------------------------------------------------------------------


class ToyBackbone(nn.Module):
    """A layer and a BatchNorm: parameters and buffers that training moves."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, images: Tensor) -> Features:
        return Features(self.norm(self.layer(images)), ())


def test_a_teacher_is_a_frozen_copy() -> None:
    torch.manual_seed(0)
    model = IncrementalModel(ToyBackbone(), grown(CosineHead(8), 5)).train()
    images, labels = torch.randn(16, 6), torch.arange(16) % 5
    model(images)
    teacher = model.teacher_copy()

    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    student_in_eval = model.eval()(images)
    assert torch.equal(teacher(images).logits, student_in_eval.logits)

    saved = {name: tensor.clone() for name, tensor in teacher.state_dict().items()}
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images).logits, labels).backward()
        optimizer.step()
    model.head.grow(2, rng(1))
    for name, tensor in teacher.state_dict().items():
        assert torch.equal(tensor, saved[name]), name
        assert not torch.equal(tensor, model.state_dict()[name]), name
    assert teacher.head.classes == 5
