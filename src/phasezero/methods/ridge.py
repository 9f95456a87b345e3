"""Ridge regression on a frozen phase 0, as in ACIL (NeurIPS 2022) and RanPAC (NeurIPS 2023).

Features pass a fixed random map phi(f) = relu(f P) of width M, and ridge regression to one-hot labels gives

    W = (G + lambda I)^-1 Q,   G = sum phi phi',   Q = sum phi y'.

G and Q are sums over images: after any sequence of phases, in any order, W is the classifier of all images at once.
ACIL's recursive update of the inverse gives the same W. lambda is `strength` times the mean eigenvalue of G. As in
RanPAC it is chosen in each phase on held-out training images of the new classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.methods.base import MethodOptions, register_method
from phasezero.methods.frozen import SUMS, Frozen, FrozenHead
from phasezero.nets import GrowingHead
from phasezero.validation import WEIGHT, option

HELD_OUT = 10  # every tenth training image of a new class (the last of fewer) helps to choose lambda
NEARLY = 0.02  # of lambdas with nearly the smallest squared error, the largest is taken
AT_ONCE = 1 << 24  # scores, of some images and all classes, that are in memory at once
STRENGTHS = tuple(10.0**power for power in range(-5, 2))
USUAL_STRENGTH = 1e-2  # in phase 0, and until a class has two images; chosen on held-out images (notebook/results.md)


def ridge(products: Tensor, sums: Tensor, strength: float | Tensor) -> Tensor:
    """Return class weights [C, M] from G [M, M] and class sums Q' [C, M]; lambda is `strength` mean eigenvalues of G.

    >>> import torch
    >>> from phasezero.methods.ridge import ridge
    >>> ridge(torch.eye(2), torch.tensor([[1.0, 0.0]]), strength=1.0)
    tensor([[0.5000, 0.0000]])
    """
    penalty = strength * products.diagonal().mean().clamp_min(torch.finfo(products.dtype).tiny)
    system = products + penalty * torch.eye(len(products), dtype=products.dtype, device=products.device)
    return torch.cholesky_solve(sums.T, torch.linalg.cholesky(system)).T


def _every_tenth(own: Tensor) -> Tensor:
    """Mark every tenth image of a class, or the last of fewer than ten; never the only image."""
    every = min(HELD_OUT, len(own))
    return torch.arange(len(own), device=own.device) % every == every - 1 if every > 1 else own.new_zeros(1).bool()


class RidgeHead(FrozenHead):
    projection: Tensor
    products: Tensor
    strength: Tensor
    hits: Tensor
    """Of each lambda: images that it classifies correctly, or minus its squared errors."""

    def __init__(self, feature_size: int, width: int, strength: float, choose_once: bool) -> None:
        super().__init__(feature_size, width)
        self.mapped, self.chooses, self.chooses_once = width > 0, not strength, choose_once
        self.keep("projection", torch.zeros(feature_size, width))
        self.keep("products", torch.zeros(self.width, self.width, dtype=SUMS))
        self.keep("strength", torch.tensor(strength or USUAL_STRENGTH, dtype=SUMS))
        self.keep("hits", torch.zeros(len(STRENGTHS), dtype=SUMS))

    def grow(self, classes: int, generator: torch.Generator) -> None:
        if not self.blocks:
            # A second generator: the map does not depend on the classes, and the class weights are those of LUCIR.
            own = torch.Generator().manual_seed(generator.initial_seed())
            self.projection.copy_(torch.randn(self.projection.shape, generator=own))
        super().grow(classes, generator)

    def embed(self, features: Tensor) -> Tensor:
        return F.relu(features @ self.projection) if self.mapped else features

    def add_products(self, embedded: Tensor) -> None:
        self.products.addmm_(embedded.T, embedded)

    def solve(self) -> tuple[Tensor, Tensor]:
        return ridge(self.products, self.feature_sums, self.strength), torch.zeros_like(self.class_counts)

    def prepare(self, old: int, by_class: Sequence[Tensor], unseen: bool) -> None:
        """Choose lambda on a tenth of the new classes' images, before these classes are added.

        Images that the backbone has not been trained on tell how well a lambda generalises: those of later phases, and
        those of phase 0 if the backbone came with its weights. Their hits are added up. Other images of phase 0 are
        classified well with almost any lambda, so phase 0 has the usual lambda.
        """
        if not self.chooses or not unseen or (self.chooses_once and self.hits.any()):
            return
        held_out = [_every_tenth(own) for own in by_class]
        tested = torch.cat([self.embed(own[held]) for own, held in zip(by_class, held_out, strict=True)]).to(SUMS)
        if not len(tested):  # a single image of each class
            return
        counts = torch.tensor([int(held.sum()) for held in held_out], device=tested.device)
        labels = torch.repeat_interleave(torch.arange(old, old + len(by_class), device=tested.device), counts)
        products, sums = self.products.clone(), self.feature_sums.clone()
        for position, (own, held) in enumerate(zip(by_class, held_out, strict=True), old):
            embedded = self.embed(own[~held]).to(SUMS)
            products.addmm_(embedded.T, embedded)
            sums[position] = embedded.sum(0)
        rows = max(1, AT_ONCE // len(sums))
        for place, value in enumerate(STRENGTHS):
            weights = ridge(products, sums, value)
            for own, truth in zip(tested.split(rows), labels.split(rows), strict=True):
                self.hits[place] += self._merit(own @ weights.T, truth)
        if self.chooses_once:
            best = (-self.hits <= (1 + NEARLY) * -self.hits.max()).tolist()
        else:
            best = (self.hits == self.hits.max()).tolist()
        self.strength.fill_(max(value for value, is_best in zip(STRENGTHS, best, strict=True) if is_best))

    def _merit(self, scores: Tensor, labels: Tensor) -> Tensor:
        if self.chooses_once:  # few images, whose hits are chance; RanPAC's code has squared errors, too
            return -(scores - F.one_hot(labels, scores.shape[1]).to(SUMS)).square().sum()
        return scores.argmax(1).eq(labels).sum()


@register_method("ridge", "exact ridge classifier on a frozen phase 0, no exemplars")
class Ridge(Frozen):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "ridge"
        # M of the random map, ours (RanPAC: 10,000); 0: no map.
        width: int = option(8192, least=0, most=65_536, later=True)
        # Lambda relative to the mean eigenvalue of the sums; 0: chosen on held-out training images of new classes.
        strength: float = option(0.0, **WEIGHT, later=True)
        # Choose lambda in the first phase that can, by squared errors: the order of later classes then changes only
        # rounding.
        choose_once: bool = option(False, later=True, before=False)

    label = "ridge"
    published = {**Frozen.published, "glyphs": {"method.width": 1024}}  # 2048: 0.3 points, four times the time
    variants = {
        # With augment a run takes a minute on an H200 and averages two points more than the paper's best row. Chosen
        # on held-out training images (notebook/results.md).
        "fast": {
            "cifar100": {
                "training.first.epochs": 60,
                "training.first.shape": "cosine",
                "training.first.milestones": [30, 45],  # not read by a cosine
            }
        }
    }
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return RidgeHead(feature_size, self.options.width, self.options.strength, self.options.choose_once)
