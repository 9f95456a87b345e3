"""Fine-tuning: cross-entropy over all classes seen, and nothing against forgetting but the exemplars.

The floor that every method should stand above; without a memory (`finetune-free`) it shows forgetting itself.
The head is linear without bias and the last ReLU stays, as in the published code's LwF, so that LwF differs
from it by the distillation alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from phasezero.methods.base import METHODS, Method, MethodOptions
from phasezero.nets import GrowingHead, LinearHead


@METHODS.register("finetune")
class Finetune(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "finetune"

    published = {"*": {"network.last_relu": True}}
    variants = {"free": {"*": {"protocol.memory": "per_class:0"}}}
    needs_teacher = False
    options: Options

    def make_head(self, feature_size: int) -> GrowingHead:
        return LinearHead(feature_size)

    def phase_zero(self) -> object:
        return "cross-entropy on a linear head"
