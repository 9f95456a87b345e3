"""An example plug-in: a method, a phase-0 strategy, a data set and a network, each a few lines.

phasezero --plugin examples/plugin/phasezero_example.py run distil+spread/stripes/b4s2
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero import (
    Backbone,
    Batch,
    Features,
    ImageData,
    Method,
    MethodOptions,
    Phase,
    Recipe,
    Schedule,
    StrategyOptions,
    Term,
    Training,
    register_data,
    register_initial,
    register_method,
    register_network,
)


@register_method("distil", "features stay where the old model had them")
class Distil(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "distil"
        weight: float = 1.0

    label = "Distil"
    options: Options

    def make_loss(self, phase: Phase):
        def loss(batch: Batch) -> Tensor:
            value = F.cross_entropy(batch.output.logits, batch.labels)
            if batch.teacher is not None:
                value = value + self.options.weight * F.mse_loss(batch.output.features, batch.teacher.features)
            return value

        return loss


@register_initial("spread", "features of a batch lie far apart")
class Spread(Term):
    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "spread"
        weight: float = 0.1

    def __call__(self, batch: Batch) -> Tensor:
        unit = F.normalize(batch.output.features, dim=1)
        return (unit @ unit.T).square().mean()


@register_network("tiny", "two convolutions, for images of any size")
class Tiny(Backbone):
    def __init__(self, *, channels: int = 3, last_relu: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, 16, 3, stride=2, padding=1)
        self.second = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.last_relu, self.feature_size = last_relu, 32

    def forward(self, images: Tensor) -> Features:
        early = self.first(images).relu()
        late = self.second(early)
        late = late.relu() if self.last_relu else late
        return Features(late.mean((2, 3)), (early, late))


def draw(images_per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw eight classes of stripes, each with its own direction, under noise."""
    rng, labels = np.random.default_rng(seed), np.repeat(np.arange(8), images_per_class)
    rows, columns = np.mgrid[0:12, 0:12]
    waves = [np.sin(rows * np.cos(angle) + columns * np.sin(angle)) for angle in np.pi * labels / 8]
    images = 128 + 80 * np.stack(waves) + rng.normal(0, 20, (len(labels), 12, 12))
    return images.clip(0, 255).astype(np.uint8), labels


@register_data(
    "stripes",
    "stripes in eight directions, 12 x 12",
    recipe=Recipe("tiny", Training(*2 * (Schedule(epochs=3, milestones=(2,), batch_size=32),)), base=4, steps=(2,)),
    size=(8, 20),
)
def load_stripes(root: Path, argument: str) -> ImageData:
    return ImageData.from_arrays(*draw(20, seed=0), *draw(10, seed=1), name="stripes", padding=1, flip=False)
