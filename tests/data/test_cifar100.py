"""CIFAR-100: nothing unverified is unpickled, and the genuine files give the published facts."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from phasezero.data import cifar100
from phasezero.data.catalog import DATA_SETS, load_data
from phasezero.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "cifar100"


class Mischief:
    """Unpickling it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def fake_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Six training and three test images in the published format, with an md5 table to match."""
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    pixels = {
        name: rng.integers(0, 256, (count, 3, 32, 32), np.uint8)
        for name, count in (("train", 6), ("test", 3))
    }
    contents: dict[str, dict[str, object]] = {
        name: {"data": planes.reshape(len(planes), 3072), "fine_labels": [i % 3 for i in range(len(planes))]}
        for name, planes in pixels.items()
    }
    contents["meta"] = {"fine_label_names": ["ant", "bee", "cat"]}
    for name, content in contents.items():
        write(folder / name, pickle.dumps(content, protocol=4), monkeypatch)
    return pixels


def write(path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(content)
    monkeypatch.setitem(cifar100.MD5, path.name, hashlib.md5(content).hexdigest())


@pytest.mark.parametrize("inner", ["", "cifar-100-python"])
def test_reads_the_published_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str) -> None:
    pixels = fake_files(tmp_path, monkeypatch)
    data = load_data("cifar100", tmp_path / inner)
    assert data.class_ids == data.class_names == ("ant", "bee", "cat")
    assert isinstance(data.train.images, np.ndarray)
    assert data.train.images.shape == (6, 32, 32, 3)
    assert data.train.images.dtype == np.uint8
    assert data.train.images[4, 7, 9, 2] == pixels["train"][4, 2, 7, 9]
    assert data.test.labels.tolist() == [0, 1, 2]
    assert data.test.labels.dtype == np.int64
    assert DATA_SETS["cifar100"].present(tmp_path / inner)


def test_files_in_a_folder_of_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_files(tmp_path / "a", monkeypatch)
    (tmp_path / "a" / "cifar-100-python").rename(tmp_path / "mine")
    assert len(load_data("cifar100", tmp_path / "mine").train) == 6


def test_missing_files_say_where_and_what_to_do(tmp_path: Path) -> None:
    assert not DATA_SETS["cifar100"].present(tmp_path)
    with pytest.raises(UserError) as error:
        load_data("cifar100", tmp_path)
    assert str(tmp_path / "cifar-100-python") in str(error.value)
    assert f"phasezero data get cifar100 --root {tmp_path}" in str(error.value)


def test_where_files_are_looked_for_without_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_files(tmp_path / "data", monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PHASEZERO_DATA", raising=False)
    assert len(load_data("cifar100").train) == 6
    monkeypatch.setenv("PHASEZERO_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match="elsewhere"):
        load_data("cifar100")


def test_a_path_behind_the_name_is_no_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_files(tmp_path, monkeypatch)
    with pytest.raises(UserError, match="takes no argument, got 'cifar100:mine'; use --root"):
        load_data("cifar100:mine", tmp_path)


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_a_wrong_md5_is_refused_before_unpickling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fake_files(tmp_path, monkeypatch)
    mark = tmp_path / "was here"
    evil = pickle.dumps(Mischief(mark))
    (tmp_path / "cifar-100-python" / name).write_bytes(evil)
    with pytest.raises(UserError, match="delete it") as error:
        load_data("cifar100", tmp_path)
    assert hashlib.md5(evil).hexdigest() in str(error.value)
    assert cifar100.MD5[name] in str(error.value)
    assert not mark.exists()
    pickle.loads(evil)  # the mischief is real: a plain unpickler falls for it
    assert mark.exists()


@pytest.mark.parametrize("target", [os.system, os.mkdir, eval, getattr])
def test_the_unpickler_refuses_code_even_with_the_right_md5(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: object
) -> None:
    fake_files(tmp_path, monkeypatch)
    mark = tmp_path / "was here"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return target, (f"mkdir '{mark}'",)

    write(tmp_path / "cifar-100-python" / "train", pickle.dumps({"data": Evil()}), monkeypatch)
    with pytest.raises(UserError, match="nothing in it was run"):
        load_data("cifar100", tmp_path)
    assert not mark.exists()


def test_get_is_idempotent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_files(tmp_path, monkeypatch)
    monkeypatch.setattr(cifar100, "URL", "http://127.0.0.1:1/never")
    get = DATA_SETS["cifar100"].download
    assert get is not None
    get(tmp_path)
    assert "already" in capsys.readouterr().err


def test_get_unpacks_an_archive_put_there_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_files(tmp_path / "made", monkeypatch)
    root = tmp_path / "root"
    root.mkdir()
    archive = root / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "made" / "cifar-100-python", "cifar-100-python")
    monkeypatch.setattr(cifar100, "ARCHIVE_MD5", hashlib.md5(archive.read_bytes()).hexdigest())
    monkeypatch.setattr(cifar100, "URL", "http://127.0.0.1:1/never")
    (root / "cifar-100-python").mkdir()
    (root / "cifar-100-python" / "train").write_bytes(b"damaged")
    cifar100.get_cifar100(root)
    assert len(load_data("cifar100", root).train) == 6
    assert archive.is_file()

    shutil.rmtree(root / "cifar-100-python")
    monkeypatch.setitem(cifar100.MD5, "test", "of another file")
    with pytest.raises(UserError, match="are not the published ones"):
        cifar100.get_cifar100(root)

    shutil.rmtree(root / "cifar-100-python")
    monkeypatch.setattr(cifar100, "ARCHIVE_MD5", "of another archive")
    with pytest.raises(UserError, match="/never"):
        cifar100.get_cifar100(root)
    assert list(root.iterdir()) == [archive], "another archive is not unpacked"


def test_the_numbers_of_the_published_code() -> None:
    assert cifar100.PREPARATION.std == (0.2009, 0.1984, 0.2023)
    assert cifar100.PREPARATION.mean == (0.5071, 0.4866, 0.4409)
    assert DATA_SETS["cifar100"].class_order == "seed1993"


@pytest.fixture(scope="session")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (SHARED / "decode.py").is_file():
        pytest.skip("the genuine CIFAR-100 is not beside this repository")
    root = tmp_path_factory.mktemp("cifar100")
    subprocess.run([sys.executable, str(SHARED / "decode.py"), str(root)], check=True, capture_output=True)
    return root


def test_the_genuine_files(genuine: Path) -> None:
    data = load_data("cifar100", genuine)
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    assert np.bincount(data.train.labels).tolist() == [500] * 100
    assert np.bincount(data.test.labels).tolist() == [100] * 100
    assert data.class_names[:2] == ("apple", "aquarium_fish")
    assert data.class_names[data.train.labels[0]] == "cattle"  # label 19, the file's first
    # The published mean is that of the training pixels: channels and planes are where they should be.
    assert isinstance(data.train.images, np.ndarray)
    mean = data.train.images.mean((0, 1, 2), dtype=np.float64) / 255
    assert np.abs(mean - np.array(data.preparation.mean)).max() < 2e-4
    shutil.rmtree(genuine / "cifar-100-python")  # 180 MB that nobody needs any more
