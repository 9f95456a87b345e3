"""Joint training, the oracle: at every phase all images of all classes seen so far, from the very beginning.

What class-incremental learning gives away is measured against it. Each of its phases is a phase 0 of LUCIR on
more classes (a cosine head, no last ReLU, cross-entropy), so that phase 0 is LUCIR's own to the last bit.
A phase-0 term acts in phase 0 alone, here as everywhere.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from phasezero.data.stream import Phase
from phasezero.methods.base import METHODS, Method, MethodOptions, PhaseImages, Stage, trainable
from phasezero.nets import IncrementalModel
from phasezero.schedule import Schedule


def everything_seen(images: PhaseImages) -> Tensor:
    """All training images of all classes seen so far."""
    return torch.cat(list(images.all_seen()))


@METHODS.register("joint")
class Joint(Method):
    @dataclass(frozen=True)
    class Options(MethodOptions):
        name: str = "joint"
        from_scratch: bool = True  # else each phase goes on from the model of the one before

    published = {
        # Ours: the glyphs' later phases are short, and a network that starts anew needs as long as in phase 0.
        # Elsewhere all phases have the same schedule anyway.
        "glyphs": {"training.later.epochs": 10, "training.later.milestones": (7, 9)},
    }
    sees_everything = True
    needs_teacher = False
    options: Options

    def grow(self, model: IncrementalModel, phase: Phase, rng: torch.Generator) -> None:
        if phase.index == 0 and self.options.from_scratch:
            # Also on the way to a restored model: the backbone still is as it was drawn.
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
        return [Stage("train", schedule, self.make_loss(phase), trainable(model), everything_seen)]

    def phase_zero(self) -> object:
        return "cross-entropy on a cosine head"  # LUCIR's words: the two share their phase 0
