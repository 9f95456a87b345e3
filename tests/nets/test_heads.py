"""Heads that grow, against loops over single numbers, and the copy of a model that becomes a teacher."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from phasezero import nets
from phasezero.nets import BiasCorrectedHead, GrowingHead, LinearHead
from samples import ToyBackbone
from slow import rng

HEADS: dict[str, Callable[[int], GrowingHead]] = {
    "cosine": nets.CosineHead,
    "linear": LinearHead,
    "linear with bias": lambda d: LinearHead(d, bias=True),
    "BiC": BiasCorrectedHead,
    "BiC, newest pair": lambda d: BiasCorrectedHead(d, keep_pairs=False),
    "local similarity": lambda d: nets.LocalSimilarityHead(d, proxies=4),
}
every_head = pytest.mark.parametrize("kind", HEADS)


def grown(kind: str, size: int, *classes: int) -> GrowingHead:
    head = HEADS[kind](size)
    for seed, count in enumerate(classes):
        head.grow(count, rng(seed))
    return head


# ---- scores -----------------------------------------------------------------------------------------------


def dot(a: Tensor, b: Tensor) -> Tensor:
    return sum(x * y for x, y in zip(a, b, strict=True))  # type: ignore[return-value]


def slow_similarity(kind: str, feature: Tensor, weight: Tensor, bias: Tensor | float) -> Tensor:
    """Of one image and one class."""
    if kind == "cosine":
        return dot(feature, weight) / dot(feature, feature).sqrt() / dot(weight, weight).sqrt()
    if kind != "local similarity":
        return dot(feature, weight) + bias
    values = []
    for proxy in weight:  # squared distances of unit vectors
        apart = feature / dot(feature, feature).sqrt() - proxy / dot(proxy, proxy).sqrt()
        values.append(-dot(apart, apart))
    total = sum(value.exp() for value in values)
    return sum(value.exp() / total * value for value in values)  # type: ignore[return-value]


@every_head
def test_scores_and_gradients_by_hand(kind: str) -> None:
    head = grown(kind, 4, 3, 1, 2).double()
    if "BiC" in kind:
        for pair, values in zip(head.pairs, ([0.5, -1.0], [2.0, 0.25]), strict=True):
            pair.requires_grad_().data.copy_(torch.tensor(values))
    scale = 2.5 if hasattr(head, "scale") else 1.0
    if scale != 1:
        head.scale.data.fill_(scale)
    features = torch.randn(5, 4, generator=rng(9), dtype=torch.float64).requires_grad_()
    scores = head(features)
    weights = [row for block in head.blocks for row in block]
    biases = [value for block in head.biases for value in block] if head.biases is not None else [0.0] * 6
    expected = torch.stack(
        [torch.stack([slow_similarity(kind, f, w, b) for w, b in zip(weights, biases, strict=True)]) for f in features]
    )
    assert torch.allclose(scores.similarities, expected, rtol=0, atol=1e-12)
    logits, wanted = scale * expected, [features, *head.blocks]
    if "BiC" in kind:
        nothing = torch.tensor([1.0, 0.0], dtype=torch.float64)
        first, second = head.pairs if kind == "BiC" else (nothing, head.pairs[1])
        pairs = torch.stack([nothing, nothing, nothing, first, second, second])
        logits = expected * pairs[:, 0] + pairs[:, 1]
        wanted.append(second)
    assert torch.allclose(scores.logits, logits, rtol=0, atol=1e-12)
    upstream = torch.randn(5, 6, generator=rng(10), dtype=torch.float64)
    gradients, by_hand = (torch.autograd.grad((each * upstream).sum(), wanted) for each in (scores.logits, logits))
    for one, other in zip(gradients, by_hand, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10)


def test_similarities_lie_between_minus_4_and_0_and_see_directions_only() -> None:
    head, features = grown("local similarity", 3, 7), torch.randn(50, 3, generator=rng())
    found = head(features).similarities
    assert found.max() <= 0
    assert found.min() >= -4
    assert torch.allclose(found, head(features * 7).similarities, atol=1e-5)
    head.blocks[0].data.fill_(1)
    assert head(torch.ones(1, 3)).similarities[0].tolist() == pytest.approx([0] * 7, abs=1e-6)
    assert head(-torch.ones(1, 3)).similarities[0].tolist() == pytest.approx([-4] * 7, abs=1e-6)


# ---- growing ----------------------------------------------------------------------------------------------


@every_head
def test_initial_numbers(kind: str) -> None:
    head = grown(kind, 64, 50, 2)
    extra = {"cosine": 1, "linear": 0, "linear with bias": 52, "local similarity": 1}.get(kind, 52 + 2)
    proxies = 4 if kind == "local similarity" else 1
    assert sum(parameter.numel() for parameter in head.parameters()) == 52 * 64 * proxies + extra
    if hasattr(head, "scale"):
        assert head.scale.item() == 1
    if "BiC" in kind:  # pairs begin as nothing and are not trained by themselves
        assert [pair.tolist() for pair in head.pairs] == [[1.0, 0.0]]
        assert not any(pair.requires_grad for pair in head.pairs)
        assert head.corrects_bias
    deviation = 1 / 8 if kind == "local similarity" else 1 / 8 / math.sqrt(3)  # normal, or uniform in +-1/8
    for values in (head.blocks[0], *list(head.biases or ())[:1]):
        assert values.std().item() == pytest.approx(deviation, rel=6 / math.sqrt(2 * values.numel()))
        if kind != "local similarity":
            assert 0.9 / 8 < values.abs().max() <= 1 / 8
    same, other = HEADS[kind](64), HEADS[kind](64)
    same.grow(50, rng(0))
    other.grow(50, rng(1))
    assert torch.equal(head.blocks[0], same.blocks[0])
    assert not torch.equal(head.blocks[0], other.blocks[0])


@every_head
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_growing_keeps_what_was_there_bit_for_bit(kind: str, dtype: torch.dtype) -> None:
    head = grown(kind, 8, 5).to(dtype)
    for parameter in head.parameters():
        parameter.data.normal_(generator=rng(3))
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    features = torch.randn(4, 8, generator=rng(4), dtype=dtype)
    old_logits = head(features).logits
    head.grow(3, rng(5))
    assert head.classes == 8
    after = head.state_dict()
    assert len(after) > len(before)
    assert {tensor.dtype for tensor in after.values()} == {dtype}
    for name, tensor in before.items():
        assert torch.equal(after[name], tensor), name
    assert torch.equal(head.weight()[:5], before["blocks.0"])
    assert torch.allclose(head(features).logits[:, :5], old_logits, rtol=1e-6, atol=1e-6)


@every_head
def test_frozen_rows_stay_while_the_rest_learns(kind: str) -> None:
    head = grown(kind, 8, 5)
    head.freeze_old()
    assert all(parameter.requires_grad for parameter in head.parameters())  # one block: nothing is old
    head.grow(4, rng(1))
    head.grow(3, rng(2))
    head.freeze_old()
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    learning = [parameter for parameter in head.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learning, lr=0.5, momentum=0.9, weight_decay=0.1)
    features, labels = torch.randn(24, 8, generator=rng(6)), torch.arange(24) % 12
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(features).logits, labels).backward()
        optimizer.step()
    for name, tensor in head.state_dict().items():
        stays = name.startswith("pairs") or (name.startswith(("blocks", "biases")) and not name.endswith(".2"))
        assert torch.equal(tensor, before[name]) == stays, name


# ---- the teacher ------------------------------------------------------------------------------------------


def test_a_teacher_is_a_frozen_copy() -> None:
    torch.manual_seed(0)
    model = nets.IncrementalModel(ToyBackbone(), grown("cosine", 8, 5)).train()
    images, labels = torch.randn(16, 6), torch.arange(16) % 5
    model(images)
    teacher = model.teacher_copy()
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in teacher.modules())
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert torch.equal(teacher(images).logits, model.eval()(images).logits)

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
