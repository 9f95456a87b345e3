"""EfficientNet-Lite 0, 1 and 2: inverted bottlenecks for phones and laptops, with published ImageNet weights.

The architecture is that of Google's TPU repository (models/official/efficientnet/lite): EfficientNet (Tan and Le, ICML
2019) with ReLU6 instead of swish, without squeeze-and-excitation, and with a stem and a head whose width is fixed.

Convolutions are padded as by TensorFlow ("SAME"). Where the stride is 2 and the side is even, this is a pixel less at
the top and left than the usual padding. The published weights were trained so: with the usual padding the classifier's
mean confidence on photos of Caltech-101 is 0.46 instead of 0.50.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets.resnet import Backbone, BatchNorm, Features, at_least_float32, register_network


class Stage(NamedTuple):
    repeats: int
    kernel: int
    stride: int
    expansion: int
    width: int


# EfficientNet-B0's stages (Tan and Le, Table 1). The first and the last stage are never repeated more often.
STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)
STEM, HEAD = 32, 1280
DIVISOR = 8  # widths are multiples of it

_norm = partial(BatchNorm, eps=1e-3, momentum=0.01)  # TensorFlow's epsilon, and its momentum of 0.99


class SameConv2d(nn.Conv2d):
    """A convolution without bias whose zero padding is TensorFlow's "SAME": an odd pixel is at the bottom and right."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        # Without a stride, both kinds of padding are the same.
        super().__init__(inputs, outputs, kernel, stride, kernel // 2 if stride == 1 else 0, groups=groups, bias=False)
        self.side, self.step = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        if self.step > 1:
            left, right, top, bottom = (*self.margins(x.shape[3]), *self.margins(x.shape[2]))
            x = F.pad(x, (left, right, top, bottom))
        return super().forward(x)

    def margins(self, length: int) -> tuple[int, int]:
        """Return the padding before and after, for ceil(length / stride) outputs."""
        total = max((math.ceil(length / self.step) - 1) * self.step + self.side - length, 0)
        return total // 2, total - total // 2


def _layer(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(SameConv2d(inputs, outputs, kernel, stride, groups), _norm(outputs), nn.ReLU6())


class InvertedBottleneck(nn.Module):
    """Expand, filter each channel, project without an activation; add the input where it has the same shape."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expand: nn.Module = _layer(inputs, width) if expansion > 1 else nn.Identity()
        self.depthwise = _layer(width, width, kernel, stride, groups=width)
        self.project = nn.Sequential(SameConv2d(width, outputs, 1), _norm(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.project(self.depthwise(self.expand(x)))
        return out + x if self.adds else out


class EfficientNetLite(Backbone):
    """The maps are the outputs of the seven stages and of the head. Features are the mean of the head's map.

    `width` and `depth` are factors of the stages' channels and repeats. Drop-connect, which the published training
    used, is left out.
    """

    def __init__(self, width: float, depth: float, *, channels: int = 3, last_relu: bool = False) -> None:
        super().__init__()
        self.stem = _layer(channels, STEM, 3, 2)
        self.blocks = nn.ModuleList()
        self.stage_ends: list[int] = []
        inputs = STEM
        for stage in STAGES:
            outputs = _round_width(stage.width * width)
            fixed = stage in (STAGES[0], STAGES[-1])
            for place in range(stage.repeats if fixed else math.ceil(stage.repeats * depth)):
                stride = stage.stride if place == 0 else 1
                self.blocks.append(InvertedBottleneck(inputs, outputs, stage.kernel, stride, stage.expansion))
                inputs = outputs
            self.stage_ends.append(len(self.blocks) - 1)
        last = nn.ReLU6() if last_relu else nn.Identity()
        self.head = nn.Sequential(SameConv2d(inputs, HEAD, 1), _norm(HEAD), last)
        self.feature_size = HEAD

        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # deviation sqrt(2 / fan-out), as published
                nn.init.normal_(module.weight, std=math.sqrt(2 / (module.weight[:, 0].numel() / module.groups)))

    def forward(self, images: Tensor) -> Features:
        x, maps = self.stem(images), []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in self.stage_ends:
                maps.append(x)
        convolution, norm, last = self.head
        x = last(norm(at_least_float32(convolution(x))))  # features are never in half precision
        return Features(x.mean((2, 3)), (*maps, x))


def _round_width(width: float) -> int:
    """Return the nearest multiple of 8, or the next if that is more than 10% too small, as published."""
    rounded = max(DIVISOR, int(width + DIVISOR / 2) // DIVISOR * DIVISOR)
    return rounded if rounded >= 0.9 * width else rounded + DIVISOR


register_network("efficientnet-lite0", "EfficientNet-Lite0 for 224 x 224 images")(partial(EfficientNetLite, 1.0, 1.0))
register_network("efficientnet-lite1", "a variant of efficientnet-lite0: 240 x 240")(
    partial(EfficientNetLite, 1.0, 1.1)
)
register_network("efficientnet-lite2", "a variant of efficientnet-lite0: 260 x 260")(
    partial(EfficientNetLite, 1.1, 1.2)
)
