"""Which source a run gets, and a run on photos that stay on the device."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from phasezero.config import RunConfig
from phasezero.data import sources
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData, Preparation, View
from phasezero.data.loader import FileImages, ResidentImages
from phasezero.data.photos import ResidentPhotos, bytes_to_pack
from phasezero.data.sources import choose_photos, free_memory
from phasezero.engine.store import phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.records.run import comparable_part
from samples import Make, train

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def photos(tmp_path: Path) -> ImageData:
    """Four classes of ten photos, scaled down for a network to be quick."""
    generator = np.random.default_rng(0)
    for name, at in itertools.product(("blue", "green", "grey", "red"), range(10)):
        (tmp_path / name).mkdir(exist_ok=True)
        pixels = generator.integers(0, 256, (24 + at, 40 - 2 * at, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / name / f"{at}.png")
    small = Preparation((0.4,) * 3, (0.2,) * 3, size=16, view=View("resized"), resize=20)
    return replace(load_data(f"folder:{tmp_path}"), preparation=small)


def short(toy_config: Make, **settings: object) -> RunConfig:
    plain = {"protocol__data": "folder:here", "protocol__class_order": "natural", "engine__device": "cpu"}
    return toy_config(protocol__base=2, protocol__step=2, **plain, **settings)


def test_the_choice(photos: ImageData, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = sum(bytes_to_pack(split.paths, photos.preparation, CPU) for split in (photos.train, photos.test))
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


def test_photos_that_do_not_fit_are_refused_unless_they_are_there_already(
    photos: ImageData, toy_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = short(toy_config, engine__photos="resident")
    monkeypatch.setattr(sources, "free_memory", lambda device: 7 << 30)
    with monkeypatch.context() as large:
        large.setattr(sources, "bytes_to_pack", lambda paths, preparation, device: 5 << 30)
        with pytest.raises(UserError, match=r"10\.00 GiB of cpu, .* 3\.50 GiB; use engine\.photos=files"):
            Trainer(config, photos)
    trainer = Trainer(config, photos)
    monkeypatch.setattr(sources, "free_memory", lambda device: 0)
    assert choose_photos("resident", photos, CPU) == "resident"
    del trainer
    with pytest.raises(UserError):
        choose_photos("resident", photos, CPU)
    monkeypatch.undo()
    assert 1 << 28 < free_memory(CPU) < 1 << 50


def test_a_run_on_resident_photos(photos: ImageData, toy_config: Make, tmp_path: Path) -> None:
    config = short(toy_config, engine__photos="resident")
    record, again = (train(config, data=photos, store=tmp_path / "store") for _ in range(2))
    assert record["config"]["engine"]["photos"] == "resident"
    assert record["data"]["train_images"] == 32
    assert [phase["seen_classes"] for phase in record["phases"]] == [2, 4]
    assert comparable_part(record) == comparable_part(again)
    assert again["timing"]["reused_phase_zero"]
    from_files = train(config.override({"engine.photos": "files"}), data=photos, store=tmp_path / "store")
    assert not from_files["timing"]["reused_phase_zero"]
    assert from_files["phases"][0]["loss"] != record["phases"][0]["loss"]


def test_only_resident_photos_change_the_key_of_a_stored_phase_zero(
    photos: ImageData, toy_data: ImageData, toy_config: Make
) -> None:
    def key(data: ImageData, **settings: object) -> str:
        trainer = Trainer(short(toy_config, **settings), data)
        kinds.add((data.name, type(trainer.train)))
        return phase_zero_key(trainer)

    kinds: set[tuple[str, type]] = set()
    assert key(photos) == key(photos, engine__photos="files")  # what auto means on a CPU
    assert key(photos) != key(photos, engine__photos="resident")
    assert key(toy_data) == key(toy_data, engine__photos="resident")
    assert kinds == {("folder", FileImages), ("folder", ResidentPhotos), ("toy", ResidentImages)}
