"""The small AlexNet: its size, its shapes, its three-dimensional features, and that it learns with the trainer."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from phasezero.data.images import ImageData
from phasezero.nets import NETWORKS
from samples import Make, train


def test_number_of_parameters() -> None:
    convolutions = 9 * (3 * 64 + 64 * 192 + 192 * 384 + 384 * 256 + 256 * 256)
    normalisations = 2 * (64 + 192 + 384 + 256 + 256 + 512)
    connected = 4 * 256 * 512 + (512 * 3 + 3)
    found = sum(parameter.numel() for parameter in NETWORKS["alexnet-3d"]().parameters())
    assert found == convolutions + normalisations + connected


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 16), (3, 64)])
def test_shapes(channels: int, side: int) -> None:
    network = NETWORKS["alexnet-3d"](channels=channels).eval()
    found = network(torch.randn(5, channels, side, side))
    assert found.pooled.shape == (5, network.feature_size) == (5, 3)
    assert [m.shape[1] for m in found.maps] == [64, 192, 384, 256, 256]


def test_forward_by_hand() -> None:
    network = NETWORKS["alexnet-3d"]().double().train()
    images = torch.randn(6, 3, 32, 32, dtype=torch.float64)
    found = network(images)
    state = network.state_dict()
    x = images
    for index, (stride, pooled) in enumerate([(2, True), (1, True), (1, False), (1, False), (1, True)]):
        x = F.conv2d(x, state[f"stages.{index}.0.weight"], stride=stride, padding=1)
        mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
        x = ((x - mean) / (var + 1e-5).sqrt()).clamp_min(0)  # scales are one and shifts zero at the start
        if pooled:
            x = torch.stack([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]).amax(0)
    assert x.shape == (6, 256, 2, 2)
    hidden = x.reshape(6, -1) @ state["hidden.0.weight"].T
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    expected = hidden.clamp_min(0) @ state["project.weight"].T + state["project.bias"]
    torch.testing.assert_close(found.pooled, expected)


def test_last_relu_and_half_precision() -> None:
    torch.manual_seed(0)  # another network may have three features that are never negative
    network = NETWORKS["alexnet-3d"](last_relu=True).eval()
    assert float(network(torch.randn(50, 3, 32, 32)).pooled.detach().min()) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert NETWORKS["alexnet-3d"]().eval()(torch.randn(2, 3, 32, 32)).pooled.dtype == torch.float32


def test_it_learns_with_the_ordinary_trainer(toy_data: ImageData, toy_config: Make) -> None:
    settings = {
        "network__name": "alexnet-3d",
        "protocol__phase_sizes": [2, 2],
        "training__first__batch_size": 14,
        "training__first__milestones": [15],
    }
    record = train(toy_config("lucir/glyphs/b50s10", **settings, training__first__epochs=20), data=toy_data)
    assert record["phases"][0]["accuracy"]["head"] > 80


def test_a_single_image_is_a_batch_too(toy_data: ImageData, toy_config: Make) -> None:
    """28 images in batches of 27: the last of an epoch is one image, of which there is no variance."""
    settings = {"network__name": "alexnet-3d", "protocol__phase_sizes": [2]}
    record = train(toy_config("lucir/glyphs/b50s10", **settings, training__first__batch_size=27), data=toy_data)
    assert record["phases"][0]["train_images"] == 28
