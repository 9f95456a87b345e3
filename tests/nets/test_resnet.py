"""Residual networks: their size, their shapes, and their forward pass against one written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from phasezero.nets import BACKBONES, NETWORKS, ResNet
from phasezero.nets.resnet import BasicBlock, BatchNorm, Bottleneck, PaddedSubsampling


class Plan(NamedTuple):
    """What each architecture should be, said once more: (width, blocks, first stride) of each stage."""

    stages: tuple[tuple[int, int, int], ...]
    stem: tuple[int, int, bool]
    """Kernel, stride, and whether a pooling follows."""
    relus: str = "all"
    """After which sums but the very last: all, not the last of a stage (inner), or none."""
    expansion: int = 1
    """4 for blocks of three convolutions, which give four times the width."""


EIGHTEEN = ((64, 2, 1), (128, 2, 2), (256, 2, 2), (512, 2, 2))
THIRTY_FOUR = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
SMALL = ((16, 1, 1), (32, 1, 2), (64, 1, 2))
PLANS = {
    "resnet18-cifar": Plan(EIGHTEEN, (3, 1, False)),
    "resnet18": Plan(EIGHTEEN, (7, 2, True)),
    "resnet34": Plan(THIRTY_FOUR, (7, 2, True)),
    "resnet50": Plan(THIRTY_FOUR, (7, 2, True), expansion=4),
    "resnet32": Plan(((16, 5, 1), (32, 5, 2), (64, 5, 2)), (3, 1, False)),
    "resnet-glyphs": Plan(SMALL, (3, 2, False)),
    "resnet18-cifar-podnet": Plan(EIGHTEEN, (3, 1, False), "inner"),
    "resnet18-podnet": Plan(EIGHTEEN, (3, 1, True), "inner"),
    "resnet32-podnet": Plan(((16, 5, 1), (32, 5, 2), (64, 4, 2), (64, 1, 1)), (3, 1, False), "none"),
    "resnet-glyphs-podnet": Plan(SMALL, (3, 2, False), "inner"),
}
every_network = pytest.mark.parametrize("name", PLANS)
small_networks = pytest.mark.parametrize("name", [name for name in PLANS if "glyphs" in name or "32" in name])
# ResNet-50 takes long in float64: a small network has its blocks.
BOTTLENECKS = {"bottlenecks": Plan(((8, 2, 1), (16, 1, 2)), (7, 2, True), expansion=4)}
FORWARD = {name: (NETWORKS[name], plan) for name, plan in PLANS.items() if name != "resnet50"}
FORWARD |= {
    name: (partial(ResNet, (8, 16), (2, 1), "imagenet", kind=Bottleneck), plan) for name, plan in BOTTLENECKS.items()
}


def test_every_network_is_tested_and_has_a_line_of_phasezero_list() -> None:
    assert set(NETWORKS) == {*PLANS, "alexnet-3d", *BACKBONES}  # the others have tests of their own
    assert all(0 < len(NETWORKS.summaries[name]) <= 56 for name in NETWORKS)


# ---- size and shapes --------------------------------------------------------------------------------------


def count_by_hand(plan: Plan, channels: int) -> int:
    def layer(inputs: int, outputs: int, kernel: int) -> int:
        return inputs * outputs * kernel * kernel + 2 * outputs  # a convolution and its normalisation

    inputs = plan.stages[0][0]
    total = layer(channels, inputs, plan.stem[0])
    for width, blocks, _ in plan.stages:
        outputs = width * plan.expansion
        for _ in range(blocks):
            if plan.expansion == 1:
                total += layer(inputs, width, 3) + layer(width, width, 3)
            else:
                total += layer(inputs, width, 1) + layer(width, width, 3) + layer(width, outputs, 1)
            if inputs != outputs and plan.relus != "none":
                total += layer(inputs, outputs, 1)
            inputs = outputs
    return total


def count(name: str, channels: int = 3) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in NETWORKS[name](channels=channels).parameters())


@every_network
def test_parameter_count(name: str) -> None:
    for channels in (1, 3):
        assert count(name, channels) == count_by_hand(PLANS[name], channels)


def test_published_parameter_counts() -> None:
    """torchvision's, without the last layer of 1000 classes."""
    assert count("resnet18") == 11_689_512 - 512 * 1000 - 1000
    assert count("resnet34") == 21_797_672 - 512 * 1000 - 1000
    assert count("resnet50") == 25_557_032 - 2048 * 1000 - 1000
    assert count("resnet18-podnet") == count("resnet18") - (7 * 7 - 3 * 3) * 3 * 64
    assert count("resnet18-cifar") == count("resnet18-cifar-podnet") == 11_168_832


@pytest.mark.parametrize(
    ("name", "image", "maps"),
    [
        ("resnet18-cifar", (3, 32), [(64, 32), (128, 16), (256, 8), (512, 4)]),
        ("resnet18", (3, 224), [(64, 56), (128, 28), (256, 14), (512, 7)]),
        ("resnet34", (3, 224), [(64, 56), (128, 28), (256, 14), (512, 7)]),
        ("resnet50", (3, 224), [(256, 56), (512, 28), (1024, 14), (2048, 7)]),
        ("resnet32", (3, 32), [(16, 32), (32, 16), (64, 8)]),
        ("resnet-glyphs", (1, 28), [(16, 14), (32, 7), (64, 4)]),
        ("resnet18-cifar-podnet", (3, 32), [(64, 32), (128, 16), (256, 8), (512, 4)]),
        ("resnet18-podnet", (3, 224), [(64, 112), (128, 56), (256, 28), (512, 14)]),
        ("resnet32-podnet", (3, 32), [(16, 32), (32, 16), (64, 8), (64, 8)]),
        ("resnet-glyphs-podnet", (1, 28), [(16, 14), (32, 7), (64, 4)]),
    ],
)
def test_shapes(name: str, image: tuple[int, int], maps: list[tuple[int, int]]) -> None:
    channels, side = image
    with torch.device("meta"):
        network = NETWORKS[name](channels=channels).eval()
        found = network(torch.empty(1, channels, side, side))
    assert [tuple(each.shape[1:]) for each in found.maps] == [(width, size, size) for width, size in maps]
    assert found.pooled.shape == (1, maps[-1][0])
    assert network.feature_size == maps[-1][0]


# ---- numbers ----------------------------------------------------------------------------------------------


def maps_by_hand(slow: Any, plan: Plan, images: Tensor, last_relu: bool) -> list[Tensor]:
    x = slow.stem(images, "stem", *plan.stem[1:])
    maps = []
    for place, (_, blocks, stride) in enumerate(plan.stages):
        relus = [plan.relus != "none"] * (blocks - 1) + [plan.relus == "all"]
        if place == len(plan.stages) - 1:
            relus[-1] = last_relu
        x = slow.stage(x, f"stages.{place}", stride, relus, padded=plan.relus == "none")
        maps.append(x)
    return maps


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("last_relu", [False, True])
def test_forward_pass(
    name: str, last_relu: bool, slow_resnet: Callable[..., Any], stir: Callable[[nn.Module], None]
) -> None:
    torch.manual_seed(0)
    make, plan = FORWARD[name]
    network = make(last_relu=last_relu).double()
    stir(network)
    images = torch.randn(2, 3, 20, 16, dtype=torch.float64)
    for training in (False, True):
        with torch.no_grad():
            expected = maps_by_hand(slow_resnet(network.state_dict(), training), plan, images, last_relu)
            found = network.train(training)(images)
        for one, other in zip(found.maps, expected, strict=True):
            assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
        assert torch.allclose(found.pooled, expected[-1].mean((2, 3)), rtol=1e-9, atol=1e-9)
        signed = [bool((each < 0).any()) for each in found.maps]
        assert signed == [plan.relus != "all"] * (len(signed) - 1) + [not last_relu]


@small_networks
def test_initial_weights(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            weight = module.weight
            fan_out = weight.shape[0] * weight.shape[2] * weight.shape[3]
            expected = math.sqrt(2 / fan_out)
            # The standard error of a sample deviation is sigma / sqrt(2 n).
            assert weight.std().item() == pytest.approx(expected, rel=6 / math.sqrt(2 * weight.numel()))
            assert abs(weight.mean().item()) < 6 * expected / math.sqrt(weight.numel())
            assert module.bias is None
        if isinstance(module, BasicBlock):  # PODNet's begin as their shortcuts
            assert (module.bn1.weight == 1).all()
            assert (module.bn2.weight == (1 if PLANS[name].relus == "all" else 0)).all()


@small_networks
def test_pooled_features_are_float32_at_least(name: str) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        exact = network(images).pooled
        with torch.autocast("cpu", torch.bfloat16):
            found = network(images)
        in_double = network.double()(images.double()).pooled
    assert found.maps[0].dtype == torch.bfloat16  # the convolutions did run in half precision
    assert found.pooled.dtype == torch.float32
    assert (found.pooled != found.pooled.bfloat16().float()).any()  # and the features were not rounded to it
    assert torch.allclose(found.pooled, exact, atol=0.1 * float(exact.std()))
    assert in_double.dtype == torch.float64
    assert torch.allclose(in_double.float(), exact, rtol=1e-3, atol=1e-3 * float(exact.std()))


def test_padded_subsampling() -> None:
    x = torch.randn(2, 3, 5, 4)
    found = PaddedSubsampling()(x)
    assert found.shape == (2, 6, 3, 2)
    for n, c, i, j in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
        assert found[n, c, i, j] == (x[n, c, 2 * i, 2 * j] if c < 3 else 0)


def test_a_single_value_is_normalised_as_in_evaluation() -> None:
    norm = BatchNorm(3).double()
    for _ in range(5):
        norm(torch.randn(8, 3, 2, 2, dtype=torch.float64) * 2 + 1)
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    single = torch.randn(1, 3, 1, 1, dtype=torch.float64)
    expected = (single[0, :, 0, 0] - before["running_mean"]) / (before["running_var"] + 1e-5).sqrt()
    torch.testing.assert_close(norm.train()(single)[0, :, 0, 0], expected)
    assert all(torch.equal(norm.state_dict()[name], value) for name, value in before.items())
    several = torch.randn(2, 3, 1, 1, dtype=torch.float64)  # are a batch as any other
    assert norm(several).detach().mean((0, 2, 3)).abs().max() < 1e-12
