"""The configuration of a learner: published settings of the method, and a backbone and schedule that fit the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from phasezero.config import MODULE, RunConfig
from phasezero.data.files import Item, read_image
from phasezero.data.images import Preparation, View
from phasezero.errors import UserError
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS, Method
from phasezero.methods.ridge import USUAL_STRENGTH, Ridge
from phasezero.nets import NETWORKS, Pretrained, fits_network
from phasezero.presets import build_config, split_method, with_settings

SMALL_ARRAYS = 40  # pixels: images of this side or less are cropped by padding, as those of CIFAR-100
LARGEST_SIDE = 64  # of photos, from scratch
MANY_IMAGES = 5_000  # from scratch, a ResNet-18 pays from here on
STEPS = 2_000  # of phase 0 from scratch
PHOTO_MARGIN = 8 / 7  # the shorter side relative to the crop, as 256 to 224


def make_config(
    wanted: Mapping[str, Any], pretrained: Pretrained | None, items: Sequence[Item], classes: int
) -> RunConfig:
    """Return the configuration of phase 0, given the learner's parameters; its settings win."""
    method, memory, backbone = wanted["method"], wanted["memory"], wanted["backbone"]
    plain = METHODS[split_method(method)[0]]
    config = build_config(method, "folder:images", initial=wanted["initial"], base=classes, step=1)
    chosen: dict[str, Any] = {"protocol.class_order": "natural", "engine.photos": "files"}
    if (
        plain.sees_everything
    ):  # it trains on every image again, so every image is kept, and it continues from its weights
        chosen |= {"protocol.memory": "per_class:1000000", "protocol.selection": "random", "method.from_scratch": False}
    if memory is not None:
        chosen["protocol.memory"] = memory
    if pretrained is not None:
        usual = 0.1 if plain.trains_later else 0.0
        rate = usual if wanted["backbone_lr"] is None else wanted["backbone_lr"]
        weights = backbone if isinstance(backbone, str) else MODULE
        chosen |= {"network.name": pretrained.name, "network.weights": weights, "network.backbone_lr": rate}
        # Ours, for some hundred photos: pretrained features need few epochs.
        chosen |= {"epochs": 15, **_both(lr=0.05, shape="cosine", batch_size=32)}
    else:
        network = "resnet-glyphs" if len(items) < MANY_IMAGES else "resnet18-cifar"
        network += "-podnet" if plain.needs_maps else ""  # maps are distilled before a ReLU
        batch = 64 if len(items) >= 640 else 32
        epochs = int(np.clip(STEPS * batch / len(items), 10, 200))
        chosen |= {"network.name": network, "epochs": epochs, **_both(lr=0.1, shape="cosine", batch_size=batch)}
    if plain is Ridge:
        # On held-out photos a random map of pretrained features changes less than chance does (notebook/photos.md).
        # lambda is chosen at most once, so that the order in which classes come does not matter.
        own = (
            {"width": 0, "choose_once": True} if pretrained is not None else {"width": 2048, "strength": USUAL_STRENGTH}
        )
        chosen |= {f"method.{key}": value for key, value in own.items()}
    # A last batch of two photos ruins BatchNorm's statistics, and with them the model (notebook/photos.md).
    chosen |= _both(even_batches=True)
    chosen |= {"seed": wanted["seed"], "engine.device": wanted["device"], **(wanted["settings"] or {})}
    config = with_settings(config, chosen)
    _check(config, plain)
    return replace(config, name=f"{config.label}/learner")


def from_scratch(config: RunConfig, preparation: Preparation) -> str:
    """Say what is trained from scratch, and how to choose otherwise."""
    network, epochs = config.network.name, config.training.first.epochs
    return (
        f"from scratch: {network}, images of {preparation.size} pixels, {epochs} epoch{'s' if epochs > 1 else ''} "
        "(settings network.name and epochs choose others)"
    )


def _both(**settings: Any) -> dict[str, Any]:
    return {f"training.{part}.{key}": value for part in ("first", "later") for key, value in settings.items()}


def _check(config: RunConfig, method: type[Method]) -> None:
    name = config.network.name
    if name in NETWORKS and not fits_network(name, method.network):
        fitting = ", ".join(own for own in NETWORKS if fits_network(own, method.network))
        raise UserError(
            f"method {config.method.name!r} does not work with the network {name}; use backbone='none' and "
            f"settings={{'network.name': ...}} with one of {fitting}"
        )
    for term in config.initial:
        if STRATEGIES[term.name].looks_ahead and not term.file:
            raise UserError(f"initial {term.name}: needs all classes from the start, and a learner has only the first")
    if config.initial and not config.network.backbone_lr:
        raise UserError(
            "initial: strategies train the backbone in phase 0, and it is frozen; set backbone_lr, such as 0.1, or "
            "backbone='none'"
        )


def fits_in_memory(items: Sequence[Item]) -> bool:
    """Tell whether the images are small arrays of one shape."""
    shapes = {item.shape if isinstance(item, np.ndarray) else () for item in items}
    (shape,) = shapes if len(shapes) == 1 else ((),)
    return bool(shape) and max(shape[:2]) <= SMALL_ARRAYS


def preparation_of(items: Sequence[Item], pretrained: Pretrained | None) -> Preparation:
    """Return how images are prepared: as the backbone was trained, or as fits these images."""
    if pretrained is not None:
        own = pretrained
        return Preparation(own.mean, own.std, own.size, View("resized"), own.resize)
    if fits_in_memory(items):
        arrays = [item for item in items if isinstance(item, np.ndarray)]
        pixels = np.stack([array.reshape(*array.shape[:2], -1) for array in arrays])
        mean = pixels.mean((0, 1, 2), dtype=np.float64) / 255
        std = np.maximum(pixels.std((0, 1, 2), dtype=np.float64) / 255, 1e-3)
        side = max(pixels.shape[1:3])
        return Preparation(tuple(mean.tolist()), tuple(std.tolist()), side, View("pad", padding=side // 8))
    few = [read_image(item) for item in items[:: max(1, len(items) // 50)]]
    side = min(LARGEST_SIDE, max(16, int(np.median([min(one.size) for one in few])) // 16 * 16))
    colours = np.stack([np.asarray(one.resize((side, side)), np.float64).reshape(-1, 3) for one in few]) / 255
    mean, std = colours.mean((0, 1)), np.maximum(colours.std((0, 1)), 1e-3)
    return Preparation(tuple(mean.tolist()), tuple(std.tolist()), side, View("resized"), round(side * PHOTO_MARGIN))
