"""AANets' backbone: two branches of one trained network, mixed after each level (Liu et al., CVPR 2021).

The stable branch keeps every kernel and learns only how much each kernel counts. The plastic branch learns freely.
Both get the same input at each level, the mixture of the level before.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets.resnet import Features, ResNet


class ScaledConv2d(nn.Module):
    """A convolution with fixed kernels and a learned factor for each pair of channels."""

    kernel: Tensor

    def __init__(self, source: nn.Conv2d) -> None:
        super().__init__()
        self.stride, self.padding = source.stride, source.padding
        self.register_buffer("kernel", source.weight.detach().clone())
        self.scale = nn.Parameter(self.kernel.new_ones(*self.kernel.shape[:2], 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel * self.scale, None, self.stride, self.padding)


class AggregatedResNet(nn.Module):
    """A trained ResNet as two branches: out_l = a_l * stable_l(in) + (1 - a_l) * plastic_l(in).

    A level is a stage of the ResNet; the first level includes the stem. `weights` holds all a_l, which begin at 1/2.
    They require no gradient by default, so they are trained only by a stage that names them.
    """

    gradient_sum: Tensor

    def __init__(self, source: ResNet) -> None:
        super().__init__()
        self.stable, self.plastic = _levels(source), _levels(source)
        for module in list(self.stable.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Conv2d):
                    setattr(module, name, ScaledConv2d(child))
        like = next(source.parameters())
        self.weights = nn.Parameter(like.new_full((len(self.stable),), 0.5), requires_grad=False)
        # The sum of the weights' gradients over all steps of all phases, saved with the model.
        self.register_buffer("gradient_sum", torch.zeros_like(self.weights))
        self.feature_size = source.feature_size

    def forward(self, images: Tensor) -> Features:
        maps = [images]
        for weight, stable, plastic in zip(self.weights, self.stable, self.plastic, strict=True):
            maps.append(weight * stable(maps[-1]) + (1 - weight) * plastic(maps[-1]))
        return Features(maps[-1].mean((2, 3)), tuple(maps[1:]))


def _levels(source: ResNet) -> nn.ModuleList:
    """Copy the levels of a ResNet, between which branches are mixed."""
    copied = copy.deepcopy(source)
    first, *others = copied.stages
    return nn.ModuleList([nn.Sequential(copied.stem, first), *others])
