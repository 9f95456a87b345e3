"""Which source a run gets, and a run on photos that stay on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data import sources
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData, Preparation
from phasezero.data.loader import FileImages, ResidentImages
from phasezero.data.photos import ResidentPhotos, packed_bytes
from phasezero.data.sources import choose_photos, free_memory, make_source
from phasezero.engine.store import phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.results.record import comparable_part

CPU, GPU = torch.device("cpu"), torch.device("cuda")
CLASSES = ("blue", "green", "grey", "red")


@pytest.fixture
def photos(tmp_path: Path) -> ImageData:
    """Four classes of ten photos, each with a tint of its own; scaled down for a network to be quick."""
    generator = np.random.default_rng(0)
    for place, name in enumerate(CLASSES):
        (tmp_path / name).mkdir()
        for at in range(10):
            pixels = generator.integers(0, 120, (24 + at, 40 - 2 * at, 3))
            pixels[..., place % 3] += 60 + 60 * (place > 2)
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / name / f"{at}.png")
    small = Preparation((0.4,) * 3, (0.2,) * 3, crop="resized", size=16, resize=20)
    return replace(load_data(f"folder:{tmp_path}"), preparation=small)


def short(toy_config: Callable[..., RunConfig], **settings: object) -> RunConfig:
    plain = {"protocol__data": "folder:here", "protocol__class_order": "natural", "engine__device": "cpu"}
    return toy_config(protocol__base=2, protocol__step=2, **plain, **settings)


def test_the_images_and_the_choice_make_the_source(photos: ImageData, toy_data: ImageData) -> None:
    labels = torch.from_numpy(photos.train.labels)
    for choice, kind in (("resident", ResidentPhotos), ("files", FileImages)):
        assert type(make_source(photos.train, labels, photos.preparation, CPU, choice)) is kind
    labels = torch.from_numpy(toy_data.train.labels)
    assert type(make_source(toy_data.train, labels, toy_data.preparation, CPU)) is ResidentImages


def test_the_choice(photos: ImageData, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = sum(packed_bytes(split.images, photos.preparation) for split in (photos.train, photos.test))
    assert needed > 40 * 3 * 20 * 20
    monkeypatch.setattr(sources, "free_memory", lambda device: 2 * needed)
    assert choose_photos("auto", photos, GPU) == "resident"
    assert choose_photos("resident", photos, GPU) == "resident"
    assert choose_photos("auto", photos, CPU) == "files"
    assert choose_photos("resident", photos, CPU) == "resident"
    for wanted in ("auto", "resident", "files"):
        assert choose_photos(wanted, toy_data, GPU) is None
    monkeypatch.setattr(sources, "free_memory", lambda device: 2 * needed - 2)
    assert choose_photos("auto", photos, GPU) == "files"
    assert choose_photos("files", photos, GPU) == "files"


def test_photos_that_do_not_fit_are_refused(
    photos: ImageData, toy_config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "packed_bytes", lambda paths, preparation: 5 << 30)
    monkeypatch.setattr(sources, "free_memory", lambda device: 7 << 30)
    with pytest.raises(UserError, match=r"10\.00 GiB of cpu, .* 3\.50 GiB; use engine\.photos=files"):
        Trainer(short(toy_config, engine__photos="resident"), photos)


def test_what_is_there_already_takes_no_room(photos: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "free_memory", lambda device: 0)
    with pytest.raises(UserError):
        choose_photos("resident", photos, CPU)
    held = []
    for split in (photos.train, photos.test):
        held.append(ResidentPhotos(split, torch.from_numpy(split.labels), photos.preparation, CPU))
    assert choose_photos("resident", photos, CPU) == "resident"


def test_the_memory_of_this_machine() -> None:
    assert 1 << 28 < free_memory(CPU) < 1 << 50


def test_a_run_on_resident_photos(
    photos: ImageData, toy_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = short(toy_config, engine__photos="resident")
    record, again = (run(config, data=photos, store=tmp_path / "store") for _ in range(2))
    assert record["config"]["engine"]["photos"] == "resident"
    assert record["data"]["train_images"] == 32
    assert [phase["seen_classes"] for phase in record["phases"]] == [2, 4]
    assert comparable_part(record) == comparable_part(again)
    assert again["timing"]["reused_phase_zero"]
    from_files = run(config.override({"engine.photos": "files"}), data=photos, store=tmp_path / "store")
    assert not from_files["timing"]["reused_phase_zero"]
    assert from_files["phases"][0]["loss"] != record["phases"][0]["loss"]


def test_only_resident_photos_change_the_key_of_a_stored_phase_zero(
    photos: ImageData, toy_data: ImageData, toy_config: Callable[..., RunConfig]
) -> None:
    def key(data: ImageData, **settings: object) -> str:
        config = short(toy_config, **settings)
        return phase_zero_key(config, data, Trainer(config, data))

    assert key(photos) == key(photos, engine__photos="files")  # what auto means on a CPU
    assert key(photos) != key(photos, engine__photos="resident")
    assert key(toy_data) == key(toy_data, engine__photos="resident")
