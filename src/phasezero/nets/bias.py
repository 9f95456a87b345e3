"""BiC's head: linear, with a correction of the scores of classes that came late."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from phasezero.nets.heads import LinearHead, Scores


class BiasCorrectedHead(LinearHead):
    """logits = alpha * (w . f [+ b]) + beta for the classes of each later phase, with a pair of its own.

    Pairs begin as (1, 0) and take no part in ordinary training: whoever trains one names it. `keep_pairs`:
    earlier pairs stay in the model (FACIL, PyCIL); otherwise only the newest corrects (PODNet's code).
    """

    corrects_bias = True

    def __init__(self, feature_size: int, bias: bool = True, *, keep_pairs: bool = True) -> None:
        super().__init__(feature_size, bias=bias)
        self.keep_pairs = keep_pairs
        self.pairs = nn.ParameterList()

    def grow(self, classes: int, generator: torch.Generator) -> nn.Parameter:
        block = super().grow(classes, generator)
        if len(self.blocks) > 1:
            self.pairs.append(nn.Parameter(torch.tensor([1.0, 0.0]).to(block), requires_grad=False))
        return block

    def forward(self, features: Tensor) -> Scores:
        plain = super().forward(features).similarities
        first, *later = plain.split([len(block) for block in self.blocks], dim=1)
        pairs = list(self.pairs)
        unused = 0 if self.keep_pairs else len(pairs) - 1
        corrected = [
            part if index < unused else pair[0] * part + pair[1]
            for index, (part, pair) in enumerate(zip(later, pairs, strict=True))
        ]
        return Scores(torch.cat([first, *corrected], 1), plain)
