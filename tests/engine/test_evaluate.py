"""Both classifiers against loops that do what their papers say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.data.images import ImageData
from phasezero.engine.evaluate import evaluate, exemplar_means, observe
from phasezero.engine.trainer import Trainer
from phasezero.nets import Output


def slow_mean(features: list[list[float]]) -> list[float]:
    """iCaRL Sec. 3.1: every vector is made as long as one, and so is their mean."""

    def unit(vector: list[float]) -> list[float]:
        length = sum(number * number for number in vector) ** 0.5
        return [number / length for number in vector]

    units = [unit(vector) for vector in features]
    return unit([sum(column) / len(units) for column in zip(*units, strict=True)])


def test_means_are_of_unit_features() -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(9, 5, generator=rng, dtype=torch.float64) * torch.logspace(-2, 2, 9)[:, None]
    counts, start = [2, 4, 3], 0
    found = exemplar_means(features, counts)
    for mean, count in zip(found, counts, strict=True):
        expected = slow_mean(features[start : start + count].tolist())
        assert mean.tolist() == pytest.approx(expected)
        start += count


@pytest.mark.parametrize("training", [False, True])
def test_looking_at_a_model_leaves_it_as_it_was(
    toy_data: ImageData, toy_config: object, training: bool
) -> None:
    """In between it is in evaluation mode and without half precision."""
    trainer = Trainer(toy_config(protocol__phase_sizes=[4], engine__precision="bf16"), toy_data)  # type: ignore[operator]
    model = trainer.model.train(training)
    trainer.method.grow(model, trainer.stream.phases[0], torch.Generator())
    assert model.half_precision == torch.bfloat16

    def state(output: Output) -> Tensor:
        assert not model.training
        assert model.half_precision is None
        return output.features

    observe(model, trainer.test, torch.arange(3), 2, state)
    assert model.training == training
    assert model.half_precision == torch.bfloat16


def test_the_nearest_mean_is_the_nearest(toy_data: ImageData, toy_config: object) -> None:
    config = toy_config(protocol__phase_sizes=[4])  # type: ignore[operator]
    trainer = Trainer(config, toy_data)
    list(trainer.run())
    counts = trainer.memory.counts()
    means = exemplar_means(trainer.train_features(trainer.memory.indices()), counts)
    indices = torch.cat(trainer.test_by_class[:4])
    found = evaluate(trainer.model, trainer.test, indices, 7, means)

    trainer.model.eval()
    expected, truth, largest = [], [], []
    for index in indices.tolist():
        ticket = next(iter(trainer.test.test_batches(torch.tensor([index]), 1)))
        with torch.no_grad():
            output = trainer.model(trainer.test.prepare(ticket)[0])
        feature: Tensor = output.features[0] / output.features[0].norm()
        distances = [float((feature - mean).square().sum()) for mean in means]
        expected.append(int(np.argmin(distances)))
        largest.append(int(output.logits[0].argmax()))
        truth.append(int(trainer.test.labels[index]))
    assert found.nearest_mean is not None
    assert found.nearest_mean.tolist() == expected
    assert found.head.tolist() == largest
    assert found.truth.tolist() == truth
    assert len(set(expected)) > 1
