"""A model folder: what it holds, damage, several processes, earlier versions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phasezero import Learner, UserError
from phasezero.learner import folder as folders
from phasezero.records.jsonfile import DIGEST

Photos = Callable[..., list[tuple[Path, str]]]
OLD = Path(__file__).parent / "models"


@pytest.fixture
def model(photos: Photos, tmp_path: Path) -> Path:
    return Learner(memory="per_class:2").fit(photos("ab")).save(tmp_path / "model")


def test_a_model_continues_without_the_photos_it_was_made_from(photos: Photos, model: Path) -> None:
    for path, _ in photos("ab"):
        path.unlink()
    learner = Learner.load(model).add_classes(photos("c"))
    learner.save(model)
    tested = [path for path, _ in photos("abc", 2, "test", seed=5)]
    again = Learner.load(model)
    assert np.array_equal(again.predict_proba(tested), learner.predict_proba(tested))
    assert again.predict(tested).tolist() == ["a", "a", "b", "b", "c", "c"]
    assert again.history_ == learner.history_
    with pytest.raises(UserError, match="the same image as"):
        again.add_classes([(photos("a")[0][0], "d")])


def test_exemplars_are_images_without_metadata_and_none_are_kept_by_default(photos: Photos, tmp_path: Path) -> None:
    path = tmp_path / "large.jpg"
    exif = Image.Exif()
    exif[0x9286] = "at home"
    Image.new("RGB", (900, 600), "red").save(path, exif=exif)
    kept = Learner(memory="per_class:5").fit([(path, "a"), *photos("b")]).save(tmp_path / "kept")
    facts = json.loads((kept / "model.json").read_text())
    assert sorted(facts["images"]) == sorted(p.relative_to(kept).as_posix() for p in (kept / "images").iterdir())
    (mine,) = (kept / name for name in facts["classes"][0]["exemplars"])
    assert b"at home" not in mine.read_bytes()
    assert min(Image.open(mine).size) == 256
    assert "Old images in this folder: 3 (exemplars" in (kept / "README.md").read_text()
    plain = Learner().fit(photos("ab")).save(tmp_path / "plain")
    assert not (plain / "images").exists()
    assert "Old images in this folder: none" in (plain / "README.md").read_text()


def test_the_card_escapes_names(bars: Callable[..., tuple[np.ndarray, np.ndarray]], tmp_path: Path) -> None:
    images, _ = bars(range(2), 2)
    learner = Learner("ncm", backbone="none", settings={"epochs": 1}).fit(images, ["<b>", "<b>", "a|b", "a|b"])
    assert r"| \<b\> | 0 | 2 | 0 |" in (learner.save(tmp_path / "m") / "README.md").read_text()


def test_a_model_of_a_machine_with_a_gpu_is_read_on_this_machine(photos: Photos, model: Path) -> None:
    tested = [path for path, _ in photos("ab", 2, "test", seed=5)]
    before = Learner.load(model).predict_proba(tested)
    facts = json.loads((model / "model.json").read_text())
    del facts["content_sha256"]
    facts["parameters"]["device"] = facts["config"]["engine"]["device"] = "cuda:3"
    (model / "model.json").write_text(json.dumps(facts))
    moved = Learner.load(model, device="cpu")
    assert np.array_equal(moved.predict_proba(tested), before)
    assert list(moved.add_classes(photos("c")).classes_) == ["a", "b", "c"]


def test_damage_is_found_before_use(model: Path) -> None:
    for path in (*model.glob("*.safetensors"), next((model / "images").iterdir())):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(UserError, match=f"{path.name} is damaged"):
            Learner.load(model)
        path.unlink()
        with pytest.raises(UserError, match=f"{path.name} cannot be read"):
            Learner.load(model)
        path.write_bytes(content)
    facts = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(facts | {"version": 7}))
    with pytest.raises(UserError, match=r"model\.json: the content was changed or damaged"):
        Learner.load(model)
    del facts[DIGEST]  # as in a model of an earlier version
    for change, message in [
        ({"format": "phasezero-model-9"}, "not a model of this version"),
        ({"calibration": {"mean": 1}}, "damaged"),
        ({"classes": []}, "damaged"),
        ({"tensors": {}}, "damaged"),
    ]:
        (model / "model.json").write_text(json.dumps(facts | change))
        with pytest.raises(UserError, match=message):
            Learner.load(model)
    outside = facts | {"tensors": facts["tensors"] | {"state": {"file": "../x.safetensors", "sha256": ""}}}
    (model / "model.json").write_text(json.dumps(outside))
    with pytest.raises(UserError, match="outside the folder"):
        Learner.load(model)
    with pytest.raises(UserError, match="no model here"):
        Learner.load(model.parent)


def test_a_killed_save_leaves_the_model_as_it_was(photos: Photos, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = Learner.load(model).add_classes(photos("c"))
    write = folders.write_json

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "write_json", killed)
    with pytest.raises(KeyboardInterrupt):
        learner.save(model)
    assert list(Learner.load(model).classes_) == ["a", "b"]
    monkeypatch.setattr(folders, "write_json", write)
    learner.save(model)
    assert list(Learner.load(model).classes_) == ["a", "b", "c"]


def test_undo_returns_to_the_version_before(photos: Photos, model: Path) -> None:
    with pytest.raises(UserError, match="no earlier version"):
        folders.undo(model)
    before = sorted(path.name for path in model.rglob("*") if path.suffix != ".md")
    Learner.load(model).add_classes(photos("c")).save(model)
    folders.undo(model)
    assert list(Learner.load(model).classes_) == ["a", "b"]
    assert sorted(path.name for path in model.rglob("*") if path.suffix != ".md") == before


def test_two_who_extend_the_same_model_do_not_lose_each_others_classes(photos: Photos, model: Path) -> None:
    mine, theirs = Learner.load(model), Learner.load(model)
    theirs.add_classes(photos("c")).save(model)
    with pytest.raises(UserError, match="was changed since it was loaded"):
        mine.add_classes(photos("d")).save(model)
    with pytest.raises(UserError, match="holds another model"):
        Learner().fit(photos("ab")).save(model)


def test_a_lock_makes_others_wait(model: Path) -> None:
    said: list[str] = []
    free, locked = threading.Event(), threading.Event()

    def hold() -> None:
        with folders.locked(model):
            locked.set()
            free.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(30)
    with pytest.raises(UserError, match="another process is changing"), folders.locked(model, wait=0):
        pass
    waiter = threading.Thread(target=lambda: folders.locked(model, 30, said.append).__enter__())
    waiter.start()
    while not said:
        assert waiter.is_alive()
    free.set()
    waiter.join(30)
    holder.join(30)
    assert not waiter.is_alive()


def test_other_folders_are_not_written_to(photos: Photos, tmp_path: Path) -> None:
    learner = Learner().fit(photos("ab"))
    with pytest.raises(UserError, match="has other files"):
        learner.save(tmp_path / "photos")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file"):
        learner.save(tmp_path / "file")


@pytest.mark.parametrize("name", sorted(path.name for path in OLD.iterdir()))
def test_models_of_earlier_versions_are_read(name: str) -> None:
    learner = Learner.load(OLD / name, device="cpu")
    expected = json.loads((OLD / name / "expected.json").read_text())
    found = learner.predict_proba(np.load(OLD / name / "tested.npy"))
    assert learner.classes_.tolist() == expected["classes"]
    assert np.allclose(found, expected["probabilities"], atol=1e-5)
