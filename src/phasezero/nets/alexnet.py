"""A small AlexNet with three-dimensional features, for plots on the sphere (the paper's Fig. 1, appendix D).

The paper says only "AlexNet" on 32x32 images with a representation of three dimensions. The layers are those of
Krizhevsky et al. 2012, with small kernels. Batch normalisation replaces the original's response normalisation, so that
it trains at the learning rates of the other networks. There is no dropout.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from phasezero.nets.resnet import Backbone, BatchNorm, Features, SingleValueNorm, at_least_float32, register_network

_HIDDEN = 512


class HiddenNorm(SingleValueNorm, nn.BatchNorm1d):
    """Normalise fully connected units; the last batch of an epoch may be a single image."""


def _convolution(inputs: int, outputs: int, *, stride: int = 1, pool: bool = False) -> nn.Sequential:
    layers = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), BatchNorm(outputs), nn.ReLU())
    return layers.append(nn.MaxPool2d(2)) if pool else layers


class AlexNet(Backbone):
    def __init__(self, feature_size: int, *, channels: int = 3, last_relu: bool = False) -> None:
        super().__init__()
        first = _convolution(channels, 64, stride=2, pool=True), _convolution(64, 192, pool=True)
        others = _convolution(192, 384), _convolution(384, 256), _convolution(256, 256, pool=True)
        self.stages = nn.ModuleList([*first, *others])
        self.pool = nn.AdaptiveAvgPool2d(2)  # already 2x2 for images of 32x32
        self.hidden = nn.Sequential(nn.Linear(4 * 256, _HIDDEN, bias=False), HiddenNorm(_HIDDEN), nn.ReLU())
        self.project = nn.Linear(_HIDDEN, feature_size)
        self.last_relu: nn.Module = nn.ReLU() if last_relu else nn.Identity()
        self.feature_size = feature_size

    def forward(self, images: Tensor) -> Features:
        maps = [images]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        hidden = self.hidden(self.pool(maps[-1]).flatten(1))
        with torch.autocast(images.device.type, enabled=False):  # features are never in half precision
            features = self.last_relu(self.project(at_least_float32(hidden)))
        return Features(features, tuple(maps[1:]))


register_network(
    "alexnet-3d", "an AlexNet with 3 features, for plots on a sphere", seconds={"cpu": 2.4e-3, "cuda": 1e-5}
)(partial(AlexNet, 3))
