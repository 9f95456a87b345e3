"""Residual networks, ViT and DINOv2 against transformers' independent code, with random weights from its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from phasezero.errors import UserError
from phasezero.nets import NETWORKS, Backbone, load_backbone
from phasezero.nets.vit import VisionTransformer

transformers = pytest.importorskip("transformers")

RESNETS = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
}
SMALL = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_hidden_layers": 12}
BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "num_hidden_layers": 12}
SHORT = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512, "num_hidden_layers": 2}


def resnet(name: str) -> Any:
    kind, depths = RESNETS[name]
    widths = [width * (4 if kind == "bottleneck" else 1) for width in (64, 128, 256, 512)]
    return transformers.ResNetModel(
        transformers.ResNetConfig(layer_type=kind, depths=list(depths), hidden_sizes=widths)
    )


def vit(size: dict[str, int]) -> Any:
    return transformers.ViTModel(transformers.ViTConfig(**size, layer_norm_eps=1e-6))


def dinov2(size: dict[str, int]) -> Any:
    wanted = {key: value for key, value in size.items() if key != "intermediate_size"}  # a ratio, 4, in this one
    return transformers.Dinov2Model(transformers.Dinov2Config(**wanted, image_size=518))


def stirred(model: nn.Module) -> Any:
    """Return the model in evaluation mode with numbers that do something in each place."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith(("running_var", "normalization.weight", "lambda1")):
                value.uniform_(0.5, 1, generator=generator)
            elif value.ndim == 1 and value.is_floating_point():  # biases, means, weights of LayerNorm
                value.add_(torch.empty_like(value).normal_(0, 0.3, generator=generator))
            elif "embeddings" in name and value.is_floating_point():  # positions and the class token
                value.normal_(0, 0.5, generator=generator)
    return model.eval()


def compare(network: Backbone, expected: Tensor, tokens: Tensor, images: Tensor) -> None:
    with torch.no_grad():
        found = network(images)
    torch.testing.assert_close(found.pooled, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.maps[-1].flatten(2), tokens, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", RESNETS)
def test_resnets(name: str, tmp_path: Path) -> None:
    model = stirred(resnet(name))
    model.save_pretrained(tmp_path)
    loaded = load_backbone(f"{tmp_path}/model.safetensors")
    assert loaded.name == name
    images = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        output = model.double()(images)
    assert float(output.pooler_output.std()) > 0.01
    maps = output.last_hidden_state.flatten(2)
    compare(loaded.network.double(), output.pooler_output.flatten(1), maps, images)


def tokens_of(model: Any, images: Tensor, **options: bool) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        tokens = model(images, **options).last_hidden_state
    return tokens[:, 0], tokens[:, 1:].transpose(1, 2)


@pytest.mark.parametrize("kind", ["vit", "dinov2"])
def test_small_transformers_from_files(kind: str, tmp_path: Path) -> None:
    model = stirred(vit(SMALL) if kind == "vit" else dinov2(SMALL))
    model.save_pretrained(tmp_path)
    loaded = load_backbone(f"{tmp_path}/model.safetensors")
    assert loaded.name == ("vit-s16" if kind == "vit" else "dinov2-s14")
    images = torch.randn(1, 3, 224, 224)
    features, patches = tokens_of(model, images)
    with torch.no_grad():
        found = loaded.network(images)
    torch.testing.assert_close(found.pooled, features, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.maps[0].flatten(2), patches, rtol=1e-4, atol=1e-4)
    assert found.maps[0].shape[2:] == ((14, 14) if kind == "vit" else (16, 16))


def copy_by_hand(model: Any) -> dict[str, Tensor]:
    """Return a model's weights by the names of timm and DINOv2."""
    state, found = model.state_dict(), {}
    embeddings = {"cls_token": "cls_token", "position_embeddings": "pos_embed"}
    for old, new in embeddings.items():
        found[new] = state[f"embeddings.{old}"]
    modules = dict(model.named_modules())
    pairs = [("patch_embed.proj", modules["embeddings.patch_embeddings.projection"]), ("norm", model.layernorm)]
    layers = model.encoder.layer if hasattr(model, "encoder") else model.layers
    for index, layer in enumerate(layers):
        block, attention = f"blocks.{index}", layer.attention
        for part in ("weight", "bias"):
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            found[f"{block}.attn.qkv.{part}"] = torch.cat([getattr(each, part) for each in projections])
        first = layer.norm1 if hasattr(layer, "norm1") else layer.layernorm_before
        second = layer.norm2 if hasattr(layer, "norm2") else layer.layernorm_after
        pairs += [(f"{block}.attn.proj", attention.o_proj), (f"{block}.norm1", first), (f"{block}.norm2", second)]
        pairs += [(f"{block}.mlp.fc1", layer.mlp.fc1), (f"{block}.mlp.fc2", layer.mlp.fc2)]
        for place in (1, 2):
            if hasattr(layer, f"layer_scale{place}"):
                found[f"{block}.ls{place}.gamma"] = getattr(layer, f"layer_scale{place}").lambda1
    for name, module in pairs:
        found |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
    return {key: value.detach().clone() for key, value in found.items()}


@pytest.mark.parametrize(
    ("kind", "side"), [("vit", (224, 224)), ("vit", (96, 160)), ("dinov2", (518, 518)), ("dinov2", (98, 154))]
)
def test_transformers_with_positions_of_other_sizes(kind: str, side: tuple[int, int]) -> None:
    model = stirred(vit(SHORT) if kind == "vit" else dinov2(SHORT))
    patch, grid = (16, 14) if kind == "vit" else (14, 37)
    network = VisionTransformer(128, 2, patch, grid, scaled=kind == "dinov2")
    network.load_state_dict(copy_by_hand(model))
    images = torch.randn(1, 3, *side)
    options = {"interpolate_pos_encoding": True} if kind == "vit" else {}
    features, patches = tokens_of(model, images, **options)
    with torch.no_grad():
        found = network.eval()(images)
    torch.testing.assert_close(found.pooled, features, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.maps[0].flatten(2), patches, rtol=1e-4, atol=1e-4)
    assert found.maps[0].shape[2:] == (side[0] // patch, side[1] // patch)


@pytest.mark.parametrize("name", ["vit-s16", "vit-b16", "dinov2-s14", "dinov2-b14"])
def test_number_of_parameters(name: str) -> None:
    with torch.device("meta"):
        network = NETWORKS[name]()
        size = SMALL if "-s" in name else BASE
        model = vit(size) if name.startswith("vit") else dinov2(size)
    counted = [value.numel() for key, value in model.named_parameters() if "pooler" not in key and "mask" not in key]
    assert sum(parameter.numel() for parameter in network.parameters()) == sum(counted)


def test_a_vit_takes_images_that_divide_into_patches_and_may_end_with_a_relu() -> None:
    network = VisionTransformer(64, 1, 16, 2, channels=1, last_relu=True)
    found = network(torch.randn(2, 1, 32, 48))
    assert float(found.pooled.detach().min()) == 0
    assert found.maps[0].shape == (2, 64, 2, 3)
    with pytest.raises(UserError, match="images of 28 x 32 pixels do not divide into patches of 16"):
        network(torch.randn(2, 1, 32, 28))


def test_features_of_a_vit_are_not_in_half_precision() -> None:
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = VisionTransformer(64, 1, 16, 2)(torch.randn(2, 3, 32, 32))
    assert found.pooled.dtype == found.maps[0].dtype == torch.float32
