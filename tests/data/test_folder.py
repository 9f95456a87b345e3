"""`folder:PATH`: both layouts, the held-out fifth, and every way to get a folder wrong."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.ImageFile import ImageFile

from phasezero.data.catalog import DATA_SETS, load_data
from phasezero.data.files import image_sizes, read_image, unreadable_images
from phasezero.errors import UserError


def photos(folder: Path, count: int, ending: str = "jpg") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (4, 3), (i, 0, 0)).save(folder / f"photo{i:02d}.{ending}")


def names(paths: object) -> list[str]:
    return [f"{path.parent.name}/{path.name}" for path in paths]  # type: ignore[attr-defined]


@pytest.mark.parametrize("side", ["val", "test"])
def test_a_given_split(tmp_path: Path, side: str) -> None:
    for name, count in (("cat", 3), ("ant", 2), ("bee", 1)):
        photos(tmp_path / "train" / name, count)
        photos(tmp_path / side / name, 1, "PNG")
    data = load_data(f"folder:{tmp_path}")
    assert data.class_ids == data.class_names == ("ant", "bee", "cat")
    assert data.train.labels.tolist() == [0, 0, 1, 2, 2, 2]
    assert data.train.labels.dtype == np.int64
    assert names(data.train.paths)[:3] == ["ant/photo00.jpg", "ant/photo01.jpg", "bee/photo00.jpg"]
    assert names(data.test.paths) == ["ant/photo00.PNG", "bee/photo00.PNG", "cat/photo00.PNG"]
    assert data.preparation.size == 224
    assert not data.in_memory
    assert DATA_SETS["folder"].class_order == "natural"
    for name in data.class_names:
        photos(tmp_path / "test" / name, 2)
    photos(tmp_path / "val" / "dog", 2)
    assert len(load_data(f"folder:{tmp_path}").test) == (6 if side == "val" else 9), "test comes before val"


def test_a_fifth_is_held_out(tmp_path: Path) -> None:
    counts = {"ant": 20, "bee": 7, "cat": 2, "train": 5}  # "train" is a class here: it holds images
    for name, count in counts.items():
        photos(tmp_path / name, count)
    data = load_data(f"folder:{tmp_path}")
    assert data.class_ids == ("ant", "bee", "cat", "train")
    assert Counter(data.test.labels.tolist()) == {0: 4, 1: 2, 2: 1, 3: 1}
    train, test = names(data.train.paths), names(data.test.paths)
    assert not set(train) & set(test)
    assert len(train) + len(test) == sum(counts.values())
    assert [data.class_names[label] for label in data.test.labels] == [name.split("/")[0] for name in test]
    # By file names alone. It must never change, since finished runs depend on it. Found with sha256sum and sort.
    assert test[:4] == [f"ant/photo{number}.jpg" for number in ("01", "06", "10", "16")]


def test_hidden_and_foreign_files_are_passed_over_and_links_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ant", "bee"):
        photos(tmp_path / "mine" / name, 2)
        (tmp_path / "mine" / name / "notes.txt").write_text("")
        (tmp_path / "mine" / name / "._photo00.jpg").write_bytes(b"")
        (tmp_path / "mine" / name / "folder.jpg").mkdir()
    photos(tmp_path / "mine" / ".cache", 3)
    for place, ending in enumerate(("JPEG", "Png", "bmp", "webp", "TIF", "tiff")):
        Image.new("RGB", (4, 3)).save(tmp_path / "mine" / "ant" / f"{place}.b.{ending}")
    (tmp_path / "mine" / "ant" / "linked.jpg").symlink_to(tmp_path / "mine" / "bee" / "photo00.jpg")
    monkeypatch.setenv("HOME", str(tmp_path))
    data = load_data("folder:~/mine")
    assert data.class_ids == ("ant", "bee")
    assert len(data.train) + len(data.test) == 4 + 6 + 1
    (tmp_path / "mine" / "bee" / "lost.jpg").symlink_to(tmp_path / "nowhere.jpg")  # as git-annex leaves them
    assert "bee: broken symlinks: 1 (lost.jpg)" in fails("~/mine")


def fails(path: object) -> str:
    with pytest.raises(UserError) as error:
        load_data(f"folder:{path}")
    return str(error.value)


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    assert "folder:PATH" in fails("")
    assert str(tmp_path / "nowhere") in fails(tmp_path / "nowhere")
    assert "no class folders" in fails(tmp_path)
    photos(tmp_path / "ant", 2)
    photos(tmp_path / "bee", 1)
    (tmp_path / "cat").mkdir()
    assert "fewer than 2 image files" in fails(tmp_path)
    assert "2 (bee, cat)" in fails(tmp_path)
    (tmp_path / "d\tg").mkdir()
    assert "'d\\tg' has a name that cannot be written" in fails(tmp_path)


def test_errors_of_a_given_split(tmp_path: Path) -> None:
    photos(tmp_path / "train" / "ant", 2)
    assert "neither test/ nor val/" in fails(tmp_path)
    photos(tmp_path / "val" / "ant", 1)
    photos(tmp_path / "val" / "bee", 1)
    assert f"missing in {tmp_path / 'train'}: 1 (bee) of 2" in fails(tmp_path)
    photos(tmp_path / "train" / "bee", 1)
    photos(tmp_path / "train" / "cat", 1)
    assert f"missing in {tmp_path / 'val'}: 1 (cat) of 3" in fails(tmp_path)
    (tmp_path / "val" / "cat").mkdir()
    assert f"no image files in {tmp_path / 'val'}: 1 (cat)" in fails(tmp_path)


def test_a_file_that_is_no_image_is_refused_at_once(tmp_path: Path) -> None:
    """Whatever its class: not after the phases that come before it."""
    for name in ("a", "b", "c"):
        photos(tmp_path / name, 5)
    (tmp_path / "c" / "photo03.jpg").write_bytes(b"no image")
    assert "photo03.jpg" in fails(tmp_path)


FORMATS = ["jpg", "png", "bmp", "webp", "tif"]


def noise(folder: Path, ending: str, seed: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"noise{seed}.{ending}"
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(path)
    return path


@pytest.mark.parametrize("ending", FORMATS)
def test_a_truncated_photo_of_any_class_is_found_at_once(tmp_path: Path, ending: str) -> None:
    """Its header is whole, so that only its end tells."""
    for name in ("a", "b", "c"):
        photos(tmp_path / name, 4)
    path = noise(tmp_path / "c", ending)
    content = path.read_bytes()
    for missing in (1, 2, 20, len(content) // 3):
        image_sizes.cache_clear()  # which the paths alone decide
        path.write_bytes(content[:-missing])
        try:
            read_image(path).load()
        except UserError:
            assert f"c/noise0.{ending} cannot be read" in fails(tmp_path)
        else:  # some decoders do without the last bytes
            assert missing <= 20
            load_data(f"folder:{tmp_path}")
    image_sizes.cache_clear()


@pytest.mark.parametrize("ending", FORMATS)
def test_only_files_without_a_clear_end_are_decoded(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, longer = noise(tmp_path, ending, 1), noise(tmp_path, ending, 2)
    longer.write_bytes(longer.read_bytes() + b"made by a phone")
    decoded: list[str] = []
    as_given = ImageFile.load
    monkeypatch.setattr(ImageFile, "load", lambda image: (decoded.append(image.format), as_given(image))[1])
    assert unreadable_images([plain]) == []
    assert bool(decoded) == (ending == "tif")
    assert unreadable_images([longer]) == []  # whole, with something behind its end
    assert image_sizes((plain, longer)).tolist() == [[50, 40]] * 2


def test_a_photo_is_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (told,) = unreadable_images([tmp_path / "pipe.jpg"])
    assert "pipe.jpg cannot be read: it is a folder, pipe or device" in str(told)
