"""Networks that a plug-in registers, as a class or as a function: every method works with them, AANets with ResNets."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from phasezero import Backbone, Features, register_network
from phasezero.data.images import ImageData
from phasezero.errors import UserError
from phasezero.methods import METHODS
from phasezero.nets import CosineHead, IncrementalModel, ResNet, fits_network
from samples import Make, train


class OneLayer(nn.Module):
    """Not even a Backbone; in half precision where the convolution is."""

    def __init__(self, *, channels: int = 3, last_relu: bool = False) -> None:
        super().__init__()
        self.layer, self.feature_size = nn.Conv2d(channels, 8, 3), 8

    def forward(self, images: Tensor) -> Features:
        maps = self.layer(images)
        return Features(maps.mean((2, 3)), (maps,))


class OwnResNet(ResNet):
    def __init__(self, *, channels: int = 3, last_relu: bool = False) -> None:
        super().__init__((4, 8), (1, 1), stem="conv3", channels=channels, last_relu=last_relu)


def make_one_layer(*, channels=3, last_relu=False):  # type: ignore[no-untyped-def]
    return OneLayer(channels=channels)


def make_resnet(*, channels: int = 3, last_relu: bool = False) -> ResNet:
    return OwnResNet(channels=channels, last_relu=last_relu)


def make_something(*, channels: int = 3, last_relu: bool = False) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return OwnResNet(channels=channels, last_relu=last_relu)


MAKERS: dict[str, Any] = {
    "layer": OneLayer,
    "layer-function": make_one_layer,
    "resnet": OwnResNet,
    "resnet-partial": partial(ResNet, (4, 8), (1, 1), stem="conv3"),
    "resnet-function": make_resnet,
    "unreadable": make_something,
}


@pytest.fixture(autouse=True)
def outside(own_registries: None) -> None:
    for name, maker in MAKERS.items():
        assert register_network(f"outside-{name}", "of a plug-in")(maker) is maker


@pytest.mark.parametrize("name", MAKERS)
def test_only_what_is_known_to_be_a_resnet_counts_as_one(name: str) -> None:
    assert fits_network(f"outside-{name}", Backbone)
    assert fits_network(f"outside-{name}", ResNet) == name.startswith("resnet")
    assert not fits_network("alexnet-3d", ResNet)


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("name", ["layer", "layer-function", "resnet-function"])
def test_a_run_of_every_method(method: str, name: str, toy_data: ImageData, toy_config: Make) -> None:
    short = {"protocol__phase_sizes": [2, 1], "training__first__epochs": 1, "training__later__epochs": 1}
    config = toy_config(f"{method}/glyphs/b50s10", network__name=f"outside-{name}", **short)
    if fits_network(f"outside-{name}", METHODS[method].network):
        record = train(config, data=toy_data)
        assert [phase["seen_classes"] for phase in record["phases"]] == [2, 3]
    else:
        assert method == "aanet"
        with pytest.raises(UserError, match=r"does not work with network\.name=outside-layer.*outside-resnet"):
            train(config, data=toy_data)


def test_features_in_half_precision_reach_the_head_in_float32() -> None:
    model = IncrementalModel(OneLayer(), CosineHead(8))
    model.head.grow(3, torch.Generator())
    model.half_precision = torch.bfloat16
    output = model(torch.randn(2, 3, 8, 8))
    assert output.maps[0].dtype == torch.bfloat16
    assert output.features.dtype == output.logits.dtype == torch.float32
