"""Both classifiers against loops that do what their papers say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero.data.images import ImageData
from phasezero.engine.evaluate import evaluate_images, exemplar_means, predict
from phasezero.engine.trainer import Trainer
from phasezero.nets import Output
from samples import Make


def slow_mean(features: list[list[float]]) -> list[float]:
    """iCaRL Sec. 3.1: every vector is scaled to length 1, and so is their mean."""

    def unit(vector: list[float]) -> list[float]:
        length = sum(number * number for number in vector) ** 0.5
        return [number / length for number in vector]

    units = [unit(vector) for vector in features]
    return unit([sum(column) / len(units) for column in zip(*units, strict=True)])


def test_means_are_of_unit_features() -> None:
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(9, 5, generator=rng, dtype=torch.float64) * torch.logspace(-2, 2, 9)[:, None]
    counts, start = [2, 4, 3], 0
    for mean, count in zip(exemplar_means(features, counts), counts, strict=True):
        assert mean.tolist() == pytest.approx(slow_mean(features[start : start + count].tolist()))
        start += count


@pytest.mark.parametrize("training", [False, True])
def test_evaluation_leaves_a_model_as_it_was(toy_data: ImageData, toy_config: Make, training: bool) -> None:
    """In between it is in evaluation mode and without half precision."""
    trainer = Trainer(toy_config(protocol__phase_sizes=[4], engine__precision="bf16"), toy_data)
    model = trainer.model.train(training)
    trainer.grow(trainer.stream.phases[0])
    assert model.half_precision == torch.bfloat16

    def state(output: Output) -> Tensor:
        assert not model.training
        assert model.half_precision is None
        return output.features

    evaluate_images(model, trainer.test, torch.arange(3), 2, state)
    assert model.training == training
    assert model.half_precision == torch.bfloat16


def test_the_nearest_mean_is_the_nearest(toy_data: ImageData, toy_config: Make) -> None:
    trainer = Trainer(toy_config(protocol__phase_sizes=[4]), toy_data)
    list(trainer.run())
    means = exemplar_means(trainer.train_features(trainer.memory.indices()), trainer.memory.counts())
    indices = torch.cat(trainer.test_by_class[:4])
    truth, by = predict(trainer.model, trainer.test, indices, 7, means)

    trainer.model.eval()
    nearest, largest, labels = [], [], []
    for index in indices.tolist():
        plan = next(iter(trainer.test.test_batches(torch.tensor([index]), 1)))
        with torch.no_grad():
            output = trainer.model(trainer.test.prepare(plan)[0])
        feature: Tensor = output.features[0] / output.features[0].norm()
        nearest.append(int(np.argmin([float((feature - mean).square().sum()) for mean in means])))
        largest.append(int(output.logits[0].argmax()))
        labels.append(int(trainer.test.labels[index]))
    assert by["nearest_mean"].tolist() == nearest
    assert by["head"].tolist() == largest
    assert truth.tolist() == labels
    assert len(set(nearest)) > 1
