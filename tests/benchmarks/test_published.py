"""The baseline does the same work: its results equal those of the package."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from phasezero.benchmarks import published
from phasezero.initial.cwd import class_wise_decorrelation
from phasezero.memory import herd
from phasezero.methods.lucir import less_forget, margin_ranking
from phasezero.nets import NETWORKS


def test_the_loop_over_classes_is_cwd() -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(40, 12, generator=rng, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, 15, (40,), generator=rng)
    loop, gram = published.decorrelation_loop(features, labels), class_wise_decorrelation(features, labels)
    assert loop.item() == pytest.approx(gram.item(), rel=1e-10)
    (by_loop,) = torch.autograd.grad(loop, features)
    (by_gram,) = torch.autograd.grad(gram, features)
    assert torch.allclose(by_loop, by_gram, atol=1e-10)
    assert published.decorrelation_loop(features[:2], torch.tensor([0, 1])).item() == 0


def test_trying_every_image_is_herding() -> None:
    features = torch.randn(1, 30, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    picks = herd(features, torch.ones(1, 30, dtype=torch.bool), 7)[0].tolist()
    assert published.herding_loop(features[0], 7) == picks


def test_features_are_the_backbones() -> None:
    torch.manual_seed(0)
    backbone = NETWORKS["resnet-glyphs"]()
    images = np.random.default_rng(0).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    found = published.feature_loop(backbone, images, 2, torch.device("cpu"))
    whole = (torch.from_numpy(images).permute(0, 3, 1, 2) / 255.0 - 0.5) / 0.25
    with torch.no_grad():
        assert torch.allclose(found, backbone.eval()(whole).pooled, atol=1e-5)


@pytest.mark.parametrize(("new", "eta"), [(6, 0.5), (6, 0.0), (2, 0.5)])
def test_the_step_is_lucirs(new: int, eta: float) -> None:
    step = published.PublishedStep("resnet-glyphs", 6, new, torch.device("cpu"), eta)
    rng = torch.Generator().manual_seed(2)
    images, labels = torch.randn(12, 3, 28, 28, generator=rng), torch.randint(0, 6, (12,), generator=rng)
    with torch.no_grad():
        features = step.backbone(images).pooled
        cosines = F.normalize(features, dim=1) @ F.normalize(step.weights, dim=1).T
        expected = F.cross_entropy(step.scale * cosines, labels)
        if step.teacher is None:
            expected = expected + eta * class_wise_decorrelation(features, labels)
        else:
            old = step.teacher(images).pooled
            expected = expected + 5 * less_forget(features, old) + margin_ranking(cosines, labels, 4, 2, 0.5)
    before = [parameter.detach().clone() for parameter in step.backbone.parameters()]
    assert step(images, labels) == pytest.approx(expected.item(), rel=1e-4)
    moved = [not torch.equal(a, b) for a, b in zip(before, step.backbone.parameters(), strict=True)]
    assert all(moved)
    assert math.isfinite(step(images, labels))


def test_images_are_cropped_from_a_black_margin_and_flipped() -> None:
    image = np.full((1, 8, 8, 3), 255, np.uint8)
    image[0, :, :4] = 128  # darker left half
    torch.manual_seed(0)
    views = [published.AugmentedImages(image, np.zeros(1, np.int64), padding=2)[0][0] for _ in range(60)]
    assert all(view.shape == (3, 8, 8) for view in views)
    assert min(view.min().item() for view in views) == -2.0  # black, normalised
    left_is_darker = [view[:, 3, 2].mean() < view[:, 3, 5].mean() for view in views]
    assert 10 < sum(map(bool, left_is_darker)) < 50
    whole = [view for view in views if view.min() > -2]
    assert all(len(view.unique()) == 2 for view in whole)


def test_batches_go_on_and_on() -> None:
    images = np.zeros((10, 8, 8, 3), np.uint8)
    stream = published.batches(images, np.arange(10), 4)
    seen = [next(stream) for _ in range(5)]
    assert all(batch.shape == (4, 3, 8, 8) for batch, _ in seen)
    assert len(set(torch.cat([labels for _, labels in seen[:2]]).tolist())) == 8
