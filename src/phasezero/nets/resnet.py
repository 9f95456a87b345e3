"""Residual networks: ResNet-18 for small and for large images, ResNet-32, and a small one for glyphs.

All are one class. `forward` gives the pooled features and the output map of each stage (PODNet distils
those). The last block's second normalisation, its sum and the pooling are done in float32 at least, whatever the
precision of the convolutions: CwD standardises these features, and should not standardise rounding.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.registry import Registry

Stem = Literal["conv3", "conv3-stride2", "conv3-pool", "imagenet"]


class Features(NamedTuple):
    pooled: Tensor
    maps: tuple[Tensor, ...]


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class SingleValueNorm(nn.modules.batchnorm._BatchNorm):
    """Batch normalisation of any batch: a single value a channel (a batch of one image, on maps of one pixel) has no
    variance and is normalised as in evaluation, where torch would refuse it."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.shape[1]:
            statistics = self.running_mean, self.running_var
            return F.batch_norm(x, *statistics, self.weight, self.bias, training=False, eps=self.eps)
        normalised: Tensor = super().forward(x)
        return normalised


class BatchNorm(SingleValueNorm, nn.BatchNorm2d):
    """Does not count its batches: a kernel a layer and step, for a number that only `momentum=None` reads."""

    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.num_batches_tracked = None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any) -> None:
        # A state of version 1 would be given the missing counter.
        super()._load_from_state_dict(state_dict, prefix, {**local_metadata, "version": 2}, *others)


class BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = BatchNorm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = BatchNorm(outputs)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm(outputs)
            )
        self.last_relu: nn.Module = nn.ReLU()
        self.is_last = False

    def forward(self, x: Tensor) -> Tensor:
        out, identity = self.conv2(self.relu(self.bn1(self.conv1(x)))), self.shortcut(x)
        if self.is_last:
            out, identity = at_least_float32(out), at_least_float32(identity)
        out = self.bn2(out) + identity
        result: Tensor = self.last_relu(out)
        return result


class Backbone(nn.Module):
    """What gives `Features` of images; pooled features have this many numbers."""

    feature_size: int


class ResNet(Backbone):
    """Stages of basic blocks. `last_relu=False` removes the ReLU after the very last block: signed features,
    as every LUCIR implementation has them (LUCIR sec. 4.1)."""

    def __init__(
        self,
        widths: tuple[int, ...],
        blocks: tuple[int, ...],
        *,
        stem: Stem,
        channels: int = 3,
        last_relu: bool = False,
    ) -> None:
        super().__init__()
        if stem == "imagenet":
            self.stem = nn.Sequential(
                nn.Conv2d(channels, widths[0], 7, 2, 3, bias=False),
                BatchNorm(widths[0]),
                nn.ReLU(),
                nn.MaxPool2d(3, 2, 1),
            )
        else:
            stride = 2 if stem == "conv3-stride2" else 1
            self.stem = nn.Sequential(
                nn.Conv2d(channels, widths[0], 3, stride, 1, bias=False), BatchNorm(widths[0]), nn.ReLU()
            )
            if stem == "conv3-pool":  # PODNet's for large images
                self.stem.append(nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList()
        inputs = widths[0]
        for index, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            strides = [1 if index == 0 else 2] + [1] * (count - 1)
            stage = []
            for stride in strides:
                stage.append(BasicBlock(inputs, width, stride))
                inputs = width
            self.stages.append(nn.Sequential(*stage))
        last_block = stage[-1]
        last_block.is_last = True
        if not last_relu:
            last_block.last_relu = nn.Identity()
        self.feature_size = inputs

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Features:
        x = self.stem(images)
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return Features(x.mean((2, 3)), tuple(maps))


class NetworkMaker(Protocol):
    """A named architecture: called with the number of image channels and the last-ReLU switch."""

    def __call__(self, *, channels: int = 3, last_relu: bool = False) -> Backbone: ...


class NetworkFactory:
    """The maker of a kind of ResNet."""

    def __init__(
        self,
        widths: tuple[int, ...],
        blocks: tuple[int, ...],
        stem: Stem,
        network: type[ResNet] = ResNet,
    ) -> None:
        self.widths, self.blocks, self.stem, self.network = widths, blocks, stem, network

    def __call__(self, *, channels: int = 3, last_relu: bool = False) -> ResNet:
        return self.network(self.widths, self.blocks, stem=self.stem, channels=channels, last_relu=last_relu)


NETWORKS: Registry[NetworkMaker] = Registry("network")
NETWORKS.register("resnet18-cifar")(NetworkFactory((64, 128, 256, 512), (2, 2, 2, 2), "conv3"))
NETWORKS.register("resnet18")(NetworkFactory((64, 128, 256, 512), (2, 2, 2, 2), "imagenet"))
NETWORKS.register("resnet32")(NetworkFactory((16, 32, 64), (5, 5, 5), "conv3"))
NETWORKS.register("resnet-glyphs")(NetworkFactory((16, 32, 64), (1, 1, 1), "conv3-stride2"))
