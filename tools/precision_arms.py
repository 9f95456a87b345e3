"""Which of precision, pooling and tail batches moves LUCIR+CwD's number (notebook/results.md, "What moved the number").

    python tools/precision_arms.py OUT --root DATA --seeds 0,1 [--arms bf16,prototype]

trains LUCIR+CwD on CIFAR-100 (B=50, S=10) on a GPU, several runs at once:

- bf16: today's code, convolutions in bfloat16; the last block's sum, the pooling and all after it stay float32.
- prototype: bfloat16 up to and with the pooled features, and no tail batches, as an early throw-away version had it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import arguments
import torch
from rich.console import Console

from phasezero.config import RunConfig
from phasezero.data.loader import BatchPlan
from phasezero.engine.stage import StagePass
from phasezero.nets import NETWORKS, Features, ResNet
from phasezero.presets import build_config
from phasezero.runs.session import run_all


class RoundedResNet(ResNet):
    """Round the last sum and the pooled features to the precision of the convolutions."""

    def __init__(self, **switches: Any) -> None:
        super().__init__((64, 128, 256, 512), (2, 2, 2, 2), stem="conv3", **switches)
        *_, last_block = self.stages[-1].children()
        last_block.is_last = False  # type: ignore[assignment]

    def forward(self, images: torch.Tensor) -> Features:
        pooled, maps = super().forward(images)
        return Features(pooled.float(), maps)


NETWORKS.register("resnet18-cifar-rounded")(RoundedResNet)


def leave_out_tails() -> None:
    """Train that network without the epoch's smaller last batch from now on; phasezero has no such switch."""
    all_batches = StagePass._batches

    def full_batches(stage_pass: StagePass, rng: torch.Generator) -> Iterator[BatchPlan]:
        rounded = isinstance(stage_pass.model.backbone, RoundedResNet)
        for plan in all_batches(stage_pass, rng):
            if not rounded or plan[-1].shape[-1] == stage_pass.stage.schedule.batch_size:
                yield plan

    StagePass._batches = full_batches  # type: ignore[assignment, method-assign]


ARMS = {
    "bf16": {"engine.precision": "bf16"},
    "prototype": {"engine.precision": "bf16", "network.name": "resnet18-cifar-rounded"},
}


def arm(name: str, seed: int) -> RunConfig:
    config = build_config("lucir", "cifar100", initial=["cwd"], base=50, step=10).override(ARMS[name])
    return replace(config, name=f"lucir+cwd-{name}/cifar100/b50s10", seed=seed)


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("--seeds", type=arguments.numbers, default=[0, 1])
    parser.add_argument("--arms", default="bf16,prototype")
    wanted = parser.parse_args()
    configs = [arm(name, seed) for name, seed in product(wanted.arms.split(","), wanted.seeds)]
    leave_out_tails()
    run_all(configs, root=wanted.root, out=wanted.out, resume=True, console=Console())


if __name__ == "__main__":
    main()
