"""Fine-tuning: cross-entropy over all classes seen; only the exemplars act against forgetting.

Every method should do better. Without a memory (`finetune-free`) it shows forgetting itself. The head is linear without
bias and the last ReLU stays, as in the published code's LwF: LwF differs from it only by the distillation.
"""

from __future__ import annotations

from dataclasses import dataclass

from phasezero.methods.base import Method, MethodOptions, register_method
from phasezero.nets import GrowingHead, LinearHead


@register_method("finetune", "fine-tuning: cross-entropy, with exemplars")
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
