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
from phasezero.nets import IncrementalModel, Output

Labels = npt.NDArray[np.int64]

CPU_BATCH = 64  # works out of its caches: 500 take a third longer


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
        batch_size = min(batch_size, CPU_BATCH)
    with torch.inference_mode():
        batches = source.test_batches(indices, batch_size)
        parts = [take(model(source.prepare(plan)[0])) for plan in batches]
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
    takes: dict[str, Callable[[Output], Tensor]] = {"head": lambda output: output.logits.argmax(1)}
    if means is not None:
        # For unit vectors the nearest mean has the largest product.
        takes["nearest_mean"] = lambda output: (F.normalize(output.features, dim=1) @ means.T).argmax(1)
    if model.head.corrects_bias:
        takes["uncorrected"] = lambda output: output.similarities.argmax(1)

    def answers(output: Output) -> Tensor:
        return torch.stack([take(output) for take in takes.values()], 1)

    found = evaluate_images(model, source, indices, batch_size, answers).cpu().numpy().T
    return Predictions(source.labels[indices].numpy(), dict(zip(takes, found, strict=True)))
