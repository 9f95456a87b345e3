"""Self-distillation (born-again networks, Furlanello et al., ICML 2018): phase 0 is trained again, taught by itself.

The teacher is the same phase 0 without this strategy, so teacher and student have the same seed (ours: the teacher is
then a plain run, which the store may have). It is trained first if the store does not have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.errors import UserError
from phasezero.initial.base import OracleProvider, StrategyOptions, Term, register_initial
from phasezero.methods.icarl import distillation
from phasezero.methods.stage import Batch
from phasezero.validation import POSITIVE, WEIGHT, option


@register_initial("self_distillation", "phase 0 again, with itself as teacher (ICML 2018)")
class SelfDistillation(Term):
    @dataclass(frozen=True)
    class Options(StrategyOptions):
        name: str = "self_distillation"
        weight: float = option(1.0, **WEIGHT)
        # Ours; the divergence is multiplied by its square (Hinton et al.).
        temperature: float = option(2.0, **POSITIVE)

    label, needs_phase_zero = "self-distillation", True
    options: Options

    def __init__(self, options: Options, phase: Phase, provider: OracleProvider | None = None) -> None:
        super().__init__(options, phase, provider)
        if provider is None:
            raise UserError("self_distillation needs a teacher: use it in a run (phasezero.run)")
        self.teacher = provider.phase_zero(without=options.name)

    def __call__(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            wanted = self.teacher(batch.images).logits
        temperature = self.options.temperature
        return distillation(batch.output.logits, wanted, temperature) * temperature**2
