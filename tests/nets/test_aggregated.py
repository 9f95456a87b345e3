"""AANets' two branches: their size, and their mixture against a forward pass written by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from phasezero.nets import NETWORKS, Features, ResNet
from phasezero.nets.aggregated import AggregatedResNet, ScaledConv2d

# Networks of the same make, small enough for float64 and loops over kernels: widths, blocks, stem's stride and pooling.
SMALL = {
    "conv3": ((4, 6, 8), (1, 2, 1), (1, False)),
    "conv3-stride2": ((3, 5), (1, 1), (2, False)),
    "imagenet": ((4, 5, 6, 7), (2, 1, 1, 2), (2, True)),
}
every_stem = pytest.mark.parametrize("stem", SMALL)
both_modes = pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])


@pytest.fixture
def trained(stir: Callable[[nn.Module], None]) -> Callable[..., ResNet]:
    """In float64 and with BatchNorm that does something, as if training had been here."""

    def make(stem: str, seed: int = 0) -> ResNet:
        torch.manual_seed(seed)
        network = ResNet(*SMALL[stem][:2], stem=stem).double()  # type: ignore[arg-type]
        stir(network)
        return network

    return make


@pytest.fixture
def stirred(trained: Callable[..., ResNet]) -> Callable[[str], AggregatedResNet]:
    """Both branches and the weights away from where they begin."""

    def make(stem: str) -> AggregatedResNet:
        network, other = (AggregatedResNet(trained(stem, seed)) for seed in (0, 1))
        network.plastic.load_state_dict(other.plastic.state_dict())
        for module in network.stable.modules():
            if isinstance(module, ScaledConv2d):
                module.scale.data.uniform_(0.5, 1.5)
            if isinstance(module, nn.BatchNorm2d):
                module.weight.data.uniform_(0.5, 1.5)
        network.weights.data.uniform_(0.2, 0.9)
        return network

    return make


def images() -> Tensor:
    return torch.randn(4, 3, 32, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def close(one: Features, other: Features) -> bool:
    pairs = zip((one.pooled, *one.maps), (other.pooled, *other.maps), strict=True)
    return all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in pairs)


# ---- size -------------------------------------------------------------------------------------------------


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", [name for name in NETWORKS if name.startswith("resnet")])
def test_every_kernel_slice_has_one_factor(name: str) -> None:
    """As the published code has it: shape (out, in, 1, 1)."""
    with torch.device("meta"):
        source = NETWORKS[name](channels=1)
        network = AggregatedResNet(source)  # type: ignore[arg-type]
    kernels = [module.weight for module in source.modules() if isinstance(module, nn.Conv2d)]
    scaled = [module for module in network.stable.modules() if isinstance(module, ScaledConv2d)]
    assert not any(isinstance(module, nn.Conv2d) for module in network.stable.modules())
    assert sorted(one.kernel.shape for one in scaled) == sorted(kernel.shape for kernel in kernels)
    assert all(one.scale.shape == (*one.kernel.shape[:2], 1, 1) for one in scaled)
    assert count(network.plastic) == count(source)
    saved = sum(kernel.numel() - kernel.shape[0] * kernel.shape[1] for kernel in kernels)
    assert count(network.stable) == count(source) - saved
    assert network.weights.shape == (len(source.stages),)  # type: ignore[arg-type]
    assert count(network) == count(network.plastic) + count(network.stable) + len(network.weights)
    assert network.feature_size == source.feature_size


# ---- the forward pass -------------------------------------------------------------------------------------


def maps_by_hand(slow: Any, weights: Tensor, stem: str, x: Tensor) -> list[Tensor]:
    """The mixed maps of each level. Without the last ReLU."""
    _, blocks, (stride, pool) = SMALL[stem]

    def level_of(branch: str, level: int, x: Tensor) -> Tensor:
        if level == 0:
            return slow.stage(slow.stem(x, f"{branch}.0.0", stride, pool), f"{branch}.0.1", 1, [True] * blocks[0])
        relus = [True] * blocks[level]
        relus[-1] = level < len(blocks) - 1
        return slow.stage(x, f"{branch}.{level}", 2, relus)

    maps = []
    for level, a in enumerate(weights):
        x = a * level_of("stable", level, x) + (1 - a) * level_of("plastic", level, x)
        maps.append(x)
    return maps


@every_stem
@both_modes
def test_forward_pass_and_gradients(
    stem: str, training: bool, stirred: Callable[[str], AggregatedResNet], slow_resnet: Callable[..., Any]
) -> None:
    network = stirred(stem).train(training)
    network.weights.requires_grad_()
    names = [each for each, _ in network.named_parameters()]
    state = {each: tensor.detach().clone() for each, tensor in network.state_dict().items()}
    leaves = [state[each].requires_grad_() for each in names]
    expected = maps_by_hand(slow_resnet(state, training), state["weights"], stem, images())
    found = network(images())
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


@every_stem
@both_modes
def test_one_branch_alone_is_the_network_it_came_from(
    stem: str, training: bool, trained: Callable[..., ResNet]
) -> None:
    """Weight 1: the stable branch, its factors still at 1; weight 0: the plastic one; at first, both agree."""
    source = trained(stem).train(training)
    network = AggregatedResNet(source).train(training)
    with torch.no_grad():
        expected = source(images())
        assert (network.weights == 0.5).all()
        for weight in (0.5, 1.0, 0.0):
            network.weights.fill_(weight)
            assert close(network(images()), expected)


def test_the_branches_are_copies_and_kernels_of_the_stable_one_stay(trained: Callable[..., ResNet]) -> None:
    source = trained("conv3")
    before = copy.deepcopy(source.state_dict())
    network = AggregatedResNet(source).train()
    wanting = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    assert wanting == {name for name, _ in network.named_parameters()} - {"weights"}
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


@pytest.mark.parametrize("last_relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_type_memory_format_device_and_last_relu_are_those_of_the_source(dtype: torch.dtype, last_relu: bool) -> None:
    source = NETWORKS["resnet-glyphs"](last_relu=last_relu).to(dtype=dtype, memory_format=torch.channels_last)
    network = AggregatedResNet(source).eval()  # type: ignore[arg-type]
    for name, tensor in network.state_dict().items():
        assert tensor.dtype == dtype, name
        if tensor.dim() == 4:
            assert tensor.is_contiguous(memory_format=torch.channels_last), name
    with torch.no_grad():
        found = network(images().to(dtype).contiguous(memory_format=torch.channels_last))
    for each in found.maps:
        assert each.is_contiguous(memory_format=torch.channels_last)
        assert each.dtype == dtype
    assert bool((found.pooled < 0).any()) != last_relu
    moved = AggregatedResNet(source.to("meta"))  # type: ignore[arg-type]
    assert {tensor.device.type for tensor in moved.state_dict().values()} == {"meta"}


@every_stem
def test_pooled_features_are_float32_at_least(stem: str, stirred: Callable[[str], AggregatedResNet]) -> None:
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


def test_a_saved_network_is_loaded_into_an_untrained_one(
    stirred: Callable[[str], AggregatedResNet], trained: Callable[..., ResNet]
) -> None:
    network = stirred("conv3").eval()
    network.gradient_sum.normal_()
    other = AggregatedResNet(trained("conv3", seed=5)).eval()
    other.load_state_dict(network.state_dict())
    with torch.no_grad():
        assert close(other(images()), network(images()))
    assert torch.equal(other.gradient_sum, network.gradient_sum)
