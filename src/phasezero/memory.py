"""Exemplars: how many and which images are kept. They are indices into the training images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from phasezero.errors import UserError, unknown
from phasezero.validation import whole_number

CHUNK_IMAGES = 128 * 1024
"""Number of images that are herded at once, with padding: 512 MB of 512-d features in float64."""


@dataclass(frozen=True)
class MemoryRule:
    """`per_class:R` keeps R images of each class; `total:M` shares M images among the classes seen."""

    kind: str
    count: int

    @classmethod
    def parse(cls, text: str) -> MemoryRule:
        """Parse a rule such as `per_class:20`."""
        kind, _, written = text.partition(":")
        if kind not in ("per_class", "total"):
            raise unknown("memory rule", kind, ("per_class", "total"))
        if (count := whole_number(written)) is None:
            raise UserError(f"memory: write per_class:20 or total:2000, got {text!r}")
        return cls(kind, count)

    def quota(self, seen_classes: int) -> int:
        """Return how many exemplars a class may keep after `seen_classes` classes."""
        return self.count if self.kind == "per_class" else self.count // seen_classes


def herd(features: Tensor, valid: Tensor, count: int) -> Tensor:
    """Return the first `count` picks [C, count] of herding, for features [C, n, d] of several classes at once.

    `valid` [C, n] marks the images that exist: classes may have different numbers of images.

    This is iCaRL's rule on unit features, as in the published CwD code: the k-th pick brings the mean of the picks
    nearest to the class mean, which is not normalised again. With t = k * mean - sum of the earlier picks, that image
    has the largest t.x - |x|^2 / 2. In float64 the picks do not depend on which classes are herded together.

    >>> import torch
    >>> from phasezero import herd
    >>> features = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    >>> herd(features, torch.ones(1, 3, dtype=torch.bool), count=1)
    tensor([[2]])
    """
    x = F.normalize(features.double(), dim=2) * valid[..., None]
    mean = x.sum(1) / valid.sum(1, keepdim=True)
    half_norms = x.square().sum(2) / 2
    free, total = valid.clone(), torch.zeros_like(mean)
    rows = torch.arange(len(x), device=x.device)
    picks = torch.empty(len(x), count, dtype=torch.long, device=x.device)
    for k in range(count):
        target = (k + 1) * mean - total
        score = torch.einsum("cnd,cd->cn", x, target) - half_norms
        pick = score.masked_fill(~free, -torch.inf).argmax(1)
        free.scatter_(1, pick[:, None], False)
        total += x[rows, pick]
        picks[:, k] = pick
    return picks


class ExemplarMemory:
    """Hold the exemplars of each class, by its position in the stream, best first."""

    def __init__(self, rule: MemoryRule, selection: str) -> None:
        if selection not in ("herding", "random"):
            raise unknown("exemplar selection", selection, ("herding", "random"))
        self.rule = rule
        self.selection = selection
        self.by_class: list[Tensor] = []

    def counts(self) -> list[int]:
        """Return the number of exemplars of each class."""
        return [len(indices) for indices in self.by_class]

    def indices(self) -> Tensor:
        """Return all exemplars, class after class."""
        return torch.cat(self.by_class) if self.by_class else torch.empty(0, dtype=torch.long)

    def choose(
        self,
        kept: Sequence[Tensor],
        new: Sequence[Tensor],
        features_of: Callable[[Tensor], Tensor],
        rng: torch.Generator,
    ) -> list[Tensor]:
        """Return exemplars of all classes: `kept` cut to the quota, and as many images of each class in `new`."""
        quota = self.rule.quota(len(kept) + len(new))
        if self.selection == "random":
            chosen = [indices[torch.randperm(len(indices), generator=rng)][:quota] for indices in new]
        elif quota:
            chosen = _herd_classes(new, quota, features_of)
        else:  # without computing features
            chosen = [indices[:0] for indices in new]
        return [*(indices[:quota] for indices in kept), *chosen]


def _herd_classes(classes: Sequence[Tensor], quota: int, features_of: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return up to `quota` images of each class by herding, many classes at once."""
    chosen = []
    at_once = max(1, CHUNK_IMAGES // max(map(len, classes)))
    for start in range(0, len(classes), at_once):
        chunk = classes[start : start + at_once]
        features = pad_sequence([features_of(indices) for indices in chunk], batch_first=True)
        sizes = torch.tensor([len(indices) for indices in chunk], device=features.device)
        valid = torch.arange(features.shape[1], device=features.device) < sizes[:, None]
        picks = herd(features, valid, min(quota, features.shape[1])).cpu()
        chosen += [indices[pick[: min(quota, len(indices))]] for indices, pick in zip(chunk, picks, strict=True)]
    return chosen
