"""Exemplars: how many, which, and who chooses them. They are kept as indices into the training images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.bounds import whole_number
from phasezero.errors import UserError, unknown


@dataclass(frozen=True)
class MemoryRule:
    """`per_class:R` keeps R of each class for ever; `total:M` shares M images among the classes seen."""

    kind: Literal["per_class", "total"]
    count: int

    @classmethod
    def parse(cls, text: str) -> MemoryRule:
        kind, _, written = text.partition(":")
        if kind not in ("per_class", "total"):
            raise unknown("memory rule", kind, ("per_class", "total"))
        count = whole_number(written)
        if count is None:
            raise UserError(f"memory: write per_class:20 or total:2000, got {text!r}")
        return cls("per_class" if kind == "per_class" else "total", count)

    def quota(self, seen_classes: int) -> int:
        """Exemplars a class may keep when so many classes are known."""
        return self.count if self.kind == "per_class" else self.count // seen_classes


def herd(features: Tensor, valid: Tensor, count: int) -> Tensor:
    """Herding for many classes at once: features [C, n, d], valid [C, n] -> the first `count` picks [C, count].

    iCaRL's rule on unit features, as in the published CwD code: the k-th pick brings the mean of the picks
    nearest to the class mean (which is not normalised again), each image at most once. With t = k * mean - sum
    of the earlier picks, the nearest is the largest t.x - |x|^2/2. In float64, so that the choice does not
    depend on how classes are chunked.
    """
    x = F.normalize(features.double(), dim=2) * valid[..., None]
    mean = x.sum(1) / valid.sum(1, keepdim=True)
    half_norms = x.square().sum(2) / 2
    free = valid.clone()
    total = torch.zeros_like(mean)
    picks = []
    for k in range(1, count + 1):
        target = k * mean - total
        score = torch.einsum("cnd,cd->cn", x, target) - half_norms
        pick = score.masked_fill(~free, -torch.inf).argmax(1)
        free.scatter_(1, pick[:, None], False)
        total += x[torch.arange(len(x), device=x.device), pick]
        picks.append(pick)
    return torch.stack(picks, 1) if picks else pick_nothing(features)


def pick_nothing(features: Tensor) -> Tensor:
    return torch.empty(len(features), 0, dtype=torch.long, device=features.device)


CHUNK_ELEMENTS = 64 * 1024 * 1024
"""Herding takes as many classes at a time as keep the feature block under this many numbers (512 MB)."""


class ExemplarMemory:
    """Which training images of which class (by position) are kept, best first."""

    def __init__(self, rule: MemoryRule, selection: str) -> None:
        if selection not in ("herding", "random"):
            raise unknown("exemplar selection", selection, ("herding", "random"))
        self.rule = rule
        self.selection = selection
        self.by_class: list[Tensor] = []

    def counts(self) -> list[int]:
        return [len(indices) for indices in self.by_class]

    def indices(self) -> Tensor:
        """All exemplars, class after class."""
        return torch.cat(self.by_class) if self.by_class else torch.empty(0, dtype=torch.long)

    def choose(
        self,
        kept: Sequence[Tensor],
        new: Sequence[Tensor],
        features_of: Callable[[Tensor], Tensor],
        rng: torch.Generator,
    ) -> list[Tensor]:
        """Exemplars of all classes: `kept` cut to the quota, and as many of each class of `new` (indices)."""
        quota = self.rule.quota(len(kept) + len(new))
        counts = [min(quota, len(indices)) for indices in new]
        if self.selection == "random":
            shuffled = [indices[torch.randperm(len(indices), generator=rng)] for indices in new]
            chosen = [indices[:count] for indices, count in zip(shuffled, counts, strict=True)]
        elif quota:
            chosen = self._herd_chunked(new, counts, features_of)
        else:
            chosen = [indices[:0] for indices in new]
        return [*(indices[:quota] for indices in kept), *chosen]

    def _herd_chunked(
        self, classes: Sequence[Tensor], counts: Sequence[int], features_of: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        chosen: list[Tensor] = []
        position = 0
        while position < len(classes):
            # The first class of a chunk tells the feature size; the chunk then takes what fits beside it.
            block = [features_of(classes[position])]
            longest, width = block[0].shape
            while (follower := position + len(block)) < len(classes):
                longest = max(longest, len(classes[follower]))
                if (len(block) + 1) * longest * width > CHUNK_ELEMENTS:
                    break
                block.append(features_of(classes[follower]))
            valid = torch.zeros(len(block), max(map(len, block)), dtype=torch.bool, device=block[0].device)
            for row, features in zip(valid, block, strict=True):
                row[: len(features)] = True
            padded = torch.nn.utils.rnn.pad_sequence(block, batch_first=True)
            picks = herd(padded, valid, max(counts[position : position + len(block)])).cpu()
            for row, pick in enumerate(picks, start=position):
                chosen.append(classes[row][pick[: counts[row]]])
            position += len(block)
        return chosen
