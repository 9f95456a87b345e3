"""Exemplars: quotas, herding against the greedy rule written out, and what happens to the sets of old classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from phasezero import memory
from phasezero.errors import UserError
from phasezero.memory import ExemplarMemory, MemoryRule, herd


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
    ],
)
def test_quota(text: str, seen: int, quota: int) -> None:
    assert MemoryRule.parse(text).quota(seen) == quota


@pytest.mark.parametrize(
    "text", ["per_class", "per_class:", "per_class:-1", "total:1.5", "total:many", "total:20:3", "total:" + "9" * 5000]
)
def test_a_rule_without_a_count_is_rejected(text: str) -> None:
    with pytest.raises(UserError, match="per_class:20 or total:2000") as caught:
        MemoryRule.parse(text)
    assert repr(text) in str(caught.value)


def test_unknown_rules_and_selections_are_rejected() -> None:
    with pytest.raises(UserError, match="did you mean 'per_class'"):
        MemoryRule.parse("per_clas:20")
    with pytest.raises(UserError, match="did you mean 'herding'"):
        ExemplarMemory(MemoryRule.parse("total:5"), "herdin")


def slow_herd(features: np.ndarray, count: int) -> list[int]:
    """The k-th pick brings the mean of all picks nearest to the mean of the unit features."""
    unit = [row / max(np.sqrt((row**2).sum()), 1e-12) for row in features.astype(np.float64)]
    mean = sum(unit) / len(unit)
    chosen: list[int] = []
    for k in range(count):
        total = sum((unit[i] for i in chosen), np.zeros_like(mean))
        distances = {
            i: np.sqrt((((total + unit[i]) / (k + 1) - mean) ** 2).sum()) for i in range(len(unit)) if i not in chosen
        }
        chosen.append(min(distances, key=lambda i: distances[i]))
    return chosen


def padded(classes: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Classes side by side; the rows beyond the end of a class hold numbers that must not matter."""
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
    """Classes of different sizes, each herded to its last image."""
    rng = np.random.default_rng(seed)
    classes = [rng.normal(size=(size, dim)) + offset for size in sizes]
    picks = herd(*padded(classes), max(sizes))
    for rows, row_picks in zip(classes, picks.tolist(), strict=True):
        found = row_picks[: len(rows)]
        if len(rows) == 2:  # both are equally far from their mean: rounding chooses
            assert sorted(found) == [0, 1]
        else:
            assert found == slow_herd(rows, len(rows))


def test_the_length_of_a_feature_does_not_matter() -> None:
    features, valid = padded([np.random.default_rng(0).normal(size=(20, 5))])
    lengths = torch.from_numpy(np.random.default_rng(1).uniform(0.01, 100, (1, 20, 1)))
    assert torch.equal(herd(features, valid, 10), herd(features * lengths, valid, 10))


def test_a_feature_of_zero_is_no_direction() -> None:
    """It stays at the origin and is picked where the origin brings the mean of the picks nearest to the class mean."""
    rows = np.random.default_rng(0).normal(size=(12, 4))
    rows[5] = 0
    found = herd(*padded([rows]), 12)[0].tolist()
    assert found == slow_herd(rows, 12)
    assert found[0] == 5  # the mean of these rows is nearer to the origin than to any direction
    aside = rows + 1.5
    aside[5] = 0
    assert herd(*padded([aside]), 12)[0].tolist() == slow_herd(aside, 12)  # here it is the fourth pick


def test_features_that_hardly_differ_are_distinguished() -> None:
    """Like those of an untrained network. In float32 the distances would be equal."""
    rows = (1 + 1e-4 * np.random.default_rng(0).normal(size=(40, 8))).astype(np.float32)
    found = herd(torch.from_numpy(rows)[None], torch.ones(1, 40, dtype=torch.bool), 20)[0].tolist()
    assert found == slow_herd(rows, 20)


def test_each_image_is_picked_once_even_among_copies() -> None:
    features, valid = torch.ones(2, 6, 3), torch.ones(2, 6, dtype=torch.bool)
    assert [sorted(row) for row in herd(features, valid, 6).tolist()] == [list(range(6))] * 2
    assert herd(features, valid, 0).shape == (2, 0)


FEATURES = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 5)))
CLASSES = list(torch.from_numpy(np.random.default_rng(1).permutation(60)).split([12, 5, 20, 1, 9, 13]))
"""Classes of different sizes, whose images are scattered."""
both_selections = pytest.mark.parametrize("selection", ["herding", "random"])


def update(kept: ExemplarMemory, new: list[Tensor], features: Tensor = FEATURES, seed: int = 0) -> list[Tensor]:
    """Do what the trainer does after a phase; return the exemplars."""
    rng = torch.Generator().manual_seed(seed)
    kept.by_class = kept.choose(kept.by_class, new, lambda indices: features[indices], rng)
    return kept.by_class


def memory_of(rule: str, selection: str = "herding") -> ExemplarMemory:
    return ExemplarMemory(MemoryRule.parse(rule), selection)


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_memory_herds_each_class() -> None:
    kept = memory_of("per_class:7")
    assert kept.indices().tolist() == []
    update(kept, CLASSES)
    assert kept.counts() == [7, 5, 7, 1, 7, 7]
    for own, chosen in zip(CLASSES, kept.by_class, strict=True):
        if len(own) > 7:
            assert chosen.tolist() == own[slow_herd(FEATURES[own].numpy(), 7)].tolist()
        else:
            assert sorted(chosen.tolist()) == sorted(own.tolist())
    assert kept.indices().tolist() == [index for chosen in kept.by_class for index in chosen.tolist()]


@pytest.mark.parametrize(("limit", "sizes"), [(1, [1] * 6), (45, [2, 2, 2]), (100, [5, 1]), (10**9, [6])])
def test_chunks_do_not_change_the_picks(limit: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest class has 20 images."""
    blocks: list[int] = []

    def watched(features: Tensor, valid: Tensor, count: int) -> Tensor:
        blocks.append(len(features))
        return herd(features, valid, count)

    whole = update(memory_of("per_class:7"), CLASSES)
    monkeypatch.setattr(memory, "CHUNK_IMAGES", limit)
    monkeypatch.setattr(memory, "herd", watched)
    assert same(update(memory_of("per_class:7"), CLASSES), whole)
    assert blocks == sizes


def test_features_are_computed_once_per_image() -> None:
    asked: list[int] = []

    def features_of(indices: Tensor) -> Tensor:
        asked.extend(indices.tolist())
        return FEATURES[indices]

    memory_of("per_class:0").choose([], CLASSES, features_of, torch.Generator())
    assert asked == []
    memory_of("per_class:3").choose([], CLASSES, features_of, torch.Generator())
    assert sorted(asked) == list(range(60))


@both_selections
def test_per_class_never_touches_old_sets(selection: str) -> None:
    kept = memory_of("per_class:4", selection)
    first = update(kept, CLASSES[:2])
    # The features have changed since: old classes must not be chosen again.
    after = update(kept, CLASSES[2:], -FEATURES.flip(0), seed=1)
    assert kept.counts() == [4, 4, 4, 1, 4, 4]
    assert same(after[:2], first)


@both_selections
def test_a_fixed_total_shrinks_old_sets_to_their_best(selection: str) -> None:
    kept = memory_of("total:20", selection)
    first = update(kept, CLASSES[:2])
    assert kept.counts() == [10, 5]
    # A balanced stage asks what would be kept: choosing changes nothing.
    before = [chosen.clone() for chosen in first]
    kept.choose(kept.by_class, CLASSES[2:], lambda indices: FEATURES[indices], torch.Generator())
    assert same(kept.by_class, before)
    after = update(kept, CLASSES[2:], seed=1)
    assert kept.counts() == [3, 3, 3, 1, 3, 3]
    assert same(after[:2], [chosen[:3] for chosen in before])


def test_random_selection() -> None:
    one, again, other = (update(memory_of("per_class:8", "random"), CLASSES, seed=seed) for seed in (3, 3, 4))
    assert same(one, again)
    assert not same(one, other)
    for own, chosen in zip(CLASSES, one, strict=True):
        assert len(set(chosen.tolist())) == len(chosen) == min(8, len(own))
        assert set(chosen.tolist()) <= set(own.tolist())


@both_selections
@pytest.mark.parametrize("rule", ["per_class:0", "total:5"])
def test_a_quota_of_zero_keeps_nothing(selection: str, rule: str) -> None:
    kept = memory_of(rule, selection)
    update(kept, CLASSES)
    assert kept.counts() == [0] * 6
    assert kept.indices().dtype == torch.long
    assert kept.indices().tolist() == []
