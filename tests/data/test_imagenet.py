"""ImageNet: the published class lists, and trees like ILSVRC's with three classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phasezero.data import imagenet
from phasezero.data.catalog import DATA_SETS, load_data
from phasezero.data.images import ImageData
from phasezero.errors import UserError

WNIDS = ("n00000003", "n00000001", "n00000002")  # not sorted: an imagenet100 list is a sequence
# The classes of the flat validation images, in their order; the last is of a class outside the list.
TRUTH = ("n00000002", "n00000003", "n00000001", "n00000002", "n00000009")


def test_the_1000_classes_and_their_order() -> None:
    wnids = imagenet.class_list("imagenet")
    assert len(set(wnids)) == 1000
    assert list(wnids) == sorted(wnids)
    assert (wnids[0], wnids[-1]) == ("n01440764", "n15075141")
    order = np.arange(1000)
    np.random.RandomState(1993).shuffle(order)
    first = [54, 7, 894, 512, 126, 337, 988, 11, 284, 493, 133, 783, 192, 979, 622, 215, 240, 548, 238, 419]
    assert order[:20].tolist() == first
    assert [wnids[i] for i in order[:100]] == list(imagenet.class_list("imagenet100-cwd"))


def test_the_three_imagenet100() -> None:
    wnids = imagenet.class_list("imagenet")
    cwd, lucir, podnet = (imagenet.class_list(f"imagenet100-{name}") for name in ("cwd", "lucir", "podnet"))
    again = np.random.RandomState(1993).permutation(100)
    assert lucir == tuple(sorted(cwd)[i] for i in again)
    assert podnet == tuple(wnids[i] for i in again)
    assert cwd[:2] == ("n01729322", "n01514668")
    assert lucir[:2] == ("n03710193", "n03089624")
    assert len(set(cwd[:50]) & set(lucir[:50])) == 26
    assert len(set(podnet) & set(lucir)) == 9


def test_the_catalog() -> None:
    names = ["imagenet100", "imagenet100-cwd", "imagenet100-lucir", "imagenet100-podnet"]
    assert [DATA_SETS[name].class_order for name in names] == ["natural"] * 4
    assert DATA_SETS["imagenet"].class_order == "seed1993"
    assert "imagenet100-cwd" in DATA_SETS["imagenet100"].summary
    assert DATA_SETS["imagenet"].download is None


def photo(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2)).save(path, "JPEG")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(imagenet, "class_list", lambda name: WNIDS)
    for wnid in (*WNIDS, "n00000009"):
        for i in (2, 10):
            photo(tmp_path / "train" / wnid / f"{wnid}_{i:03d}.JPEG")
    return tmp_path


def flat_val(root: Path) -> None:
    for i in range(len(TRUTH)):
        photo(root / "val" / f"ILSVRC2012_val_{i + 1:08d}.JPEG")


def image_names() -> list[str]:
    return [f"ILSVRC2012_val_{i + 1:08d}" for i in range(len(TRUTH))]


def check_flat(data: ImageData) -> None:
    assert data.class_ids == data.class_names == WNIDS
    numbers = [int(path.stem[-8:]) for path in data.test.images]  # type: ignore[union-attr]
    assert numbers == [2, 3, 1, 4]
    assert data.test.labels.tolist() == [0, 1, 2, 2]


def test_validation_in_class_folders(root: Path) -> None:
    photo(root / "train" / WNIDS[0] / "also.Png")
    (root / "train" / WNIDS[0] / "list.txt").write_text("")
    for wnid in WNIDS:
        photo(root / "val" / wnid / "a.JPEG")
    data = load_data("imagenet100-cwd", root)
    assert data.name == "imagenet100-cwd"
    assert data.class_ids == WNIDS
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert [path.name for path in data.train.images[:3]] == [  # type: ignore[union-attr]
        "also.Png",
        "n00000003_002.JPEG",
        "n00000003_010.JPEG",
    ]
    assert [path.parent.name for path in data.test.images] == list(WNIDS)  # type: ignore[union-attr]
    assert (data.preparation.resize, data.preparation.size, data.preparation.crop) == (256, 224, "resized")
    assert DATA_SETS["imagenet"].present(root)
    assert load_data("imagenet100", root).name == "imagenet100-cwd"


def pairs(root: Path) -> None:
    lines = [f"{name}.JPEG {wnid}" for name, wnid in zip(image_names(), TRUTH, strict=True)]
    (root / "val_ground_truth.txt").write_text("\n".join(reversed(lines)) + "\n")


def kaggle(root: Path) -> None:
    rows = [f"{name},{wnid} 1 2 3 4 {wnid} 5 6 7 8 " for name, wnid in zip(image_names(), TRUTH, strict=True)]
    (root / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *rows]) + "\n")


def per_image(root: Path) -> None:
    (root / "imagenet_2012_validation_synset_labels.txt").write_text("\n".join(TRUTH))


def per_image_beside_the_devkit(root: Path) -> None:
    devkit = root / "ILSVRC2012_devkit_t12" / "data"
    devkit.mkdir(parents=True)
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("490\n361\n171\n490\n2\n")
    (root / "val" / "synsets.txt").write_text("\n".join(TRUTH))


@pytest.mark.parametrize("write", [pairs, kaggle, per_image, per_image_beside_the_devkit])
def test_validation_images_in_one_folder(root: Path, write: Callable[[Path], None]) -> None:
    flat_val(root)
    write(root)
    check_flat(load_data("imagenet", root))


def test_the_layout_of_kaggles_archive(root: Path) -> None:
    inner = root / "ILSVRC" / "Data" / "CLS-LOC"
    inner.mkdir(parents=True)
    flat_val(root)
    kaggle(root)
    for side in ("train", "val"):
        (root / side).rename(inner / side)
    check_flat(load_data("imagenet", root))


def fails(root: Path) -> str:
    with pytest.raises(UserError) as error:
        load_data("imagenet", root)
    return str(error.value)


def test_errors_about_folders(root: Path) -> None:
    assert not DATA_SETS["imagenet"].present(root)
    assert "image-net.org" in fails(root)
    (root / "val").mkdir()
    assert "neither images nor class folders" in fails(root)
    photo(root / "val" / WNIDS[1] / "a.JPEG")
    assert "2 (n00000003, n00000002) of 3" in fails(root)
    for wnid in WNIDS:
        (root / "val" / wnid).mkdir(exist_ok=True)
    assert "without images" in fails(root)
    (root / "train" / WNIDS[0]).rename(root / "train" / "n1")
    assert "1 (n00000003) of 3" in fails(root)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("490\n361\n171\n490\n2\n", "meta.mat"),  # the devkit's ids
        ("n00000001\nn00000002\n", "2 lines for 5 images"),
        ("n00000001\nn00000002\nn00000003\nn00000004\nn00000005\n", "a list of classes"),
        ("ILSVRC2012_val_00000001.JPEG 65\n", "not a list of images and wnids"),  # Caffe's own numbers
        ("", "not a list"),
        ("some\nwords\n", "not a list of wnids"),
    ],
)
def test_what_is_ambiguous_is_not_guessed(root: Path, content: str, reason: str) -> None:
    flat_val(root)
    (root / "val_ground_truth.txt").write_text(content)
    message = fails(root)
    assert reason in message
    assert "LOC_val_solution.csv" in message


def test_errors_about_a_ground_truth_that_does_not_fit(root: Path) -> None:
    flat_val(root)
    pairs(root)
    photo(root / "val" / "ILSVRC2012_val_00000006.JPEG")
    assert "1 (ILSVRC2012_val_00000006.JPEG)" in fails(root)
    (root / "val" / "ILSVRC2012_val_00000006.JPEG").unlink()
    (root / "val" / "ILSVRC2012_val_00000003.JPEG").unlink()
    assert "1 (n00000001)" in fails(root)
