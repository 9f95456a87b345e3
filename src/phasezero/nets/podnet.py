"""PODNet's networks: stages end without a ReLU, so that the maps it distils are signed.

Distilling maps after a ReLU does not go with PODNet's factors (a user of its code who tried had 59.8 on
CIFAR100 with ten classes at a time). The last normalisation of each block starts at zero, as in PODNet's code.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets.resnet import NETWORKS, BasicBlock, NetworkFactory, ResNet


class PodResNet(ResNet):
    """A ResNet in which the last block of each stage has no ReLU, and none comes between stages."""

    def __init__(self, *arguments: Any, **switches: Any) -> None:
        super().__init__(*arguments, **switches)
        for stage in list(self.stages)[:-1]:
            last_block = list(stage.children())[-1]
            last_block.last_relu = nn.Identity()
        for block in self.modules():
            if isinstance(block, BasicBlock):
                nn.init.zeros_(block.bn2.weight)


class PaddedSubsampling(nn.Module):
    """A shortcut without parameters: every second pixel, and as many zero channels again."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, x.shape[1]))


class RebuffiResNet(PodResNet):
    """PODNet's CIFAR network ("rebuffi"): 15 blocks as in ResNet-32, no ReLU after any sum, padded shortcuts.

    The very last block is a stage of its own, so that there are four maps to distil.
    """

    def __init__(self, *arguments: Any, **switches: Any) -> None:
        super().__init__(*arguments, **switches)
        *stages, final = self.stages
        final_blocks = list(final.children())
        for block in self.modules():
            if isinstance(block, BasicBlock):
                if not block.is_last:
                    block.last_relu = nn.Identity()
                if not isinstance(block.shortcut, nn.Identity):
                    block.shortcut = PaddedSubsampling()
        self.stages = nn.ModuleList(
            [*stages, nn.Sequential(*final_blocks[:-1]), nn.Sequential(final_blocks[-1])]
        )


_RESNET18 = (64, 128, 256, 512), (2, 2, 2, 2)
NETWORKS.register("resnet32-podnet")(NetworkFactory((16, 32, 64), (5, 5, 5), "conv3", network=RebuffiResNet))
NETWORKS.register("resnet18-podnet")(NetworkFactory(*_RESNET18, "conv3-pool", network=PodResNet))
NETWORKS.register("resnet18-cifar-podnet")(NetworkFactory(*_RESNET18, "conv3", network=PodResNet))
NETWORKS.register("resnet-glyphs-podnet")(
    NetworkFactory((16, 32, 64), (1, 1, 1), "conv3-stride2", network=PodResNet)
)
