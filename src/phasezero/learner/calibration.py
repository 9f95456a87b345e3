"""Probabilities from scores, and a threshold below which an image belongs to no known class.

Scores of an exact classifier are no log probabilities. They are divided by a temperature (Guo et al., ICML 2017), which
minimises the negative log likelihood of held-out images. Sums of it are kept for a grid of temperatures, so phases add
up and no image is needed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from phasezero.data.files import Item
from phasezero.errors import UserError

TEMPERATURES = tuple(10 ** (step / 10) for step in range(-20, 21))
USUAL = 1.0  # without held-out images, scores are taken for logits
MOST_KEPT = 10_000
AT_ONCE = 1 << 24  # scores, of some images and all classes, that are in memory at once
HELD_OUT = 10  # every tenth image of a class calibrates probabilities


def held_out(own: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    """Split images of a class: every tenth, or the first of fewer than ten, is held out; never the only image."""
    every = min(HELD_OUT, len(own))
    held = [item for place, item in enumerate(own) if place % every == 0] if every > 1 else []
    kept = [item for place, item in enumerate(own) if every == 1 or place % every]
    return kept, held


@dataclass
class Calibration:
    """What held-out images told: sums of negative log likelihood by temperature, and their largest probabilities."""

    likelihoods: list[float] = field(default_factory=lambda: [0.0] * len(TEMPERATURES))
    confidences: list[float] = field(default_factory=list)

    @property
    def temperature(self) -> float:
        if not any(self.likelihoods):
            return USUAL
        return TEMPERATURES[self.likelihoods.index(min(self.likelihoods))]

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Add the scores [n, C] of held-out images and their classes [n]."""
        if not len(labels):
            return
        rows = max(1, AT_ONCE // scores.shape[1])
        for own, truth in zip(scores.split(rows), labels.split(rows), strict=True):
            wanted = own.double()
            for place, temperature in enumerate(TEMPERATURES):
                logs = (wanted / temperature).log_softmax(1)
                self.likelihoods[place] -= float(logs.gather(1, truth[:, None]).sum())
        found = [value for own in scores.split(rows) for value in self.probabilities(own).amax(1).tolist()]
        self.confidences = [*self.confidences, *found][-MOST_KEPT:]

    def probabilities(self, scores: Tensor) -> Tensor:
        return (scores.double() / self.temperature).softmax(1)

    def threshold(self, share: float) -> float:
        """Return the probability that this share of the held-out images of known classes did not reach."""
        if not 0 < share < 1:
            raise UserError(f"reject: a share between 0 and 1 is expected, got {share}")
        if not self.confidences:
            raise UserError("reject needs held-out images, and the model has none: learn at least two images per class")
        return float(torch.tensor(self.confidences, dtype=torch.float64).quantile(share))

    def to_dict(self) -> dict[str, Any]:
        return {"likelihoods": self.likelihoods, "confidences": self.confidences}
