"""Fine-tuning: cross-entropy, which is most methods' loss in phase 0, too; and forgetting without a memory."""

from __future__ import annotations

import pytest

from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.methods import METHODS
from phasezero.methods.finetune import Finetune
from phasezero.nets import LinearHead
from phasezero.presets import preset
from samples import Make, train
from slow import batch_of, cross_entropy, normal, same_with_gradient

FIRST, LATER = Phase(0, 0, 5), Phase(2, 3, 2)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        *(
            (name, FIRST)
            for name in ("aanet", "bic", "bic-podnet", "finetune", "icarl", "joint", "lucir", "lwf", "lwf-free")
        ),
        ("finetune", LATER),
        ("joint", LATER),
    ],
)
def test_the_loss_is_cross_entropy_over_all_classes_seen(name: str, phase: Phase) -> None:
    logits, labels = normal(6, 5).requires_grad_(), [0, 4, 2, 3, 0, 1]
    options = preset(f"{name}/glyphs/b50s10").method
    loss = METHODS[options.name](options).make_loss(phase)(batch_of(logits, labels))
    same_with_gradient(loss, cross_entropy(logits, labels), logits)


def test_the_head_is_linear_without_bias_on_rectified_features() -> None:
    head = Finetune(Finetune.Options()).make_head(4)
    assert isinstance(head, LinearHead)
    assert head.biases is None
    config = preset("finetune/cifar100/b50s10")
    assert (config.network.last_relu, config.protocol.memory) == (True, "per_class:20")
    assert preset("finetune-free/cifar100/b50s10").protocol.memory == "per_class:0"


def test_without_a_memory_it_forgets(toy_config: Make, toy_data: ImageData) -> None:
    longer = {f"training__{when}__epochs": 8 for when in ("first", "later")}
    settings = {"protocol__memory": "per_class:0", "protocol__phase_sizes": [4, 2], **longer}
    record = train(toy_config("finetune-free/glyphs/b50s10", **settings), data=toy_data)
    assert record["phases"][0]["accuracy"]["head"] > 60  # chance is 25
    assert [phase["train_images"] for phase in record["phases"]] == [56, 28]
    old, new = record["phases"][-1]["by_phase"]["head"]
    assert old < 20  # most images of old classes are taken for new classes
    assert new > 60
