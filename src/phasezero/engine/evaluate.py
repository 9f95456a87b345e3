"""Looking at a trained model: features of images, and both classifiers' answers on the test images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    truth: Labels
    head: Labels
    nearest_mean: Labels | None
    """None where there are no exemplars to take means of."""
    uncorrected: Labels | None
    """The head's answers without its bias correction; None where it has none."""


def observe(
    model: IncrementalModel,
    source: ImageSource,
    indices: Tensor,
    batch_size: int,
    take: Callable[[Output], Tensor],
) -> Tensor:
    """`take` of the model's output on each image (test view, evaluation mode), in the order given."""
    was_training, half_precision = model.training, model.half_precision
    model.eval()
    model.half_precision = None  # what is reported or kept has no half precision; it costs little
    if next(model.parameters()).device.type == "cpu":
        batch_size = min(batch_size, CPU_BATCH)
    with torch.inference_mode():
        batches = source.test_batches(indices, batch_size)
        parts = [take(model(source.prepare(ticket)[0])) for ticket in batches]
    model.train(was_training)
    model.half_precision = half_precision
    return torch.cat(parts)


def pooled_features(model: IncrementalModel, source: ImageSource, indices: Tensor, batch_size: int) -> Tensor:
    return observe(model, source, indices, batch_size, lambda output: output.features)


def exemplar_means(features: Tensor, counts: Sequence[int]) -> Tensor:
    """iCaRL's class means: of the exemplars' unit features [sum of counts, d], made unit again."""
    means = [part.mean(0) for part in F.normalize(features, dim=1).split(list(counts))]
    return F.normalize(torch.stack(means), dim=1)


def evaluate(
    model: IncrementalModel, source: ImageSource, indices: Tensor, batch_size: int, means: Tensor | None
) -> Predictions:
    """The head's answer is its largest logit; nearest-mean's the class mean nearest to the unit feature."""

    def answers(output: Output) -> Tensor:
        head = output.logits.argmax(1)
        # Between unit vectors the nearest is the one with the largest product.
        nearest = head if means is None else (F.normalize(output.features, dim=1) @ means.T).argmax(1)
        return torch.stack([head, nearest, output.similarities.argmax(1)], 1)

    head, nearest, uncorrected = observe(model, source, indices, batch_size, answers).cpu().numpy().T
    return Predictions(
        truth=source.labels[indices].numpy(),
        head=head,
        nearest_mean=nearest if means is not None else None,
        uncorrected=uncorrected if model.head.corrects_bias else None,
    )
