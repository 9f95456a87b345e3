"""Evaluation: features of images, and the predictions of every classifier on test images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.loader import ImageSource
from phasezero.nets import Features, IncrementalModel, Output

Labels = npt.NDArray[np.int64]

# A CPU works out of its caches: 500 images of CIFAR-100 take a third longer than 64. Of photos 64 take three times as
# long as 4, because the memory of large maps goes back to the system after each layer.
CPU_BATCH, CPU_PIXELS = 64, 200_000
FEATURES_AT_ONCE = 4096  # a ridge classifier maps each feature to thousands of numbers


class Predictions(NamedTuple):
    """Predictions on test images."""

    truth: Labels
    by: Mapping[str, Labels]
    """By classifier: `head`, `nearest_mean` if there are exemplars, `uncorrected` if the head corrects a bias."""


def evaluate_images(
    model: IncrementalModel, source: ImageSource, indices: Tensor, batch_size: int, take: Callable[[Output], Tensor]
) -> Tensor:
    """Return `take` of the model's output on each image (test view, evaluation mode), in the order given."""
    was_training, half_precision = model.training, model.half_precision
    model.eval()
    model.half_precision = None  # numbers in records are never in half precision; it costs little
    if next(model.parameters()).device.type == "cpu":
        batch_size = min(batch_size, CPU_BATCH, max(1, CPU_PIXELS // source.size**2))
    with torch.inference_mode():
        parts = []
        for plan in source.test_batches(indices, batch_size):
            parts.append(take(model(source.prepare(plan)[0])))
            if source.watch is not None:
                source.watch(len(parts[-1]))
    model.train(was_training)
    model.half_precision = half_precision
    return torch.cat(parts)


def pooled_features(model: IncrementalModel, source: ImageSource, indices: Tensor, batch_size: int) -> Tensor:
    """Return features [n, d] of images."""
    return evaluate_images(model, source, indices, batch_size, lambda output: output.features)


def exemplar_means(features: Tensor, counts: Sequence[int]) -> Tensor:
    """Return iCaRL's class means of unit exemplar features [sum of counts, d], scaled to unit length again."""
    means = [part.mean(0) for part in F.normalize(features, dim=1).split(list(counts))]
    return F.normalize(torch.stack(means), dim=1)


def predict(
    model: IncrementalModel, source: ImageSource, indices: Tensor, batch_size: int, means: Tensor | None
) -> Predictions:
    """Classify images by the largest logit of the head and by the class mean nearest to the unit feature."""
    classifiers = _classifiers(model, means)

    def answers(output: Output) -> Tensor:
        return torch.stack([classify(output) for classify in classifiers.values()], 1)

    found = evaluate_images(model, source, indices, batch_size, answers)
    return _predictions(source, indices, classifiers, found)


def predict_from_features(
    model: IncrementalModel, source: ImageSource, indices: Tensor, features: Tensor, means: Tensor | None
) -> Predictions:
    """Classify images whose pooled features are known, as `predict` does."""
    classifiers, was_training = _classifiers(model, means), model.training
    model.eval()
    with torch.inference_mode():
        outputs = (model.classify(Features(part, ())) for part in features.split(FEATURES_AT_ONCE))
        found = [torch.stack([classify(output) for classify in classifiers.values()], 1) for output in outputs]
    model.train(was_training)
    return _predictions(source, indices, classifiers, torch.cat(found))


Classifiers = Mapping[str, Callable[[Output], Tensor]]


def _classifiers(model: IncrementalModel, means: Tensor | None) -> Classifiers:
    """Return what turns outputs into class positions, by classifier."""
    takes: dict[str, Callable[[Output], Tensor]] = {"head": lambda output: output.logits.argmax(1)}
    if means is not None:
        # For unit vectors the nearest mean has the largest product.
        takes["nearest_mean"] = lambda output: (F.normalize(output.features, dim=1) @ means.T).argmax(1)
    if model.head.corrects_bias:
        takes["uncorrected"] = lambda output: output.similarities.argmax(1)
    return takes


def _predictions(source: ImageSource, indices: Tensor, classifiers: Classifiers, found: Tensor) -> Predictions:
    by = dict(zip(classifiers, found.cpu().numpy().T, strict=True))
    return Predictions(source.labels[indices].numpy(), by)
