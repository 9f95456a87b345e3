"""PODNet's networks: their size worked out by hand, their signed maps, their forward pass written again."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets import NETWORKS
from phasezero.nets.podnet import PaddedSubsampling
from slow import batch_norm


class Plan(NamedTuple):
    """What each architecture should be, said once more: (width, blocks, first stride) of each stage."""

    stages: tuple[tuple[int, int, int], ...]
    stem_stride: int
    max_pool: bool
    rebuffi: bool


EIGHTEEN = ((64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2))
PLANS = {
    "resnet32-podnet": Plan(((16, 5, 1), (32, 5, 2), (64, 4, 2), (64, 1, 1)), 1, False, True),
    "resnet18-podnet": Plan(EIGHTEEN, 1, True, False),
    "resnet18-cifar-podnet": Plan(EIGHTEEN, 1, False, False),
    "resnet-glyphs-podnet": Plan(((16, 1, 1), (32, 1, 2), (64, 1, 2)), 2, False, False),
}
every_network = pytest.mark.parametrize("name", PLANS)


def test_every_network_is_tested() -> None:
    assert {name for name in NETWORKS if name.endswith("-podnet")} == set(PLANS)


# ---- size -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # Stem 3*16*9 + 32; ten 3x3 convolutions at 16; one 16->32 and nine at 32; one 32->64 and nine at 64;
        # two parameters a channel for each normalisation. No shortcut has any.
        (
            "resnet32-podnet",
            (432 + 32) + 10 * (2304 + 32) + (4608 + 64) + 9 * (9216 + 64) + (18432 + 128) + 9 * (36864 + 128),
        ),
        ("resnet18-podnet", 11_176_512 - (7 * 7 - 3 * 3) * 3 * 64),  # torchvision's but for the stem
        ("resnet18-cifar-podnet", 11_168_832),
    ],
)
def test_parameter_count(name: str, count: int) -> None:
    assert sum(parameter.numel() for parameter in NETWORKS[name]().parameters()) == count


@pytest.mark.parametrize(
    ("name", "size", "maps"),
    [
        ("resnet32-podnet", 32, [(16, 32), (32, 16), (64, 8), (64, 8)]),
        ("resnet18-podnet", 224, [(64, 112), (128, 56), (256, 28), (512, 14)]),
        ("resnet18-cifar-podnet", 32, [(64, 32), (128, 16), (256, 8), (512, 4)]),
        ("resnet-glyphs-podnet", 28, [(16, 14), (32, 7), (64, 4)]),
    ],
)
def test_shapes(name: str, size: int, maps: list[tuple[int, int]]) -> None:
    network = NETWORKS[name]().eval()
    with torch.no_grad():
        found = network(torch.randn(1, 3, size, size))
    assert [tuple(each.shape[1:]) for each in found.maps] == [(c, side, side) for c, side in maps]
    assert found.pooled.shape == (1, network.feature_size)
    assert network.feature_size == maps[-1][0]


# ---- what sets them apart ---------------------------------------------------------------------------------


def randomised(name: str, **options: bool) -> nn.Module:
    """With norms that are not what they are at the beginning (a last norm of zero hides its block)."""
    torch.manual_seed(0)
    network = NETWORKS[name](**options).double()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.weight.data, module.bias.data, module.running_mean):
                values.normal_()
            module.running_var.uniform_(0.5, 2)
    return network


@every_network
def test_every_map_is_signed(name: str) -> None:
    with torch.no_grad():
        found = randomised(name).eval()(torch.randn(2, 3, 32, 32, dtype=torch.float64))
    for signed in found.maps:
        assert (signed < 0).any()


@every_network
def test_the_last_relu_can_be_put_back(name: str) -> None:
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        signed, clipped = (randomised(name, last_relu=relu).eval()(images) for relu in (False, True))
    for one, other in zip(signed.maps[:-1], clipped.maps[:-1], strict=True):
        assert torch.equal(one, other)
    assert torch.equal(signed.maps[-1].clamp_min(0), clipped.maps[-1])


@every_network
def test_blocks_begin_as_their_shortcuts(name: str) -> None:
    for module_name, module in NETWORKS[name]().named_modules():
        if isinstance(module, nn.BatchNorm2d):
            expected = 0 if module_name.endswith("bn2") else 1
            assert (module.weight == expected).all()


def test_padded_subsampling() -> None:
    x = torch.randn(2, 3, 5, 4)
    found = PaddedSubsampling()(x)
    assert found.shape == (2, 6, 3, 2)
    for n in range(2):
        for c in range(6):
            for i in range(3):
                for j in range(2):
                    expected = x[n, c, 2 * i, 2 * j] if c < 3 else 0
                    assert found[n, c, i, j] == expected


def forward_by_hand(state: dict[str, Tensor], plan: Plan, images: Tensor, training: bool) -> list[Tensor]:
    norm = batch_norm(state, training)

    x = F.conv2d(images, state["stem.0.weight"], stride=plan.stem_stride, padding=1)
    x = norm(x, "stem.1").clamp_min(0)
    if plan.max_pool:
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    maps = []
    for stage, (width, blocks, first_stride) in enumerate(plan.stages):
        for block in range(blocks):
            name, stride = f"stages.{stage}.{block}", first_stride if block == 0 else 1
            out = F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            out = norm(out, f"{name}.bn1").clamp_min(0)
            out = norm(F.conv2d(out, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
            if x.shape[1] != width and plan.rebuffi:
                x = x[:, :, ::2, ::2]
                x = torch.cat([x, 0 * x], 1)
            elif x.shape[1] != width:
                x = norm(F.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=stride), f"{name}.shortcut.1")
            x = out + x
            if not plan.rebuffi and block < blocks - 1:
                x = x.clamp_min(0)
        maps.append(x)
    return maps


@every_network
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_forward_pass(name: str, training: bool) -> None:
    network = randomised(name).train(training)
    images = torch.randn(2, 3, 24, 32, dtype=torch.float64)
    with torch.no_grad():
        expected = forward_by_hand(network.state_dict(), PLANS[name], images, training)
        found = network(images)
    for one, other in zip(found.maps, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert torch.allclose(found.pooled, expected[-1].mean((2, 3)), rtol=1e-9, atol=1e-9)


@every_network
def test_pooled_features_are_float32_at_least(name: str) -> None:
    network = NETWORKS[name]().eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = network(torch.randn(2, 3, 32, 32))
    assert found.pooled.dtype == torch.float32
