"""The base of methods that freeze the backbone after phase 0 and classify by sums over features.

Phase 0 is trained like LUCIR's (a cosine head, no last ReLU), so both share stored phase-0 states. Later phases take
one pass over the new images in the test view. Sums are added class by class, so the classifier after any sequence of
phases is that of all images at once. No exemplars are kept. The record counts the sums that are kept instead.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.methods.base import Method
from phasezero.methods.stage import PhaseImages, Stage
from phasezero.nets import CosineHead, IncrementalModel
from phasezero.nets.heads import Scores
from phasezero.schedule import Schedule

SUMS = torch.float64
"""The type of sums: in it the order of classes changes a classifier by less than 1e-9."""


class FrozenHead(CosineHead):
    """A cosine head while phase 0 trains; in evaluation mode a linear classifier computed from sums over features."""

    class_counts: Tensor
    feature_sums: Tensor
    classifier: Tensor
    offsets: Tensor

    def __init__(self, feature_size: int, width: int = 0) -> None:
        super().__init__(feature_size)
        self.width = width or feature_size
        self.keep("class_counts", torch.zeros(0, dtype=SUMS))
        self.keep("feature_sums", torch.zeros(0, self.width, dtype=SUMS))
        # Computed from the sums, in the precision of predictions.
        self.keep("classifier", torch.zeros(0, self.width))
        self.keep("offsets", torch.zeros(0))

    def keep(self, name: str, tensor: Tensor) -> None:
        """Register a tensor that is kept instead of exemplars."""
        self.register_buffer(name, tensor)
        self.statistics = (*self.statistics, name)

    @property
    def classes(self) -> int:
        return len(self.class_counts)

    def grow(self, classes: int, generator: torch.Generator) -> None:
        if not self.blocks:  # only phase 0 trains class weights
            super().grow(classes, generator)
        for name in ("class_counts", "feature_sums", "classifier", "offsets"):
            old = getattr(self, name)
            setattr(self, name, torch.cat([old, old.new_zeros(classes, *old.shape[1:])]))

    def embed(self, features: Tensor) -> Tensor:
        """Return what is summed: the features, or a map of them."""
        return features

    def prepare(self, old: int, by_class: Sequence[Tensor], unseen: bool) -> None:
        """Choose settings from the features of new classes, before these are added after `old` classes.

        `unseen` says that the backbone has not been trained on these images.
        """

    def add(self, position: int, features: Tensor) -> None:
        """Add images of a class."""
        embedded = self.embed(features).to(SUMS)
        self.class_counts[position] += len(features)
        self.feature_sums[position] += embedded.sum(0)
        self.add_products(embedded)

    def add_products(self, embedded: Tensor) -> None:
        """Add what a classifier needs besides the sums of each class."""

    @abstractmethod
    def solve(self) -> tuple[Tensor, Tensor]:
        """Return class weights [C, d] and offsets [C], computed from the sums in their precision."""

    def update(self) -> None:
        """Compute the classifier from the sums."""
        weights, offsets = self.solve()
        self.classifier, self.offsets = weights.to(self.place), offsets.to(self.place)

    def forward(self, features: Tensor) -> Scores:
        if self.training:
            return super().forward(features)
        scores = torch.addmm(self.offsets, self.embed(features), self.classifier.T)
        return Scores(scores, scores)


class Frozen(Method):
    """Train phase 0 only, then add the sums of each class."""

    published = {"*": {"protocol.memory": "per_class:0"}}
    phase_zero_like = "lucir"
    needs_teacher = trains_later = False

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        trains = phase.index == 0 and model.backbone_lr > 0  # pretrained weights may stay as they are
        return super().stages(model, phase, schedule) if trains else []

    def finish(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        head = model.head
        assert isinstance(head, FrozenHead)
        by_class = [images.class_features(position) for position in range(phase.old, phase.seen)]
        head.prepare(phase.old, by_class, unseen=phase.index > 0 or not model.backbone_lr)
        for position, features in enumerate(by_class, phase.old):
            head.add(position, features)
        head.update()
