"""Methods on a frozen phase 0: their classifiers against slow references, exact after any sequence of phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.data.images import ImageData
from phasezero.data.loader import BatchPlans
from phasezero.engine.trainer import Trainer
from phasezero.methods import METHODS
from phasezero.methods.frozen import FrozenHead
from phasezero.methods.ridge import STRENGTHS, RidgeHead
from phasezero.presets import preset
from phasezero.records.run import comparable_part
from phasezero.runs.run import run
from samples import Diary, Make, StopAfter, StoppedError, train

FROZEN = ("fecam", "ncm", "ridge", "slda")
CLASSES, SIZE = 12, 7


def make_head(name: str, **options: Any) -> FrozenHead:
    """Return a head that has grown by no class yet."""
    method = METHODS[name]
    head = method(method.Options(**options)).make_head(SIZE)
    assert isinstance(head, FrozenHead)
    return head.eval()


def clusters(images: int = 30) -> list[Tensor]:
    """Return features of classes that overlap."""
    rng = torch.Generator().manual_seed(3)
    return [torch.randn(images + k, SIZE, generator=rng) + torch.randn(SIZE, generator=rng) for k in range(CLASSES)]


def learn(head: FrozenHead, by_class: Sequence[Tensor], sizes: Sequence[int]) -> None:
    """Add the classes phase by phase."""
    old = 0
    for size in sizes:
        head.grow(size, torch.Generator().manual_seed(old))
        head.prepare(old, by_class[old : old + size], unseen=old > 0)
        for position in range(old, old + size):
            head.add(position, by_class[position])
        head.update()
        old += size


def ridge_by_hand(features: Sequence[np.ndarray], strength: float) -> np.ndarray:
    """Solve ridge regression on all images at once."""
    x = np.concatenate(features)
    y = np.concatenate([np.eye(len(features))[[k] * len(own)] for k, own in enumerate(features)])
    gram = x.T @ x
    return np.linalg.solve(gram + strength * np.trace(gram) / len(gram) * np.eye(len(gram)), x.T @ y).T


OPTIONS: dict[str, dict[str, Any]] = {"fecam": {}, "ncm": {}, "ridge": {"width": 40, "strength": 1e-3}, "slda": {}}


@pytest.mark.parametrize("name", FROZEN)
@pytest.mark.parametrize("sizes", [(4, 4, 4), (5, 7), (1,) * 12, (2, 1, 9)])
def test_any_sequence_of_phases_in_any_order_gives_the_classifier_of_all_images(
    name: str, sizes: tuple[int, ...]
) -> None:
    by_class = clusters()
    at_once = make_head(name, **OPTIONS[name])
    learn(at_once, by_class, [CLASSES])
    weights, offsets = at_once.solve()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(CLASSES).tolist()
        other = make_head(name, **OPTIONS[name])
        learn(other, [by_class[k] for k in order], sizes)
        own_weights, own_offsets = other.solve()
        torch.testing.assert_close(own_weights, weights[order], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(own_offsets, offsets[order], rtol=1e-9, atol=1e-9)
        assert own_weights.dtype == torch.float64


@pytest.mark.parametrize("width", [0, 40])
def test_ridge_is_ridge_regression_to_one_hot_labels(width: int) -> None:
    by_class = clusters()
    head = make_head("ridge", width=width, strength=0.02)
    learn(head, by_class, (5, 7))
    assert isinstance(head, RidgeHead)
    features = [own.numpy() for own in by_class]
    if width:
        assert 0.8 < head.projection.std() < 1.2
        features = [np.maximum(own @ head.projection.numpy(), 0) for own in features]
    wanted = ridge_by_hand([own.astype(np.float64) for own in features], 0.02)
    np.testing.assert_allclose(head.solve()[0].numpy(), wanted, rtol=1e-6, atol=1e-9)
    scores = head(by_class[3]).logits
    np.testing.assert_allclose(scores.numpy(), features[3] @ wanted.T, rtol=1e-3, atol=1e-4)


def test_slda_has_class_means_and_one_shared_covariance() -> None:
    by_class = clusters()
    head = make_head("slda", shrinkage=0.05)
    learn(head, by_class, (3, 9))
    features = [own.double().numpy() for own in by_class]
    means = [own.mean(0) for own in features]
    scatter = sum(np.outer(x - mean, x - mean) for own, mean in zip(features, means, strict=True) for x in own)
    precision = np.linalg.inv(0.95 * scatter / sum(map(len, features)) + 0.05 * np.eye(SIZE))
    for x in features[5][:4]:
        scores = [x @ precision @ mean - mean @ precision @ mean / 2 for mean in means]
        found = head(torch.from_numpy(x[None]).float()).logits[0]
        np.testing.assert_allclose(found.numpy(), scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("power", "shrinkage"), [(0.5, 1.0), (1.0, 0.1)])
def test_fecam_has_the_mahalanobis_distance_of_each_class(power: float, shrinkage: float) -> None:
    by_class = clusters()
    head = make_head("fecam", power=power, shrinkage=shrinkage)
    learn(head, by_class, (5, 7))
    transformed = [np.sign(own) * np.abs(own) ** power for own in (one.double().numpy() for one in by_class)]
    wanted = np.zeros((4, CLASSES))
    for k, own in enumerate(transformed):
        covariance = np.cov(own.T)
        rest = [covariance[i, j] for i in range(SIZE) for j in range(SIZE) if i != j]
        shrunk = covariance.copy()
        for i in range(SIZE):
            for j in range(SIZE):
                shrunk[i, j] += shrinkage * (np.mean(np.diag(covariance)) if i == j else np.mean(rest))
        deviations = np.sqrt(np.diag(shrunk))
        inverse = np.linalg.inv(shrunk / np.outer(deviations, deviations))
        for row, x in enumerate(transformed[5][:4]):
            gap = x / np.linalg.norm(x) - own.mean(0) / np.linalg.norm(own.mean(0))
            wanted[row, k] = -gap @ inverse @ gap
    np.testing.assert_allclose(head(by_class[5][:4]).logits.numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_fecam_with_one_image_per_class_finds_the_nearest_unit_feature() -> None:
    by_class = [own[:1] for own in clusters()]
    head = make_head("fecam")
    learn(head, by_class, (6, 6))
    scores = head(torch.cat(by_class)).logits
    unit = torch.nn.functional.normalize(torch.cat([own.sign() * own.abs().sqrt() for own in by_class]), dim=1)
    torch.testing.assert_close(scores, -(torch.cdist(unit, unit) ** 2), rtol=1e-4, atol=1e-4)


def test_ncm_finds_the_nearest_mean_of_unit_features() -> None:
    by_class = clusters()
    head = make_head("ncm")
    learn(head, by_class, (6, 6))
    unit = [own / own.norm(dim=1, keepdim=True) for own in by_class]
    means = [own.mean(0) / own.mean(0).norm() for own in unit]
    for x in torch.cat(unit):
        distances = [float((x - mean).norm()) for mean in means]
        assert int(head(3 * x[None]).logits.argmax()) == int(np.argmin(distances))


def test_lambda_is_the_best_of_a_grid_on_a_tenth_of_the_new_classes_training_images() -> None:
    by_class, sizes = clusters(40), (6, 3, 3)
    head = make_head("ridge", width=0)
    learn(head, by_class, sizes)
    features = [own.double().numpy() for own in by_class]
    hits = np.zeros(len(STRENGTHS))
    for old, seen in ((6, 9), (9, 12)):  # phase 0's images are known to the backbone
        fitted = [own if k < old else np.delete(own, np.s_[9::10], 0) for k, own in enumerate(features[:seen])]
        for place, strength in enumerate(STRENGTHS):
            weights = ridge_by_hand(fitted, strength)
            for k in range(old, seen):
                hits[place] += sum(int(np.argmax(weights @ x)) == k for x in features[k][9::10])
    assert isinstance(head, RidgeHead)
    assert head.hits.tolist() == hits.tolist()
    alone = make_head("ridge", width=0)
    learn(alone, by_class, [CLASSES])
    assert float(alone.strength) == 1e-2  # phase 0's images cannot choose it
    assert len(set(hits)) > 1
    assert float(head.strength) == max(s for s, hit in zip(STRENGTHS, hits, strict=True) if hit == hits.max())


def test_of_fewer_than_ten_images_the_last_helps_to_choose_lambda() -> None:
    head, by_class = make_head("ridge", width=0), clusters()
    few = [own[:3] for own in by_class]
    learn(head, few, (6, 6))
    hits = np.zeros(len(STRENGTHS))
    shown = [own.double().numpy() for own in few[:6]] + [own[:2].double().numpy() for own in few[6:]]
    for place, strength in enumerate(STRENGTHS):
        weights = ridge_by_hand(shown, strength)
        hits[place] = sum((few[k][2].double().numpy() @ weights.T).argmax() == k for k in range(6, CLASSES))
    assert head.hits.tolist() == hits.tolist()
    assert 0 < hits.max() < 6 or len(set(hits)) > 1


def test_single_images_keep_the_usual_lambda() -> None:
    head = make_head("ridge", width=0)
    before = float(head.strength)
    learn(head, [own[:1] for own in clusters()], (6, 6))
    assert float(head.strength) == before


def test_phase_zero_chooses_lambda_only_if_its_images_are_new_to_the_backbone() -> None:
    for unseen in (False, True):
        head = make_head("ridge", width=0)
        head.grow(CLASSES, torch.Generator())
        head.prepare(0, clusters(), unseen)
        assert bool(head.hits.any()) == unseen


@pytest.mark.parametrize("name", FROZEN)
def test_test_images_do_not_change_the_classifier(name: str, toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config(f"{name}/glyphs/b50s10", protocol__memory="per_class:0")
    dark = replace(toy_data, test=replace(toy_data.test, images=toy_data.test.images // 2))
    one, other = (run(config, data=data).model.state_dict() for data in (toy_data, dark))
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", FROZEN)
def test_phase_zero_is_lucirs_and_comes_from_the_store(
    name: str, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    alone = toy_config(f"{name}/glyphs/b50s10", protocol__memory="per_class:0")
    lucir = run(toy_config("lucir/glyphs/b50s10"), data=toy_data, store=tmp_path)
    heard = Diary()
    result = run(alone, data=toy_data, store=tmp_path, callback=heard)
    assert heard.epochs == []
    assert result.record["timing"]["reused_phase_zero"]
    trained_now = run(alone, data=toy_data)
    for key, weight in result.model.backbone.state_dict().items():
        assert torch.equal(weight, trained_now.model.backbone.state_dict()[key])
    assert result.record["phases"][0]["loss"] == lucir.record["phases"][0]["loss"]
    assert [phase["accuracy"] for phase in result.record["phases"]] == [
        phase["accuracy"] for phase in trained_now.record["phases"]
    ]


def test_the_record_counts_what_is_kept_instead_of_exemplars(toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config("ridge/glyphs/b50s10", protocol__memory="per_class:0", method__width=100)
    result = run(config, data=toy_data)
    size = result.model.head.feature_size
    for phase in result.record["phases"]:
        classes = phase["seen_classes"]
        in_float64 = classes + 100 * classes + 100 * 100 + 1 + len(STRENGTHS)
        in_float32 = 100 * classes + classes + size * 100
        assert phase["statistics"] == {"numbers": in_float64 + in_float32, "bytes": 8 * in_float64 + 4 * in_float32}
        assert phase["memory"]["total"] == 0
        assert (phase["loss"] == {}) == (phase["phase"] > 0)
    plain = train(toy_config(), data=toy_data)
    assert all("statistics" not in phase for phase in plain["phases"])


def test_classes_one_at_a_time_end_where_one_large_phase_ends(toy_config: Make, toy_data: ImageData) -> None:
    name, settings = "ridge/glyphs/b50s10", {"protocol__memory": "per_class:0", "method__strength": 1e-2}
    ends = []
    for sizes in ([4, 4], [4, 1, 1, 1, 1]):
        result = run(toy_config(name, protocol__phase_sizes=sizes, method__width=64, **settings), data=toy_data)
        ends.append((result.record["phases"][-1]["accuracy"], result.model.head.classifier))
    assert ends[0][0] == ends[1][0]
    torch.testing.assert_close(ends[0][1], ends[1][1], rtol=1e-4, atol=1e-6)


def test_presets_keep_no_exemplars() -> None:
    for name in FROZEN:
        assert preset(f"{name}/cifar100/b50s10").protocol.memory == "per_class:0"
    assert preset("ridge/cifar100/b50s10").method.width == 8192


@pytest.mark.parametrize("memory", ["per_class:0", "per_class:3"])
def test_each_test_image_passes_the_frozen_backbone_once(
    memory: str, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    config = toy_config("ridge/glyphs/b50s10", protocol__memory=memory)
    whole = Trainer(config, toy_data)
    shown = Counter[int]()
    batches = whole.test.test_batches

    def counted(indices: Tensor, batch_size: int) -> BatchPlans:
        shown.update(indices.tolist())
        return batches(indices, batch_size)

    whole.test.test_batches = counted  # type: ignore[method-assign]
    results = list(whole.run())
    assert shown == Counter(range(len(toy_data.test)))
    for result in results:
        again = whole.predict(whole.test, torch.cat(whole.test_by_class[: result.phase.seen]))
        if result.phase.index == 2:  # the model is that of the last phase
            assert {name: found.tolist() for name, found in result.predictions.by.items()} == {
                name: found.tolist() for name, found in again.by.items()
            }
            assert ("nearest_mean" in again.by) == (memory != "per_class:0")


def test_a_resumed_run_has_the_same_accuracies(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    config, checkpoint = toy_config("ridge/glyphs/b50s10"), tmp_path / "checkpoint.safetensors"
    with pytest.raises(StoppedError):
        train(config, data=toy_data, callback=StopAfter(2), checkpoint=checkpoint)
    assert comparable_part(train(config, data=toy_data, checkpoint=checkpoint)) == comparable_part(
        train(config, data=toy_data)
    )


def test_the_fast_variant_has_a_short_cosine_schedule_in_phase_zero_only() -> None:
    fast, usual = (preset(f"{name}+augment/cifar100/b50s10") for name in ("ridge-fast", "ridge"))
    first = replace(usual.training.first, epochs=60, shape="cosine", milestones=(30, 45))
    assert fast.training == replace(usual.training, first=first)
    assert (fast.initial, fast.network, fast.protocol) == (usual.initial, usual.network, usual.protocol)


def test_a_lambda_that_is_chosen_once_does_not_depend_on_the_order_of_later_classes() -> None:
    by_class = clusters(40)
    turned = [*by_class[:6], *reversed(by_class[6:])]
    heads = [make_head("ridge", width=0, choose_once=once) for once in (True, True, False)]
    for head, classes in zip(heads, (by_class, turned, by_class), strict=True):
        learn(head, classes, (6, 2, 2, 2))
    straight, reverse, every = heads
    assert float(straight.strength) == float(reverse.strength)
    one = make_head("ridge", width=0, choose_once=True)
    learn(one, by_class, (6, 2))
    assert one.hits.tolist() == straight.hits.tolist() != every.hits.tolist()
    features = [own.double().numpy() for own in by_class[:8]]
    fitted = [*features[:6], *(np.delete(own, np.s_[9::10], 0) for own in features[6:])]
    errors = []
    for strength in STRENGTHS:
        weights = ridge_by_hand(fitted, strength)
        held_out = [(weights @ x, k) for k in (6, 7) for x in features[k][9::10]]
        errors.append(sum(np.square(scores - np.eye(8)[k]).sum() for scores, k in held_out))
    assert np.allclose(-one.hits.numpy(), errors, atol=1e-9)
    assert float(one.strength) == max(
        s for s, error in zip(STRENGTHS, errors, strict=True) if error <= 1.02 * min(errors)
    )
