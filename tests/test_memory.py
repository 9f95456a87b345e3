"""Exemplars: quotas, herding against the greedy rule written out, and what happens to old sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from phasezero import memory
from phasezero.errors import UserError
from phasezero.memory import ExemplarMemory, MemoryRule, herd

FeaturesOf = Callable[[Tensor], Tensor]

# ---- rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seen", "quota"),
    [
        ("per_class:20", 50, 20),
        ("per_class:20", 100, 20),
        ("per_class:0", 10, 0),
        ("total:2000", 50, 40),
        ("total:2000", 60, 33),
        ("total:2000", 100, 20),
        ("total:5", 10, 0),
        ("total:0", 10, 0),
    ],
)
def test_quota(text: str, seen: int, quota: int) -> None:
    assert MemoryRule.parse(text).quota(seen) == quota


@pytest.mark.parametrize(
    "text",
    [
        "per_class",
        "per_class:",
        "per_class:-1",
        "total:1.5",
        "total:many",
        "total:20:3",
        "total:" + "9" * 5000,
    ],
)
def test_a_rule_without_a_count_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="per_class:20 or total:2000") as caught:
        MemoryRule.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(("text", "nearest"), [("per_clas:20", "per_class"), ("totl:5", "total")])
def test_an_unknown_rule_is_refused(text: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{nearest}'"):
        MemoryRule.parse(text)


def test_an_unknown_selection_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'herding'"):
        ExemplarMemory(MemoryRule.parse("total:5"), "herdin")


# ---- herding ----------------------------------------------------------------------------------------------


def slow_herd(features: np.ndarray, count: int) -> list[int]:
    """The k-th pick brings the mean of all picks nearest to the mean of the unit features."""
    unit = [row / max(np.sqrt((row**2).sum()), 1e-12) for row in features.astype(np.float64)]
    mean = sum(unit) / len(unit)
    chosen: list[int] = []
    for k in range(count):
        total = sum((unit[i] for i in chosen), np.zeros_like(mean))
        distances = {
            i: np.sqrt((((total + unit[i]) / (k + 1) - mean) ** 2).sum())
            for i in range(len(unit))
            if i not in chosen
        }
        chosen.append(min(distances, key=lambda i: distances[i]))
    return chosen


def padded(classes: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Classes side by side; the rows beyond a class's end hold numbers that must not matter."""
    longest = max(map(len, classes))
    features = torch.full((len(classes), longest, classes[0].shape[1]), 7.0, dtype=torch.float64)
    valid = torch.zeros(len(classes), longest, dtype=torch.bool)
    for i, rows in enumerate(classes):
        features[i, : len(rows)] = torch.from_numpy(rows)
        valid[i, : len(rows)] = True
    return features, valid


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 14), min_size=1, max_size=5),
    dim=st.integers(2, 6),
    seed=st.integers(0, 2**16),
    offset=st.sampled_from([0.0, 1.5]),
)
def test_herding_by_hand(sizes: list[int], dim: int, seed: int, offset: float) -> None:
    """Uneven classes, each followed to its last image."""
    rng = np.random.default_rng(seed)
    classes = [rng.normal(size=(size, dim)) + offset for size in sizes]
    picks = herd(*padded(classes), max(sizes))
    for rows, row_picks in zip(classes, picks.tolist(), strict=True):
        found = row_picks[: len(rows)]
        if len(rows) == 2:  # both are equally far from their mean: rounding chooses
            assert sorted(found) == [0, 1]
        else:
            assert found == slow_herd(rows, len(rows))


def test_herding_prefers_the_image_nearest_to_the_mean() -> None:
    """Directions of 0, 30 and 60 degrees: the middle one first, then it does not matter which."""
    angles = np.deg2rad([0, 30, 60])
    features = torch.tensor(np.stack([np.cos(angles), np.sin(angles)], 1))[None] * 5
    assert herd(features, torch.ones(1, 3, dtype=torch.bool), 1).tolist() == [[1]]


def test_the_length_of_a_feature_does_not_matter() -> None:
    features, valid = padded([np.random.default_rng(0).normal(size=(20, 5))])
    lengths = torch.from_numpy(np.random.default_rng(1).uniform(0.01, 100, (1, 20, 1)))
    assert torch.equal(herd(features, valid, 10), herd(features * lengths, valid, 10))


def test_a_feature_of_zero_is_no_direction() -> None:
    """It stays at the origin, and is picked when the origin is what the mean needs."""
    rows = np.random.default_rng(0).normal(size=(12, 4))
    rows[5] = 0
    found = herd(*padded([rows]), 12)[0].tolist()
    assert found == slow_herd(rows, 12)
    assert found[0] == 5  # the mean of these rows is nearer to the origin than to any direction
    aside = rows + 1.5
    aside[5] = 0
    assert herd(*padded([aside]), 12)[0].tolist() == slow_herd(aside, 12)  # here it is the fourth


def test_features_that_hardly_differ_are_told_apart() -> None:
    """As those of a network that has just begun: in float32 the distances would be equal."""
    rows = (1 + 1e-4 * np.random.default_rng(0).normal(size=(40, 8))).astype(np.float32)
    found = herd(torch.from_numpy(rows)[None], torch.ones(1, 40, dtype=torch.bool), 20)[0].tolist()
    assert found == slow_herd(rows, 20)


def test_each_image_is_picked_once_even_among_copies() -> None:
    features = torch.ones(2, 6, 3)
    picks = herd(features, torch.ones(2, 6, dtype=torch.bool), 6)
    assert [sorted(row) for row in picks.tolist()] == [list(range(6))] * 2


def test_herding_for_nothing() -> None:
    assert herd(torch.ones(3, 4, 2), torch.ones(3, 4, dtype=torch.bool), 0).shape == (3, 0)


# ---- the memory -------------------------------------------------------------------------------------------


@pytest.fixture
def all_features() -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(60, 5)))


@pytest.fixture
def new_classes() -> list[Tensor]:
    """Uneven classes whose images lie scattered."""
    order = torch.from_numpy(np.random.default_rng(1).permutation(60))
    return list(order.split([12, 5, 20, 1, 9, 13]))


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def update(kept: ExemplarMemory, new: list[Tensor], features_of: FeaturesOf, rng: torch.Generator) -> None:
    """What the trainer does after a phase."""
    kept.by_class = kept.choose(kept.by_class, new, features_of, rng)


def look_up(features: Tensor) -> FeaturesOf:
    return lambda indices: features[indices]


def test_the_memory_herds_each_class(all_features: Tensor, new_classes: list[Tensor]) -> None:
    kept = ExemplarMemory(MemoryRule.parse("per_class:7"), "herding")
    assert kept.indices().tolist() == []
    update(kept, new_classes, look_up(all_features), rng())
    assert kept.counts() == [7, 5, 7, 1, 7, 7]
    for own, chosen in zip(new_classes, kept.by_class, strict=True):
        expected = slow_herd(all_features[own].numpy(), min(7, len(own)))
        if len(own) > 7:
            assert chosen.tolist() == own[expected].tolist()
        else:
            assert sorted(chosen.tolist()) == sorted(own.tolist())
    assert kept.indices().tolist() == [index for chosen in kept.by_class for index in chosen.tolist()]


@pytest.mark.parametrize("limit", [1, 5 * 12, 2 * 5 * 20, 3 * 5 * 20, 10**9])
def test_chunks_do_not_change_the_picks(
    all_features: Tensor, new_classes: list[Tensor], monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    blocks: list[int] = []

    def watched(features: Tensor, valid: Tensor, count: int) -> Tensor:
        blocks.append(len(features))
        return herd(features, valid, count)

    whole = ExemplarMemory(MemoryRule.parse("per_class:7"), "herding")
    update(whole, new_classes, look_up(all_features), rng())
    monkeypatch.setattr(memory, "CHUNK_ELEMENTS", limit)
    monkeypatch.setattr(memory, "herd", watched)
    chunked = ExemplarMemory(MemoryRule.parse("per_class:7"), "herding")
    update(chunked, new_classes, look_up(all_features), rng())
    assert sum(blocks) == 6
    assert (len(blocks) == 6) == (limit <= 60)
    assert (len(blocks) == 1) == (limit == 10**9)
    for one, other in zip(whole.by_class, chunked.by_class, strict=True):
        assert torch.equal(one, other)


def test_features_are_asked_for_once_an_image(all_features: Tensor, new_classes: list[Tensor]) -> None:
    asked: list[int] = []

    def features_of(indices: Tensor) -> Tensor:
        asked.extend(indices.tolist())
        return all_features[indices]

    kept = ExemplarMemory(MemoryRule.parse("per_class:3"), "herding")
    update(kept, new_classes, features_of, rng())
    assert sorted(asked) == list(range(60))


@pytest.mark.parametrize("selection", ["herding", "random"])
def test_per_class_never_touches_old_sets(
    all_features: Tensor, new_classes: list[Tensor], selection: str
) -> None:
    kept = ExemplarMemory(MemoryRule.parse("per_class:4"), selection)
    update(kept, new_classes[:2], look_up(all_features), rng(0))
    first = [chosen.clone() for chosen in kept.by_class]
    # Other features by now: old classes must not be chosen again.
    update(kept, new_classes[2:], look_up(-all_features.flip(0)), rng(1))
    assert kept.counts() == [4, 4, 4, 1, 4, 4]
    for before, after in zip(first, kept.by_class, strict=False):
        assert torch.equal(before, after)


@pytest.mark.parametrize("selection", ["herding", "random"])
def test_a_fixed_total_shrinks_old_sets_to_their_best(
    all_features: Tensor, new_classes: list[Tensor], selection: str
) -> None:
    kept = ExemplarMemory(MemoryRule.parse("total:20"), selection)
    update(kept, new_classes[:2], look_up(all_features), rng(0))
    assert kept.counts() == [10, 5]
    first = [chosen.clone() for chosen in kept.by_class]
    update(kept, new_classes[2:], look_up(all_features), rng(1))
    assert kept.counts() == [3, 3, 3, 1, 3, 3]
    for before, after in zip(first, kept.by_class, strict=False):
        assert torch.equal(before[:3], after)


@pytest.mark.parametrize("selection", ["herding", "random"])
def test_choosing_changes_nothing(all_features: Tensor, new_classes: list[Tensor], selection: str) -> None:
    """A balanced stage looks ahead at what would be kept; the memory itself is set by the trainer."""
    memory_of_two = ExemplarMemory(MemoryRule.parse("total:20"), selection)
    update(memory_of_two, new_classes[:2], look_up(all_features), rng(0))
    before = [chosen.clone() for chosen in memory_of_two.by_class]
    memory_of_two.choose(memory_of_two.by_class, new_classes[2:], look_up(all_features), rng(1))
    assert memory_of_two.counts() == [10, 5]
    for one, same in zip(before, memory_of_two.by_class, strict=True):
        assert torch.equal(one, same)


def test_random_selection(all_features: Tensor, new_classes: list[Tensor]) -> None:
    def chosen_with(seed: int) -> list[list[int]]:
        kept = ExemplarMemory(MemoryRule.parse("per_class:8"), "random")
        update(kept, new_classes, look_up(all_features), rng(seed))
        return [chosen.tolist() for chosen in kept.by_class]

    one = chosen_with(3)
    assert one == chosen_with(3)
    assert one != chosen_with(4)
    for own, chosen in zip(new_classes, one, strict=True):
        assert len(chosen) == min(8, len(own))
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= set(own.tolist())


@pytest.mark.parametrize("selection", ["herding", "random"])
@pytest.mark.parametrize("rule", ["per_class:0", "total:5"])
def test_a_quota_of_zero_keeps_nothing(
    all_features: Tensor, new_classes: list[Tensor], selection: str, rule: str
) -> None:
    kept = ExemplarMemory(MemoryRule.parse(rule), selection)
    update(kept, new_classes, look_up(all_features), rng())
    assert kept.counts() == [0] * 6
    assert kept.indices().dtype == torch.long
    assert kept.indices().tolist() == []
