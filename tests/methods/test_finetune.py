"""Fine-tuning: its one loss, its head, and that without a memory it forgets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.methods.base import Batch
from phasezero.methods.finetune import Finetune
from phasezero.nets import LinearHead, Output
from phasezero.presets import preset
from slow import cross_entropy, same_with_gradient

Make = Callable[..., RunConfig]


@pytest.mark.parametrize("phase", [Phase(0, 0, 5), Phase(2, 3, 2)])
def test_the_loss_is_cross_entropy_over_all_classes_seen(phase: Phase) -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    logits.requires_grad_()
    labels = [0, 4, 2, 3, 0, 1]
    batch = Batch(torch.empty(0), torch.tensor(labels), Output(logits, logits, logits, ()), None)
    loss = Finetune(Finetune.Options()).make_loss(phase)(batch)
    same_with_gradient(loss, cross_entropy(logits, labels), logits)


def test_the_head_is_linear_without_bias_on_rectified_features() -> None:
    head = Finetune(Finetune.Options()).make_head(4)
    assert isinstance(head, LinearHead)
    assert head.biases is None
    assert not Finetune.needs_teacher
    assert preset("finetune/cifar100/b50s10").network.last_relu
    assert preset("finetune/cifar100/b50s10").protocol.memory == "per_class:20"
    assert preset("finetune-free/cifar100/b50s10").protocol.memory == "per_class:0"


def test_without_a_memory_it_forgets(toy_config: Make, toy_data: ImageData) -> None:
    longer = {f"training__{which}__epochs": 8 for which in ("first", "later")}
    config = toy_config(
        "finetune-free/glyphs/b50s10",
        protocol__memory="per_class:0",
        protocol__phase_sizes=[4, 2],
        **longer,
    )
    record = run(config, data=toy_data)
    assert record["phases"][0]["accuracy"]["head"] > 60  # chance is 25
    assert [phase["train_images"] for phase in record["phases"]] == [56, 28]
    old, new = record["phases"][-1]["by_phase"]["head"]
    assert old < 20  # the new classes take all
    assert new > 60
