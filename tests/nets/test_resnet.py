"""Residual networks: their size, their shapes, and their forward pass against one written by hand."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets import NETWORKS, ResNet
from phasezero.nets.resnet import BatchNorm
from slow import batch_norm


class Plan(NamedTuple):
    """What each architecture should be, said once more."""

    widths: tuple[int, ...]
    blocks: int
    stem_kernel: int
    stem_stride: int
    max_pool: bool


PLANS = {
    "resnet18-cifar": Plan((64, 128, 256, 512), 2, 3, 1, False),
    "resnet18": Plan((64, 128, 256, 512), 2, 7, 2, True),
    "resnet32": Plan((16, 32, 64), 5, 3, 1, False),
    "resnet-glyphs": Plan((16, 32, 64), 1, 3, 2, False),
}
every_network = pytest.mark.parametrize("name", PLANS)


def test_every_network_is_tested() -> None:
    own = {"alexnet-3d", *(name for name in NETWORKS if name.endswith("-podnet"))}  # tests of their own
    assert set(NETWORKS) - own == set(PLANS)


# ---- size -------------------------------------------------------------------------------------------------


def count_by_hand(plan: Plan, channels: int) -> int:
    def conv(inputs: int, outputs: int, kernel: int) -> int:
        return inputs * outputs * kernel * kernel

    def norm(outputs: int) -> int:
        return 2 * outputs

    total = conv(channels, plan.widths[0], plan.stem_kernel) + norm(plan.widths[0])
    inputs = plan.widths[0]
    for width in plan.widths:
        for _ in range(plan.blocks):
            total += conv(inputs, width, 3) + norm(width) + conv(width, width, 3) + norm(width)
            if inputs != width:
                total += conv(inputs, width, 1) + norm(width)
            inputs = width
    return total


@every_network
@pytest.mark.parametrize("channels", [1, 3])
def test_parameter_count(name: str, channels: int) -> None:
    network = NETWORKS[name](channels=channels)
    assert sum(parameter.numel() for parameter in network.parameters()) == count_by_hand(
        PLANS[name], channels
    )


@pytest.mark.parametrize(
    ("name", "published"),
    [("resnet18-cifar", 11_168_832), ("resnet18", 11_689_512 - 512 * 1000 - 1000)],
)
def test_published_parameter_count(name: str, published: int) -> None:
    """torchvision's ResNet-18 has 11,689,512, of which 513,000 are its last layer's."""
    assert sum(parameter.numel() for parameter in NETWORKS[name]().parameters()) == published


# ---- shapes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "image", "maps"),
    [
        ("resnet18-cifar", (3, 32, 32), [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]),
        ("resnet18", (3, 224, 224), [(64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7)]),
        ("resnet32", (3, 32, 32), [(16, 32, 32), (32, 16, 16), (64, 8, 8)]),
        ("resnet-glyphs", (1, 28, 28), [(16, 14, 14), (32, 7, 7), (64, 4, 4)]),
    ],
)
def test_shapes(name: str, image: tuple[int, ...], maps: list[tuple[int, ...]]) -> None:
    network = NETWORKS[name](channels=image[0]).eval()
    with torch.no_grad():
        found = network(torch.randn(1, *image))
    assert [tuple(each.shape[1:]) for each in found.maps] == maps
    assert found.pooled.shape == (1, maps[-1][0])
    assert network.feature_size == maps[-1][0]
    assert torch.allclose(found.pooled, found.maps[-1].mean((2, 3)), atol=1e-6)


# ---- ReLUs ------------------------------------------------------------------------------------------------


def calls_of_relu(network: ResNet, images: Tensor) -> int:
    calls = []
    hooks = [
        module.register_forward_hook(lambda module, inputs, output: calls.append(module))
        for module in network.modules()
        if isinstance(module, nn.ReLU)
    ]
    with torch.no_grad():
        network(images)
    for hook in hooks:
        hook.remove()
    return len(calls)


@every_network
def test_the_switch_takes_away_the_last_relu_alone(name: str) -> None:
    plan = PLANS[name]
    images = torch.randn(2, 3, 32, 32)
    torch.manual_seed(0)
    without = NETWORKS[name](last_relu=False).eval()
    torch.manual_seed(0)
    with_it = NETWORKS[name](last_relu=True).eval()
    all_relus = 1 + 2 * plan.blocks * len(plan.widths)
    assert calls_of_relu(with_it, images) == all_relus
    assert calls_of_relu(without, images) == all_relus - 1
    with torch.no_grad():
        signed, clipped = without(images), with_it(images)
    for earlier, same in zip(signed.maps[:-1], clipped.maps[:-1], strict=True):
        assert torch.equal(earlier, same)
        assert (earlier >= 0).all()
    assert (signed.pooled < 0).any()
    assert (clipped.pooled >= 0).all()
    assert torch.equal(signed.maps[-1].clamp_min(0), clipped.maps[-1])


# ---- numbers ----------------------------------------------------------------------------------------------


@every_network
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
        if isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert (module.bias == 0).all()


def forward_by_hand(state: dict[str, Tensor], plan: Plan, images: Tensor, training: bool) -> list[Tensor]:
    """The maps of each stage, from the saved tensors alone. Without the last ReLU."""

    norm = batch_norm(state, training)

    x = F.conv2d(images, state["stem.0.weight"], stride=plan.stem_stride, padding=(plan.stem_kernel - 1) // 2)
    x = norm(x, "stem.1").clamp_min(0)
    if plan.max_pool:
        x = F.max_pool2d(x, 3, stride=2, padding=1)
    maps = []
    for stage in range(len(plan.widths)):
        for block in range(plan.blocks):
            name = f"stages.{stage}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            out = F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            out = norm(out, f"{name}.bn1").clamp_min(0)
            out = norm(F.conv2d(out, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
            if stage > 0 and block == 0:
                x = norm(F.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=stride), f"{name}.shortcut.1")
            out = out + x
            last = stage == len(plan.widths) - 1 and block == plan.blocks - 1
            x = out if last else out.clamp_min(0)
        maps.append(x)
    return maps


@every_network
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_forward_pass(name: str, training: bool) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]().double().train(training)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.weight.data, module.bias.data, module.running_mean):
                values.normal_()
            module.running_var.uniform_(0.5, 2)
    images = torch.randn(2, 3, 40, 32, dtype=torch.float64)
    with torch.no_grad():
        expected = forward_by_hand(network.state_dict(), PLANS[name], images, training)
        found = network(images)
    for one, other in zip(found.maps, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert torch.allclose(found.pooled, expected[-1].mean((2, 3)), rtol=1e-9, atol=1e-9)


@every_network
def test_pooled_features_are_float32_at_least(name: str) -> None:
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
