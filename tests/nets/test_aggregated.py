"""AANets' two branches: their size, and their mixture against a forward pass written by hand."""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.nets import NETWORKS, Features, ResNet
from phasezero.nets.aggregated import AggregatedResNet, ScaledConv2d
from slow import batch_norm


class Plan(NamedTuple):
    """What an architecture should be, said once more."""

    widths: tuple[int, ...]
    blocks: tuple[int, ...]
    stem_kernel: int
    stem_stride: int
    max_pool: bool


PLANS = {
    "resnet18-cifar": Plan((64, 128, 256, 512), (2, 2, 2, 2), 3, 1, False),
    "resnet18": Plan((64, 128, 256, 512), (2, 2, 2, 2), 7, 2, True),
    "resnet32": Plan((16, 32, 64), (5, 5, 5), 3, 1, False),
    "resnet-glyphs": Plan((16, 32, 64), (1, 1, 1), 3, 2, False),
}
# Networks of the same make, small enough for float64 and loops over kernels.
SMALL = {
    "conv3": Plan((4, 6, 8), (1, 2, 1), 3, 1, False),
    "conv3-stride2": Plan((3, 5), (1, 1), 3, 2, False),
    "imagenet": Plan((4, 5, 6, 7), (2, 1, 1, 2), 7, 2, True),
}
every_stem = pytest.mark.parametrize("stem", SMALL)


def trained(stem: str, seed: int = 0) -> ResNet:
    """In float64 and with BatchNorm that does something, as if training had been here."""
    torch.manual_seed(seed)
    plan = SMALL[stem]
    network = ResNet(plan.widths, plan.blocks, stem=stem).double()  # type: ignore[arg-type]
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.weight.data, module.bias.data, module.running_mean):
                values.normal_()
            module.running_var.uniform_(0.5, 2)
    return network


def stirred(stem: str) -> AggregatedResNet:
    """Both branches and the weights away from where they begin."""
    network = AggregatedResNet(trained(stem))
    other = AggregatedResNet(trained(stem, seed=1))
    network.plastic.load_state_dict(other.plastic.state_dict())
    for module in network.stable.modules():
        if isinstance(module, ScaledConv2d):
            module.scale.data.uniform_(0.5, 1.5)
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data.uniform_(0.5, 1.5)
    network.weights.data.uniform_(0.2, 0.9)
    return network


def images() -> Tensor:
    return torch.randn(4, 3, 32, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


# ---- size -------------------------------------------------------------------------------------------------


def count_by_hand(plan: Plan, channels: int) -> tuple[int, int]:
    """Of all convolutions: numbers in the kernels with the BatchNorms, and kernels with the BatchNorms."""
    convolutions = [(channels, plan.widths[0], plan.stem_kernel)]
    inputs = plan.widths[0]
    for width, blocks in zip(plan.widths, plan.blocks, strict=True):
        for _ in range(blocks):
            convolutions += [(inputs, width, 3), (width, width, 3)]
            convolutions += [(inputs, width, 1)] if inputs != width else []
            inputs = width
    norms = sum(2 * outputs for _, outputs, _ in convolutions)
    free = sum(inputs * outputs * kernel**2 for inputs, outputs, kernel in convolutions)
    scales = sum(inputs * outputs for inputs, outputs, _ in convolutions)
    return free + norms, scales + norms


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("channels", [1, 3])
def test_parameter_counts(name: str, channels: int) -> None:
    plan = PLANS[name]
    with torch.device("meta"):
        source = NETWORKS[name](channels=channels)
    network = AggregatedResNet(source)
    plastic, stable = count_by_hand(plan, channels)
    assert count(network.plastic) == plastic == count(source)
    assert count(network.stable) == stable
    assert network.weights.shape == (len(plan.widths),)
    assert count(network) == plastic + stable + len(plan.widths)
    kernels = sum(module.kernel.numel() for module in network.modules() if isinstance(module, ScaledConv2d))
    norms = sum(count(module) for module in network.stable.modules() if isinstance(module, nn.BatchNorm2d))
    assert kernels == plastic - norms
    assert network.feature_size == plan.widths[-1]


def test_every_kernel_slice_has_one_factor() -> None:
    """As the published code has it: shape (out, in, 1, 1)."""
    with torch.device("meta"):
        network = AggregatedResNet(NETWORKS["resnet18"]())
    scaled = [module for module in network.stable.modules() if isinstance(module, ScaledConv2d)]
    assert len(scaled) == 20
    assert not any(isinstance(module, nn.Conv2d) for module in network.stable.modules())
    for module in scaled:
        assert module.scale.shape == (*module.kernel.shape[:2], 1, 1)
    by_hand = 3 * 64 + 4 * 64**2
    for inputs, width in ((64, 128), (128, 256), (256, 512)):
        by_hand += 2 * inputs * width + 3 * width**2
    assert sum(module.scale.numel() for module in scaled) == by_hand


# ---- the forward pass -------------------------------------------------------------------------------------


def mixed_by_hand(state: dict[str, Tensor], plan: Plan, x: Tensor, training: bool) -> list[Tensor]:
    """The maps of each level, from the saved tensors alone. Without the last ReLU."""

    def kernel(name: str) -> Tensor:
        if name.startswith("plastic"):
            return state[f"{name}.weight"]
        outputs, inputs = state[f"{name}.kernel"].shape[:2]
        rows = [
            torch.stack([state[f"{name}.kernel"][o, i] * state[f"{name}.scale"][o, i] for i in range(inputs)])
            for o in range(outputs)
        ]
        return torch.stack(rows)

    norm = batch_norm(state, training)

    def stem(x: Tensor, branch: str) -> Tensor:
        padding = (plan.stem_kernel - 1) // 2
        x = F.conv2d(x, kernel(f"{branch}.0.0.0"), stride=plan.stem_stride, padding=padding)
        x = norm(x, f"{branch}.0.0.1").clamp_min(0)
        return F.max_pool2d(x, 3, stride=2, padding=1) if plan.max_pool else x

    def level_of(branch: str, level: int, x: Tensor) -> Tensor:
        if level == 0:
            x = stem(x, branch)
        for block in range(plan.blocks[level]):
            name = f"{branch}.{level}.1.{block}" if level == 0 else f"{branch}.{level}.{block}"
            first = level > 0 and block == 0
            out = F.conv2d(x, kernel(f"{name}.conv1"), stride=2 if first else 1, padding=1)
            out = norm(out, f"{name}.bn1").clamp_min(0)
            out = norm(F.conv2d(out, kernel(f"{name}.conv2"), padding=1), f"{name}.bn2")
            if first:
                x = norm(F.conv2d(x, kernel(f"{name}.shortcut.0"), stride=2), f"{name}.shortcut.1")
            last = level == len(plan.widths) - 1 and block == plan.blocks[level] - 1
            x = out + x if last else (out + x).clamp_min(0)
        return x

    maps = []
    for level in range(len(plan.widths)):
        a = state["weights"][level]
        x = a * level_of("stable", level, x) + (1 - a) * level_of("plastic", level, x)
        maps.append(x)
    return maps


@every_stem
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_forward_pass_and_gradients(stem: str, training: bool) -> None:
    network = stirred(stem).train(training)
    network.weights.requires_grad_()
    names = [each for each, _ in network.named_parameters()]
    state = {each: tensor.detach().clone() for each, tensor in network.state_dict().items()}
    leaves = [state[each].requires_grad_() for each in names]
    expected = mixed_by_hand(state, SMALL[stem], images(), training)
    found = network(images())
    assert network.feature_size == SMALL[stem].widths[-1]
    for one, other in zip(found.maps, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-10, atol=1e-10)
    pooled = expected[-1].mean((2, 3))
    assert torch.allclose(found.pooled, pooled, rtol=1e-10, atol=1e-10)

    direction = torch.randn(pooled.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    gradients = torch.autograd.grad((found.pooled.tanh() * direction).sum(), list(network.parameters()))
    wanted = torch.autograd.grad((pooled.tanh() * direction).sum(), leaves)
    for each, one, other in zip(names, gradients, wanted, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10 * max(1.0, float(other.abs().max()))), each
        assert other.abs().max() > 0


def close(one: Features, other: Features) -> bool:
    pairs = zip((one.pooled, *one.maps), (other.pooled, *other.maps), strict=True)
    return all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in pairs)


@every_stem
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_one_branch_alone_is_the_network_it_came_from(stem: str, training: bool) -> None:
    """Weight 1: the stable branch, its factors still at 1; weight 0: the plastic one; at first, both agree."""
    source = trained(stem).train(training)
    network = AggregatedResNet(source).train(training)
    with torch.no_grad():
        expected = source(images())
        assert (network.weights == 0.5).all()
        for weight in (0.5, 1.0, 0.0):
            network.weights.fill_(weight)
            assert close(network(images()), expected)


def test_the_branches_are_copies() -> None:
    source = trained("conv3")
    before = copy.deepcopy(source.state_dict())
    network = AggregatedResNet(source).train()
    network.weights.requires_grad_()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    network(images()).pooled.square().sum().backward()
    optimizer.step()
    for name, tensor in source.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in source.parameters())
    kernel = network.stable[0][0][0].kernel
    assert torch.equal(kernel, before["stem.0.weight"])  # frozen: no parameter at all
    assert not torch.equal(network.plastic[0][0][0].weight, before["stem.0.weight"])


def test_the_weights_want_no_gradient_by_themselves() -> None:
    network = AggregatedResNet(trained("conv3"))
    wanting = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert wanting == {name for name, _ in network.named_parameters()} - {"weights"}


@pytest.mark.parametrize("last_relu", [False, True])
def test_the_last_relu_comes_along(last_relu: bool) -> None:
    network = AggregatedResNet(NETWORKS["resnet-glyphs"](last_relu=last_relu)).eval()
    with torch.no_grad():
        pooled = network(images().float()).pooled
    assert bool((pooled < 0).any()) != last_relu


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_memory_format_are_those_of_the_source(dtype: torch.dtype) -> None:
    source = NETWORKS["resnet-glyphs"]().to(dtype=dtype, memory_format=torch.channels_last)
    network = AggregatedResNet(source).eval()
    for name, tensor in network.state_dict().items():
        assert tensor.dtype == dtype, name
        if tensor.dim() == 4:
            assert tensor.is_contiguous(memory_format=torch.channels_last), name
    with torch.no_grad():
        found = network(images().to(dtype).contiguous(memory_format=torch.channels_last))
    for each in found.maps:
        assert each.is_contiguous(memory_format=torch.channels_last)
        assert each.dtype == dtype


def test_the_device_is_that_of_the_source() -> None:
    network = AggregatedResNet(NETWORKS["resnet-glyphs"]().to("meta"))
    assert {tensor.device.type for tensor in network.state_dict().values()} == {"meta"}


@every_stem
def test_pooled_features_are_float32_at_least(stem: str) -> None:
    network = stirred(stem).float().eval()
    given = images().float()
    with torch.no_grad():
        exact = network(given).pooled
        with torch.autocast("cpu", torch.bfloat16):
            found = network(given)
    assert [each.dtype for each in found.maps] == [torch.bfloat16] * (len(found.maps) - 1) + [torch.float32]
    assert found.pooled.dtype == torch.float32
    assert (found.pooled != found.pooled.bfloat16().float()).any()
    assert torch.allclose(found.pooled, exact, atol=0.1 * float(exact.std()))


def test_a_saved_network_is_loaded_into_an_untrained_one() -> None:
    network = stirred("conv3").eval()
    network.gradient_sum.normal_()
    other = AggregatedResNet(trained("conv3", seed=5)).eval()
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        assert close(other(images()), network(images()))
    assert torch.equal(other.gradient_sum, network.gradient_sum)
