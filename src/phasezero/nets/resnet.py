"""Residual networks: ResNet-18 for small and for large images, ResNet-34, 50 and 32, and a small ResNet for glyphs.

`forward` returns the pooled features and the output map of each stage, which PODNet distils. The last block's second
normalisation, its sum and the pooling are computed at least in float32, whatever the precision of the convolutions,
because CwD standardises these features and should not amplify rounding.

PODNet's networks (`-podnet`) end each stage without a ReLU, so that the maps are signed. Distilling maps after a ReLU
does not work with PODNet's factors (a user of its code got 59.8 on CIFAR100 with ten classes at a time).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.registry import Registry

Sizes = tuple[int, ...]
"""A number for each stage."""
Stem = Literal["conv3", "conv3-stride2", "conv3-pool", "imagenet"]


class Features(NamedTuple):
    """What a backbone returns: features [n, d], and the output map of each stage (PODNet needs at least one).

    >>> import torch
    >>> from phasezero import Features
    >>> Features(pooled=torch.zeros(2, 64), maps=()).pooled.shape
    torch.Size([2, 64])
    """

    pooled: Tensor
    maps: tuple[Tensor, ...]


def at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class SingleValueNorm(nn.modules.batchnorm._BatchNorm):
    """Normalise any batch. A single value per channel (one image, maps of one pixel) has no variance, and torch would
    raise an error. It is normalised as in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.shape[1]:
            statistics = self.running_mean, self.running_var
            return F.batch_norm(x, *statistics, self.weight, self.bias, training=False, eps=self.eps)
        normalised: Tensor = super().forward(x)
        return normalised


class BatchNorm(SingleValueNorm, nn.BatchNorm2d):
    """Skip counting batches, which costs a kernel per layer and step. Only `momentum=None` reads the count."""

    def __init__(self, features: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__(features, eps, momentum)
        self.num_batches_tracked = None

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any) -> None:
        # A state of version 1 would be given the missing counter.
        super()._load_from_state_dict(state_dict, prefix, {**local_metadata, "version": 2}, *others)


class ResidualBlock(nn.Module):
    """Base of blocks: a ReLU of the sum of a branch and a shortcut. The branch ends with `last_norm`."""

    expansion: ClassVar[int] = 1
    """Output channels for each channel of the stage's width."""
    last_norm_name: str

    def add_shortcut(self, inputs: int, outputs: int, stride: int) -> None:
        """Add the modules that follow the branch. Subclasses call this after theirs, which draw their weights first."""
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm(outputs))
        self.last_relu: nn.Module = nn.ReLU()
        self.is_last = False

    @property
    def last_norm(self) -> BatchNorm:
        norm: BatchNorm = getattr(self, self.last_norm_name)
        return norm

    def run_branch(self, x: Tensor) -> Tensor:
        """Run the branch up to its last convolution."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        out, identity = self.run_branch(x), self.shortcut(x)
        if self.is_last:
            out, identity = at_least_float32(out), at_least_float32(identity)
        result: Tensor = self.last_relu(self.last_norm(out) + identity)
        return result


class BasicBlock(ResidualBlock):
    last_norm_name = "bn2"

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = BatchNorm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = BatchNorm(outputs)
        self.add_shortcut(inputs, outputs, stride)

    def run_branch(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv2(self.relu(self.bn1(self.conv1(x))))
        return out


class Bottleneck(ResidualBlock):
    """ResNet-50's block. The 3x3 convolution has the stride, as in torchvision ("v1.5") and all its weights."""

    expansion = 4
    last_norm_name = "bn3"

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        width = outputs // self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = BatchNorm(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = BatchNorm(outputs)
        self.add_shortcut(inputs, outputs, stride)

    def run_branch(self, x: Tensor) -> Tensor:
        out: Tensor = self.conv3(self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))))
        return out


class Backbone(nn.Module):
    """A network whose forward pass turns images [n, C, H, W] into `Features` of `feature_size` numbers.

    See `register_network` for an example.

    >>> from phasezero.nets import NETWORKS
    >>> NETWORKS["resnet-glyphs"]().feature_size
    64
    """

    feature_size: int


class ResNet(Backbone):
    """Stages of basic blocks, or of another kind of block.

    `last_relu=False` removes the ReLU after the last block, which gives signed features, as in every LUCIR
    implementation (LUCIR sec. 4.1). `signed` removes it at the end of the other stages, and initialises the last
    normalisation of each block to zero, as in PODNet's code.
    """

    def __init__(
        self,
        widths: Sizes,
        blocks: Sizes,
        stem: Stem,
        signed: bool = False,
        channels: int = 3,
        last_relu: bool = False,
        kind: type[BasicBlock] | type[Bottleneck] = BasicBlock,
    ) -> None:
        super().__init__()
        inputs = widths[0]
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 2 if stem == "conv3-stride2" else 1)
        convolution = nn.Conv2d(channels, inputs, kernel, stride, kernel // 2, bias=False)
        self.stem = nn.Sequential(convolution, BatchNorm(inputs), nn.ReLU())
        if stem in ("imagenet", "conv3-pool"):  # the second is PODNet's for large images
            self.stem.append(nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList()
        for index, (width, count) in enumerate(zip(widths, blocks, strict=True)):
            stage = nn.Sequential()
            for place in range(count):
                outputs = width * kind.expansion
                block = kind(inputs, outputs, stride=2 if index > 0 and place == 0 else 1)
                stage.append(block)
                inputs = outputs
            if signed:
                block.last_relu = nn.Identity()
            self.stages.append(stage)
        block.is_last, block.last_relu = True, nn.ReLU() if last_relu else nn.Identity()
        self.feature_size = inputs

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, ResidualBlock) and signed:
                nn.init.zeros_(module.last_norm.weight)

    def forward(self, images: Tensor) -> Features:
        maps = [self.stem(images)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return Features(maps[-1].mean((2, 3)), tuple(maps[1:]))


class PaddedSubsampling(nn.Module):
    """A shortcut without parameters: every second pixel, and zeros for the new channels."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))


class RebuffiResNet(ResNet):
    """PODNet's CIFAR network ("rebuffi"): 15 blocks as in ResNet-32, no ReLU after any sum, padded shortcuts."""

    def __init__(self, *, channels: int = 3, last_relu: bool = False) -> None:
        super().__init__(*RESNET32, stem="conv3", signed=True, channels=channels, last_relu=last_relu)
        for block in self.modules():
            if isinstance(block, BasicBlock):
                if not block.is_last:
                    block.last_relu = nn.Identity()
                if not isinstance(block.shortcut, nn.Identity):
                    block.shortcut = PaddedSubsampling()
        *stages, final = self.stages  # the last block becomes a stage: there are four maps to distil
        *others, last = final.children()
        self.stages = nn.ModuleList([*stages, nn.Sequential(*others), nn.Sequential(last)])


class NetworkMaker(Protocol):
    """Make a named network, given the number of image channels and the last-ReLU switch."""

    def __call__(self, *, channels: int = 3, last_relu: bool = False) -> Backbone: ...


NETWORKS: Registry[NetworkMaker] = Registry("network")
SECONDS: dict[str, Mapping[str, float]] = {}
"""Seconds to train on an image, by `cpu` and `cuda`, for networks that are not the default of a data set."""

Maker = TypeVar("Maker", bound=NetworkMaker)


def register_network(
    name: str, summary: str = "", seconds: Mapping[str, float] | None = None
) -> Callable[[Maker], Maker]:
    """Return a decorator that adds a network: a function, or a class, of `channels` and `last_relu`.

    Methods that need a ResNet accept a subclass of it, or a function with the annotation `-> ResNet`.

    >>> from torch import nn
    >>> from phasezero import Backbone, Features, preset, register_network
    >>> @register_network("doc-net", "One convolution")
    ... class OneLayer(Backbone):
    ...     def __init__(self, *, channels=3, last_relu=False):
    ...         super().__init__()
    ...         self.layer, self.feature_size = nn.Conv2d(channels, 16, 3), 16
    ...     def forward(self, images):
    ...         maps = self.layer(images)
    ...         return Features(maps.mean((2, 3)), (maps,))
    >>> preset("lucir/glyphs/b50s10,network.name=doc-net").network.name
    'doc-net'
    """

    def keep(maker: Maker) -> Maker:
        NETWORKS.register(name, summary)(maker)
        if seconds is not None:
            SECONDS[name] = seconds
        return maker

    return keep


def fits_network(name: str, wanted: type[Backbone]) -> bool:
    """Tell whether a registered network is known to be an instance of a class. Every network counts as a Backbone."""
    maker = NETWORKS[name]
    made: object = maker.func if isinstance(maker, partial) else maker
    if wanted is not Backbone and not isinstance(made, type):
        with suppress(Exception):  # ignore an annotation that cannot be read
            made = get_type_hints(made).get("return")
    return wanted is Backbone or (isinstance(made, type) and issubclass(made, wanted))


# Widths and blocks of stages.
RESNET18 = (64, 128, 256, 512), (2, 2, 2, 2)
RESNET34 = (64, 128, 256, 512), (3, 4, 6, 3)  # and ResNet-50, with bottlenecks
RESNET32 = (16, 32, 64), (5, 5, 5)
GLYPHS = (16, 32, 64), (1, 1, 1)
pod = partial(ResNet, signed=True)  # PODNet's

register_network("resnet18-cifar", "ResNet-18 for 32 x 32 images")(partial(ResNet, *RESNET18, "conv3"))
register_network("resnet18-cifar-podnet", "a variant of resnet18-cifar: PODNet's")(partial(pod, *RESNET18, "conv3"))
register_network("resnet18", "ResNet-18 for 224 x 224 images")(partial(ResNet, *RESNET18, "imagenet"))
register_network("resnet34", "a variant of resnet18: 34 layers")(partial(ResNet, *RESNET34, "imagenet"))
resnet50 = partial(ResNet, *RESNET34, "imagenet", kind=Bottleneck)
register_network("resnet50", "a variant of resnet18: 50 layers")(resnet50)
register_network("resnet18-podnet", "a variant of resnet18: PODNet's")(partial(pod, *RESNET18, "conv3-pool"))
register_network("resnet32", "LUCIR's narrow ResNet-32")(partial(ResNet, *RESNET32, "conv3"))
register_network("resnet32-podnet", "a variant of resnet32: PODNet's")(RebuffiResNet)
register_network("resnet-glyphs", "a small ResNet for glyphs")(partial(ResNet, *GLYPHS, "conv3-stride2"))
register_network("resnet-glyphs-podnet", "a variant of resnet-glyphs: PODNet's")(partial(pod, *GLYPHS, "conv3-stride2"))
