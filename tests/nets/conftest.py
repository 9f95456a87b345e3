"""A reference implementation of residual networks from saved tensors alone, and networks as if after training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from slow import batch_norm


class SlowResNet:
    """Stem and stages by the names of their tensors; kernels may have a factor for each pair of channels."""

    def __init__(self, state: dict[str, Tensor], training: bool) -> None:
        self.state, self.norm = state, batch_norm(state, training)

    def kernel(self, name: str) -> Tensor:
        if f"{name}.weight" in self.state:
            return self.state[f"{name}.weight"]
        kernel, scale = self.state[f"{name}.kernel"], self.state[f"{name}.scale"]
        rows = [torch.stack([kernel[o, i] * scale[o, i] for i in range(kernel.shape[1])]) for o in range(len(kernel))]
        return torch.stack(rows)

    def convolve(self, x: Tensor, name: str, norm: str, stride: int = 1) -> Tensor:
        kernel = self.kernel(name)
        return self.norm(F.conv2d(x, kernel, stride=stride, padding=kernel.shape[2] // 2), norm)

    def stem(self, x: Tensor, name: str, stride: int, pool: bool) -> Tensor:
        x = self.convolve(x, f"{name}.0", f"{name}.1", stride).clamp_min(0)
        return F.max_pool2d(x, 3, stride=2, padding=1) if pool else x

    def branch(self, x: Tensor, block: str, stride: int) -> Tensor:
        """The stride is that of the first 3x3 convolution: of the second layer in a block of three."""
        if f"{block}.bn3.weight" in self.state:
            out = self.convolve(x, f"{block}.conv1", f"{block}.bn1").clamp_min(0)
            out = self.convolve(out, f"{block}.conv2", f"{block}.bn2", stride).clamp_min(0)
            return self.convolve(out, f"{block}.conv3", f"{block}.bn3")
        out = self.convolve(x, f"{block}.conv1", f"{block}.bn1", stride).clamp_min(0)
        return self.convolve(out, f"{block}.conv2", f"{block}.bn2")

    def stage(self, x: Tensor, name: str, stride: int, relus: Sequence[bool], padded: bool = False) -> Tensor:
        """`relus`: whether a ReLU follows each sum. `padded`: shortcuts without parameters (PODNet's ResNet-32)."""
        for index, relu in enumerate(relus):
            block = f"{name}.{index}"
            out = self.branch(x, block, stride)
            if out.shape != x.shape and padded:
                x = torch.cat([x[:, :, ::2, ::2], 0 * x[:, :, ::2, ::2]], 1)
            elif out.shape != x.shape:
                x = self.convolve(x, f"{block}.shortcut.0", f"{block}.shortcut.1", stride)
            x, stride = (out + x).clamp_min(0) if relu else out + x, 1
        return x


@pytest.fixture(scope="session")
def slow_resnet() -> type[SlowResNet]:
    return SlowResNet


@pytest.fixture(scope="session")
def stir() -> Callable[[nn.Module], None]:
    """Give every BatchNorm numbers that do something: at the beginning some hide their block."""

    def stir(network: nn.Module) -> None:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                for values in (module.weight.data, module.bias.data, module.running_mean):
                    values.normal_()
                module.running_var.uniform_(0.5, 2)

    return stir
