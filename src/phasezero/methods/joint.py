"""Joint training, the oracle: each phase trains on all images of all classes seen so far, from scratch.

It shows what class-incremental learning loses. Each phase is a phase 0 of LUCIR on more classes (a cosine head, no last
ReLU, cross-entropy), so phase 0 is LUCIR's to the last bit. A phase-0 term acts in phase 0 only, as with every method.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from phasezero.data.stream import Phase
from phasezero.methods.base import Method, MethodOptions, register_method, trainable
from phasezero.methods.stage import PhaseImages, Stage
from phasezero.nets import IncrementalModel
from phasezero.schedule import Schedule
from phasezero.validation import option


@register_method("joint", "joint training on all images so far, the oracle")
class Joint(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "joint"
        # true: each phase trains a new model. false: it continues from the model of the phase before.
        from_scratch: bool = option(True, later=True)

    published = {
        # Ours: later phases of the glyphs recipe are short, but a network that starts from scratch needs as long as in
        # phase 0. In the other recipes all phases have the same schedule.
        "glyphs": {"training.later.epochs": 10, "training.later.milestones": (7, 9)}
    }
    phase_zero_like = "lucir"
    sees_everything = True
    needs_teacher = False
    options: Options

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        if phase.index == 0 and self.options.from_scratch:
            # Also when a model is rebuilt to be loaded: the backbone still has its initial weights.
            self.untrained = copy.deepcopy(model.backbone.state_dict())
        model.head.grow(phase.new, rng)

    def begin(self, model: IncrementalModel, phase: Phase, images: PhaseImages) -> None:
        if phase.index and self.options.from_scratch:
            head, rng = self.make_head(model.head.feature_size), images.generator("joint head")
            for block in model.head.blocks:
                head.grow(len(block), rng)
            model.head.load_state_dict(head.state_dict())
            model.backbone.load_state_dict(self.untrained)

    def stages(self, model: IncrementalModel, phase: Phase, schedule: Schedule) -> list[Stage]:
        loss, everything = self.make_loss(phase), lambda images: torch.cat(list(images.all_seen()))
        return [Stage("train", schedule, loss, trainable(model), everything)]
