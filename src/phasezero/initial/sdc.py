"""SDC: Xiong et al., "Regularizing Deep Convolutional Neural Networks with a Structured Decorrelation
Constraint", ICDM 2016. As DeCov, but features come in groups, and those of one group may covary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from phasezero.initial.base import TERMS, Term, TermOptions
from phasezero.initial.decov import batch_covariance
from phasezero.methods.base import Batch

Grouping = Literal["neighbours", "interleaved"]


def structured_decorrelation(
    features: Tensor, *, groups: int = 16, grouping: Grouping = "neighbours", normalize: bool = True
) -> Tensor:
    """Half the squares of a batch's covariances between different groups: features [N, d] -> a scalar.

    Groups are `neighbours` (runs of features next to each other, as equal as d allows) or `interleaved` (every
    `groups`-th feature); d groups or more make it DeCov. `normalize` first scales each feature vector to unit length.
    """
    if groups < 1:
        raise ValueError(f"groups must be at least 1, got {groups}")
    if grouping not in get_args(Grouping):
        raise ValueError(f"grouping must be one of {', '.join(get_args(Grouping))}, got {grouping!r}")
    covariance = batch_covariance(features, normalize)
    place = torch.arange(len(covariance), device=covariance.device)
    group = place % groups if grouping == "interleaved" else place * groups // max(len(place), 1)
    return (covariance * (group[:, None] != group)).square().sum() / 2


@TERMS.register("sdc")
class StructuredDecorrelation(Term):
    @dataclass(frozen=True)
    class Options(TermOptions):
        name: str = "sdc"
        weight: float = 100.0  # ours, as DeCov's: the paper's coefficient is unknown
        groups: int = 16  # ours: unknown too
        grouping: Grouping = "neighbours"  # ours, too
        normalize: bool = True  # as DeCov's

    # Ours: on these 64-d features 100 costs phase 0 four points, 10 nothing.
    published = {"glyphs": {"weight": 10.0}}
    options: Options

    def __call__(self, batch: Batch) -> Tensor:
        options = self.options
        return structured_decorrelation(
            batch.output.features,
            groups=options.groups,
            grouping=options.grouping,
            normalize=options.normalize,
        )
