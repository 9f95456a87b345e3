"""CIFAR-100: nothing unverified is unpickled, and the genuine files give the published facts."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from phasezero.data import cifar100
from phasezero.data.catalog import DATA_SETS, load_data
from phasezero.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "cifar100"
FOLDER = "cifar-100-python"


def write(path: Path, content: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(pickle.dumps(content, protocol=4))
    monkeypatch.setitem(cifar100.MD5, path.name, hashlib.md5(path.read_bytes()).hexdigest())


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six training and three test images in the published format, with an md5 table to match."""
    root = tmp_path / "data"
    (root / FOLDER).mkdir(parents=True)
    for name, count in (("train", 6), ("test", 3)):
        planes = np.random.default_rng(0).integers(0, 256, (count, 3 * 32 * 32), np.uint8)
        write(root / FOLDER / name, {"data": planes, "fine_labels": [i % 3 for i in range(count)]}, monkeypatch)
    write(root / FOLDER / "meta", {"fine_label_names": ["ant", "bee", "cat"]}, monkeypatch)
    return root


@pytest.mark.parametrize("place", [".", FOLDER, "another name"])
def test_reads_the_published_format(root: Path, place: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3 * 32 * 32), np.uint8)
    if place == "another name":
        (root / FOLDER).rename(root / place)
    data = load_data("cifar100", root / place)
    assert data.class_ids == data.class_names == ("ant", "bee", "cat")
    assert data.train.pixels.shape == (6, 32, 32, 3)
    assert data.train.pixels.dtype == np.uint8
    assert data.train.pixels[4, 7, 9, 2] == pixels[4, 2 * 32 * 32 + 7 * 32 + 9]
    assert data.test.labels.tolist() == [0, 1, 2]
    assert data.preparation.std == (0.2009, 0.1984, 0.2023)  # not that of the pixels
    assert data.test.labels.dtype == np.int64
    assert DATA_SETS["cifar100"].present(root / place)


def test_missing_files_say_where_and_what_to_do(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    monkeypatch.delenv("PHASEZERO_DATA", raising=False)
    assert len(load_data("cifar100").train) == 6
    nowhere = root / "elsewhere"
    assert not DATA_SETS["cifar100"].present(nowhere)
    monkeypatch.setenv("PHASEZERO_DATA", str(nowhere))
    with pytest.raises(UserError) as error:
        load_data("cifar100")
    assert str(nowhere / FOLDER) in str(error.value)
    assert f"phasezero data get cifar100 --root {nowhere}" in str(error.value)
    with pytest.raises(UserError, match="takes no argument, got 'cifar100:mine'; use --root"):
        load_data("cifar100:mine", root)


class Mischief:
    """Unpickling it calls a function, such as one that makes a folder."""

    def __init__(self, target: object, argument: str) -> None:
        self.call = target, (argument,)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return self.call


@pytest.mark.parametrize("name", ["train", "test", "meta"])
@pytest.mark.parametrize("target", [os.mkdir, os.system, eval, getattr, np.load, np.fromfile])
def test_a_wrong_md5_is_not_unpickled_and_code_not_run_even_with_the_right_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: object
) -> None:
    mark, right = root / "mark", cifar100.MD5[name]
    write(root / FOLDER / name, {"data": Mischief(target, str(mark))}, monkeypatch)
    with pytest.raises(UserError, match="nothing in it was run"):
        load_data("cifar100", root)
    found = cifar100.MD5[name]
    monkeypatch.setitem(cifar100.MD5, name, right)
    with pytest.raises(UserError, match=f"md5 {found}, expected {right}.* delete it"):
        load_data("cifar100", root)
    assert not mark.exists()
    if target is os.mkdir:  # the attack works on a plain unpickler
        pickle.loads((root / FOLDER / name).read_bytes())
        assert mark.exists()


def test_the_genuine_files(tmp_path: Path) -> None:
    if not (SHARED / "decode.py").is_file():
        pytest.skip("the genuine CIFAR-100 is not beside this repository")
    subprocess.run([sys.executable, str(SHARED / "decode.py"), str(tmp_path)], check=True, capture_output=True)
    data = load_data("cifar100", tmp_path)
    assert np.bincount(data.train.labels).tolist() == [500] * 100
    assert np.bincount(data.test.labels).tolist() == [100] * 100
    assert data.class_names[:2] == ("apple", "aquarium_fish")
    assert data.class_names[data.train.labels[0]] == "cattle"  # label 19, the file's first
    # The published mean is that of the training pixels: channels and planes are where they should be.
    mean = data.train.pixels.mean((0, 1, 2), dtype=np.float64) / 255
    assert data.preparation.mean == (0.5071, 0.4866, 0.4409)
    assert np.abs(mean - np.array(data.preparation.mean)).max() < 2e-4
    shutil.rmtree(tmp_path / FOLDER)  # 180 MB that nobody needs any more
