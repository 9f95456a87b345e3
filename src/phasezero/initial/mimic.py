"""Mimicking the oracle (the CwD paper's Sec. 3.1): phase-0 features get the direction of the features of an oracle, a
model trained on all classes at once. It is an experiment, not a method: it needs the images of later classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phasezero.data.stream import Phase
from phasezero.errors import UserError
from phasezero.initial.base import OracleProvider, StrategyOptions, Term, register_initial
from phasezero.methods.stage import Batch
from phasezero.validation import WEIGHT, option


def oracle_mimicry(features: Tensor, oracle_features: Tensor) -> Tensor:
    """Return Eq. 1: one minus the cosine between a model's and the oracle's features, mean over the batch.

    >>> import torch
    >>> from phasezero import oracle_mimicry
    >>> oracle_mimicry(torch.tensor([[1.0, 0.0]]), torch.tensor([[-3.0, 0.0]]))
    tensor(2.)
    """
    return (1 - F.cosine_similarity(features, oracle_features, dim=1)).mean()


@register_initial("mimic", "features like those of a model of all classes (oracle)")
class Mimic(Term):
    label, coefficient = "oracle", "beta"

    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "mimic"
        # Beta, that of the published script (ImageNet100); the paper also shows 15 and 30.
        weight: float = option(10.0, **WEIGHT)
        # Checkpoint of a run of the oracle. Empty: the method's phase 0 with all classes is trained first.
        oracle: str = ""

        @property
        def file(self) -> str:
            return self.oracle

    looks_ahead = True
    options: Options

    def __init__(self, options: Options, phase: Phase, provider: OracleProvider | None = None) -> None:
        super().__init__(options, phase, provider)
        if provider is None:
            raise UserError("the mimic term needs an oracle: use it in a run (phasezero.run)")
        # The authors' own oracle had seen 99 of the 100 classes (their loader allows no fewer phases than two).
        self.oracle = provider.oracle(options.oracle)

    def __call__(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = self.oracle(batch.images).features
        return oracle_mimicry(batch.output.features, wanted)
