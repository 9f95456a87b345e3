"""Mimicking the oracle (the paper's Sec. 3.1): phase-0 features that point where those of a model trained on
all classes at once point. An upper bound to learn from, not a method: it needs the later classes' images.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.errors import UserError
from phasezero.initial.base import TERMS, Term, TermOptions, Workshop
from phasezero.methods.base import Batch


def oracle_mimicry(features: Tensor, oracle_features: Tensor) -> Tensor:
    """Eq. 1: one minus the cosine between the learner's and the oracle's features, mean over the batch."""
    return (1 - F.cosine_similarity(features, oracle_features, dim=1)).mean()


@TERMS.register("mimic")
class Mimic(Term):
    @dataclass(frozen=True)
    class Options(TermOptions):
        name: str = "mimic"
        weight: float = 10.0  # beta of the published script (ImageNet100); the paper also shows 15 and 30
        oracle: str = (
            ""  # a checkpoint of a run; empty: the method's phase 0 of all classes, trained on the spot
        )

        @property
        def file(self) -> str:
            return self.oracle

    looks_ahead = True
    options: Options

    def __init__(self, options: Options, phase: Phase, workshop: Workshop | None = None) -> None:
        super().__init__(options, phase, workshop)
        if workshop is None:
            raise UserError("the mimic term needs an oracle: use it in a run (phasezero.run)")
        # The authors' own oracle had seen 99 of the 100 classes (their loader allows no fewer phases than two).
        self.oracle = workshop.oracle(options.oracle)

    def __call__(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = self.oracle(batch.images).features
        return oracle_mimicry(batch.output.features, wanted)
