"""Label smoothing (Szegedy et al., CVPR 2016): the target is 1 - e for the label plus e / C for every class.

The smoothed cross-entropy is the plain cross-entropy plus e times (mean over classes of -log p_c, minus -log p_y). The
term is this difference, so a method with another loss than cross-entropy is smoothed by the same amount.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from phasezero.initial.base import StrategyOptions, Term, register_initial
from phasezero.methods.stage import Batch
from phasezero.validation import SHARE, option


def smoothing(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over the batch of (mean of -log p over all classes) - (-log p of the label)."""
    log_p = logits.log_softmax(1)
    return (log_p.gather(1, labels[:, None])[:, 0] - log_p.mean(1)).mean()


@register_initial("label_smoothing", "a share of the target goes to all classes (CVPR 2016)")
class LabelSmoothing(Term):
    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "label_smoothing"
        weight: float = option(0.1, **SHARE)  # epsilon: the authors' value

    label, coefficient = "label smoothing", "epsilon"
    options: Options

    def __call__(self, batch: Batch) -> Tensor:
        return smoothing(batch.output.logits, batch.labels)
