"""EfficientNet-Lite against plain calls of functions on tensors with the names of the published files."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phasezero.data.images import ImageData
from phasezero.nets import NETWORKS, load_backbone
from phasezero.nets.checkpoints import recognise
from samples import Make, train

# Of each stage, as the published files have it: blocks, and channels after it.
LITES = {
    "efficientnet-lite0": ((1, 2, 2, 3, 3, 4, 1), (16, 24, 40, 80, 112, 192, 320)),
    "efficientnet-lite1": ((1, 3, 3, 4, 4, 5, 1), (16, 24, 40, 80, 112, 192, 320)),
    "efficientnet-lite2": ((1, 3, 3, 4, 4, 5, 1), (16, 24, 48, 88, 120, 208, 352)),
}
KERNELS, STRIDES = (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1)
every_lite = pytest.mark.parametrize("name", LITES)


def published_state(name: str) -> dict[str, Tensor]:
    """Return random weights with the keys and shapes of a published file."""
    state: dict[str, Tensor] = {}

    def layer(convolution: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        shape = (outputs, inputs, kernel, kernel)
        # Of mean and deviation such that signals neither vanish nor reach 6 everywhere.
        state[f"{convolution}.weight"] = torch.randn(shape) * math.sqrt(2 / (inputs * kernel * kernel))
        state[f"{norm}.weight"] = torch.rand(outputs) + 0.5
        state[f"{norm}.bias"] = torch.randn(outputs) * 0.5
        state[f"{norm}.running_mean"] = torch.randn(outputs) * 0.1
        state[f"{norm}.running_var"] = torch.rand(outputs) + 0.5
        state[f"{norm}.num_batches_tracked"] = torch.tensor(7)

    layer("_conv_stem", "_bn0", 32, 3, 3)
    index, inputs = 0, 32
    for repeats, outputs, kernel in zip(*LITES[name], KERNELS, strict=True):
        for _ in range(repeats):
            width = inputs if index == 0 else 6 * inputs
            if index > 0:
                layer(f"_blocks.{index}._expand_conv", f"_blocks.{index}._bn0", width, inputs, 1)
            layer(f"_blocks.{index}._depthwise_conv", f"_blocks.{index}._bn1", width, 1, kernel)
            layer(f"_blocks.{index}._project_conv", f"_blocks.{index}._bn2", outputs, width, 1)
            index, inputs = index + 1, outputs
    layer("_conv_head", "_bn1", 1280, inputs, 1)
    state |= {"_fc.weight": torch.randn(1000, 1280), "_fc.bias": torch.randn(1000)}
    return state


def same(x: Tensor, kernel: Tensor, stride: int, groups: int = 1) -> Tensor:
    """Compute a "SAME" convolution as all outputs of stride 1, of which every second is taken.

    An even side has an odd sum of paddings, of which the end gets more: the first window is around pixel 1, not 0.
    """
    everywhere = F.conv2d(x, kernel, padding=kernel.shape[2] // 2, groups=groups)
    if stride == 1:
        return everywhere
    row, column = ((side + 1) % 2 for side in x.shape[2:])
    return everywhere[:, :, row::2, column::2]


def features_by_hand(state: dict[str, Tensor], name: str, x: Tensor, last_relu: bool) -> list[Tensor]:
    """Return the maps after each stage and the head, in evaluation mode."""

    def norm(x: Tensor, key: str) -> Tensor:
        mean, var, weight, bias = (
            state[f"{key}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-3).sqrt() * weight + bias

    x = norm(same(x, state["_conv_stem.weight"], 2), "_bn0").clamp(0, 6)
    maps, index = [], 0
    for repeats, stride in zip(LITES[name][0], STRIDES, strict=True):
        for place in range(repeats):
            block, out = f"_blocks.{index}", x
            if index > 0:
                out = norm(same(out, state[f"{block}._expand_conv.weight"], 1), f"{block}._bn0").clamp(0, 6)
            depthwise = state[f"{block}._depthwise_conv.weight"]
            out = same(out, depthwise, stride if place == 0 else 1, groups=len(depthwise))
            out = norm(out, f"{block}._bn1").clamp(0, 6)
            out = norm(same(out, state[f"{block}._project_conv.weight"], 1), f"{block}._bn2")
            x, index = (out + x if place > 0 else out), index + 1
        maps.append(x)
    head = norm(same(x, state["_conv_head.weight"], 1), "_bn1")
    return [*maps, head.clamp(0, 6) if last_relu else head]


@every_lite
def test_published_weights_give_the_features_of_a_slow_reference(name: str) -> None:
    torch.manual_seed(0)
    state = published_state(name)
    found, network = recognise(state, "here")
    assert found == name
    signed = NETWORKS[name]()
    signed.load_state_dict(network.state_dict())
    doubles = {key: value.double() for key, value in state.items()}
    images = torch.randn(2, 3, 66, 45, dtype=torch.float64)  # 33 is odd, and so is 23
    for last_relu, each in ((True, network.double()), (False, signed.double().eval())):
        expected = features_by_hand(doubles, name, images, last_relu)
        with torch.no_grad():
            features = each(images)
        for one, other in zip(features.maps, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(features.pooled, expected[-1].mean((2, 3)), rtol=1e-9, atol=1e-9)
        assert bool((features.pooled < 0).any()) is not last_relu


@every_lite
def test_number_of_parameters(name: str) -> None:
    """As published, in millions, with the classifier."""
    with torch.device("meta"):
        network = NETWORKS[name](channels=3)
    found = sum(parameter.numel() for parameter in network.parameters())
    by_hand = sum(
        value.numel() for key, value in published_state(name).items() if not re.search("^_fc|running|tracked", key)
    )
    assert found == by_hand
    assert round((found + 1281 * 1000) / 1e6, 1) == {"0": 4.7, "1": 5.4, "2": 6.1}[name[-1]]


def test_initial_weights_keep_the_size_of_signals() -> None:
    torch.manual_seed(0)
    network = NETWORKS["efficientnet-lite0"]()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            outputs, inputs, kernel, _ = module.weight.shape
            fan_out = kernel * kernel * (1 if inputs == 1 else outputs)
            error = 6 / math.sqrt(2 * module.weight.numel())
            assert module.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=error)
            assert module.bias is None
        if isinstance(module, nn.BatchNorm2d):
            assert (module.eps, module.momentum) == (1e-3, 0.01)


def test_features_are_not_in_half_precision() -> None:
    network = load_backbone("efficientnet-lite0").network
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = network(torch.randn(1, 3, 64, 64))
    assert found.maps[0].dtype == torch.bfloat16
    assert found.pooled.dtype == torch.float32


def test_it_learns_with_the_ordinary_trainer(toy_data: ImageData, toy_config: Make) -> None:
    settings = {"network__name": "efficientnet-lite0", "protocol__phase_sizes": [2]}
    record = train(toy_config("finetune/glyphs/b50s10", **settings, training__first__batch_size=27), data=toy_data)
    assert record["phases"][0]["train_images"] == 28  # the last batch of an epoch is a single image


# ---- the embedded weights ----------------------------------------------------------------------------------


def photo() -> Tensor:
    """Return a synthetic image [1, 3, 224, 224] between 0 and 1: a bright disc on a gradient."""
    rows, columns = torch.meshgrid(torch.arange(224.0), torch.arange(224.0), indexing="ij")
    disc = ((rows - 112) ** 2 + (columns - 90) ** 2 < 60**2).float()
    return torch.stack([rows / 223, columns / 223, disc])[None]


STORED = {2: 2.114, 100: 0.0, 1000: 0.0, 113: 4.854, 1157: 3.816, 1167: 3.377, 897: 3.209}
MEAN = 0.1126


def test_the_embedded_weights_give_the_stored_features() -> None:
    """Numbers of the published float32 file; the embedded file has float16 kernels."""
    loaded = load_backbone("efficientnet-lite0")
    mean, std = (torch.tensor(values)[:, None, None] for values in (loaded.mean, loaded.std))
    with torch.inference_mode():
        found = loaded.network((photo() - mean) / std).pooled[0]
    chosen = found[list(STORED)]
    torch.testing.assert_close(chosen, torch.tensor(list(STORED.values())), rtol=0, atol=0.03)
    assert int(found.argmax()) == max(STORED, key=lambda place: STORED[place])
    assert float(found.mean()) == pytest.approx(MEAN, abs=2e-3)
