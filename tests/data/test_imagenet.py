"""ImageNet: the published class lists, and trees like ILSVRC's with three classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phasezero.data import imagenet
from phasezero.data.catalog import DATA_SETS, load_data
from phasezero.data.files import image_sizes
from phasezero.errors import UserError

WNIDS = ("n00000003", "n00000001", "n00000002")  # not sorted: an imagenet100 list is a sequence
# The classes of the flat validation images, in their order; the last is of a class outside the list.
TRUTH = ("n00000002", "n00000003", "n00000001", "n00000002", "n00000009")
STEMS = [f"ILSVRC2012_val_{i + 1:08d}" for i in range(len(TRUTH))]


def test_the_class_lists_are_those_of_the_published_code() -> None:
    names = ("imagenet", "imagenet100-cwd", "imagenet100-lucir", "imagenet100-podnet")
    wnids, cwd, lucir, podnet = map(imagenet.class_list, names)
    assert len(set(wnids)) == 1000
    assert list(wnids) == sorted(wnids)
    assert (wnids[0], wnids[-1]) == ("n01440764", "n15075141")
    of_1000, of_100 = (np.random.RandomState(1993).permutation(count) for count in (1000, 100))
    assert cwd == tuple(wnids[i] for i in of_1000[:100])
    assert lucir == tuple(sorted(cwd)[i] for i in of_100)
    assert podnet == tuple(wnids[i] for i in of_100)
    assert cwd[:2] == ("n01729322", "n01514668")
    assert lucir[:2] == ("n03710193", "n03089624")
    assert len(set(cwd[:50]) & set(lucir[:50])) == 26
    assert len(set(podnet) & set(lucir)) == 9
    assert [DATA_SETS[name].class_order for name in names] == ["seed1993", "natural", "natural", "natural"]


def test_every_data_set_has_a_line_of_phasezero_list() -> None:
    assert all(0 < len(DATA_SETS.summaries[name]) <= 56 for name in DATA_SETS)


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


@pytest.fixture
def flat(root: Path) -> Path:
    """The root with all validation images in one folder."""
    for stem in STEMS:
        photo(root / "val" / f"{stem}.JPEG")
    return root


def test_validation_in_class_folders(root: Path) -> None:
    photo(root / "train" / WNIDS[0] / "also.Png")
    (root / "train" / WNIDS[0] / "list.txt").write_text("")
    for wnid in WNIDS:
        photo(root / "val" / wnid / "a.JPEG")
    data = load_data("imagenet100-cwd", root)
    assert data.name == load_data("imagenet100", root).name == "imagenet100-cwd"
    assert data.class_ids == WNIDS
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 2, 2]
    names = [path.name for path in data.train.paths]
    assert names[:3] == ["also.Png", "n00000003_002.JPEG", "n00000003_010.JPEG"]
    assert [path.parent.name for path in data.test.paths] == list(WNIDS)
    assert (data.preparation.resize, data.preparation.size, data.preparation.view.crop) == (256, 224, "resized")
    assert DATA_SETS["imagenet"].present(root)


def pairs(root: Path) -> None:
    lines = [f"{stem}.JPEG {wnid}" for stem, wnid in zip(STEMS, TRUTH, strict=True)]
    (root / "val_ground_truth.txt").write_text("\n".join(reversed(lines)) + "\n")


def kaggle(root: Path) -> None:
    rows = [f"{stem},{wnid} 1 2 3 4 {wnid} 5 6 7 8 " for stem, wnid in zip(STEMS, TRUTH, strict=True)]
    (root / "LOC_val_solution.csv").write_text("\n".join(["ImageId,PredictionString", *rows]) + "\n")


def kaggles_layout(root: Path) -> None:
    kaggle(root)
    for side in ("train", "val"):
        inner = root / "ILSVRC" / "Data" / "CLS-LOC" / side
        inner.parent.mkdir(parents=True, exist_ok=True)
        (root / side).rename(inner)


def per_image(root: Path) -> None:
    (root / "imagenet_2012_validation_synset_labels.txt").write_text("\n".join(TRUTH))


def per_image_beside_the_devkit(root: Path) -> None:
    devkit = root / "ILSVRC2012_devkit_t12" / "data"
    devkit.mkdir(parents=True)
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("490\n361\n171\n490\n2\n")
    (root / "val" / "synsets.txt").write_text("\n".join(TRUTH))


@pytest.mark.parametrize("write", [pairs, kaggle, kaggles_layout, per_image, per_image_beside_the_devkit])
def test_validation_images_in_one_folder(flat: Path, write: Callable[[Path], None]) -> None:
    write(flat)
    data = load_data("imagenet", flat)
    assert data.class_ids == data.class_names == WNIDS
    assert [path.stem for path in data.test.paths] == [STEMS[i] for i in (1, 2, 0, 3)]
    assert data.test.labels.tolist() == [0, 1, 2, 2]


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
    assert f"no image files in {root / 'val'}: 2 (n00000003, n00000002)" in fails(root)
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
def test_what_is_ambiguous_is_not_guessed(flat: Path, content: str, reason: str) -> None:
    (flat / "val_ground_truth.txt").write_text(content)
    message = fails(flat)
    assert reason in message
    assert "LOC_val_solution.csv" in message


def test_errors_about_a_ground_truth_that_does_not_fit(flat: Path) -> None:
    pairs(flat)
    photo(flat / "val" / "ILSVRC2012_val_00000006.JPEG")
    assert "1 (ILSVRC2012_val_00000006.JPEG)" in fails(flat)
    (flat / "val" / "ILSVRC2012_val_00000006.JPEG").unlink()
    (flat / "val" / f"{STEMS[2]}.JPEG").unlink()
    assert "1 (n00000001)" in fails(flat)


def test_a_truncated_photo_of_any_class_is_found_at_once(root: Path) -> None:
    for wnid in WNIDS:
        photo(root / "val" / wnid / "ILSVRC2012_val_00000001.JPEG")
    load_data("imagenet100-cwd", root)
    damaged = root / "train" / WNIDS[-1] / f"{WNIDS[-1]}_010.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:-4])
    image_sizes.cache_clear()  # which the paths alone decide
    with pytest.raises(UserError, match=f"{damaged.name} cannot be read"):
        load_data("imagenet100-cwd", root)
