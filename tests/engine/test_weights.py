"""Runs that begin with pretrained weights: their backbone, its learning rate, and stored phase-0 states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from phasezero import UserError
from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.engine.setup import check
from phasezero.engine.store import phase_zero_key, phase_zero_of
from phasezero.engine.trainer import Trainer
from phasezero.methods.stage import Stage
from phasezero.nets import NETWORKS, load_backbone
from phasezero.presets import build_config
from phasezero.schedule import Schedule
from samples import Make

LITE = {"network.name": "efficientnet-lite0", "network.weights": "efficientnet-lite0"}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "emu"):
        look = rng.integers(0, 200, 3)
        for place in range(4):
            path = tmp_path / "photos" / name / f"{place}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((look + rng.integers(0, 50, (40, 60, 3))).astype(np.uint8)).save(path)
    return f"folder:{tmp_path / 'photos'}"


def config(folder: str, method: str = "ridge", **settings: Any) -> RunConfig:
    chosen = {"protocol.memory": "per_class:0", **LITE, **{key.replace("__", "."): v for key, v in settings.items()}}
    return build_config(method, folder, base=2, step=1).override(chosen)


def test_a_frozen_backbone_keeps_its_weights_and_its_preparation(folder: str) -> None:
    wanted, data = config(folder, network__backbone_lr=0.0, method__width=0), load_data(folder)
    trainer = Trainer(wanted, data)
    records = [result.record for result in trainer.run()]
    assert [record["loss"] for record in records] == [{}, {}]
    loaded = load_backbone("efficientnet-lite0")
    for name, tensor in loaded.network.state_dict().items():
        assert torch.equal(trainer.model.backbone.state_dict()[name], tensor), name
    own = trainer.data.preparation
    assert (own.mean, own.std, own.size, own.resize) == (loaded.mean, loaded.std, loaded.size, loaded.resize)
    assert records[-1]["accuracy"]["head"] == 100


def test_images_can_be_smaller_than_those_of_the_training(folder: str) -> None:
    data = load_data(folder)
    trainer = Trainer(config(folder, network__image_size=112), data)
    assert (trainer.data.preparation.size, trainer.data.preparation.resize) == (112, 128)
    usual = Trainer(config(folder), data)
    assert phase_zero_key(trainer) != phase_zero_key(usual)
    assert load_backbone("efficientnet-lite0").for_size(0).size == usual.data.preparation.size == 224


@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_the_backbone_learns_at_its_own_rate(rate: float, toy_config: Make, toy_data: ImageData) -> None:
    """After a step without momentum and decay, the change of a parameter is its gradient times its rate."""
    trainer = Trainer(toy_config("finetune/glyphs/b50s10", network__backbone_lr=rate, engine__device="cpu"), toy_data)
    trainer.grow(trainer.stream.phases[0])
    wanted = [one for one in trainer.model.parameters() if one.requires_grad]
    schedule = Schedule(epochs=1, lr=0.5, milestones=(), momentum=0, weight_decay=0, batch_size=64)
    loss = lambda batch: (batch.output.logits * torch.arange(4.0)).mean()  # noqa: E731
    before = [one.detach().clone() for one in trainer.model.parameters()]
    stage_pass = trainer.make_pass(Stage("train", schedule, loss, wanted), torch.arange(20))
    stage_pass.epoch(0, torch.Generator().manual_seed(0))
    inside = set(map(id, trainer.model.backbone.parameters()))
    assert any(id(one) in inside for one in wanted) == (rate > 0)
    for parameter, old in zip(trainer.model.parameters(), before, strict=True):
        step = 0.5 * (rate if id(parameter) in inside else 1)
        expected = old if parameter.grad is None else old - step * parameter.grad
        assert torch.allclose(parameter, expected, atol=1e-6)


def test_a_stored_phase_zero_belongs_to_its_weights(folder: str, tmp_path: Path) -> None:
    data, keys = load_data(folder), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        network = NETWORKS["resnet18"](last_relu=True)
        save_file(_torchvision(network.state_dict()), tmp_path / "weights.safetensors")
        own = {"network.name": "resnet18", "network.weights": str(tmp_path / "weights.safetensors")}
        keys.append(phase_zero_key(Trainer(config(folder).override(own), data)))
    assert len(set(keys)) == 2  # the same path, other weights
    assert phase_zero_of(config(folder)) != phase_zero_of(config(folder).override({"network.weights": "other"}))


def _torchvision(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return a ResNet-18's state under torchvision's names."""
    named = {}
    for key, value in state.items():
        key = key.replace("stem.0", "conv1").replace("stem.1", "bn1").replace("shortcut", "downsample")
        parts = key.split(".")
        named[".".join([f"layer{int(parts[1]) + 1}", *parts[2:]]) if parts[0] == "stages" else key] = value.clone()
    return named


def test_what_cannot_be_is_explained(folder: str, toy_config: Make, toy_data: ImageData) -> None:
    data = load_data(folder)
    with pytest.raises(UserError, match="set network"):
        check(config(folder, network__name="resnet18"), data)
    with pytest.raises(UserError, match="has images in memory"):
        check(toy_config("ridge/glyphs/b50s10").override(LITE), toy_data)
    with pytest.raises(UserError, match="backbone_lr"):
        config(folder, network__backbone_lr=-1.0)
