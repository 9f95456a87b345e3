"""Exported files return the learner's probabilities, for every kind of head and for images of any size."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from phasezero import Learner, UserError, export, export_model
from phasezero.data.files import centre_view
from phasezero.export import FORMATS, TOLERANCE, centre_views, check_format

Command = Callable[..., tuple[int, str, str]]

HEADS = {
    "ridge": {"method.width": 32},
    "ncm": {},
    "slda": {},
    "fecam": {},
    "lucir": {},  # a cosine head
    "icarl": {},  # nearest mean of exemplars
    "bic": {},  # a linear head with corrections
    "podnet": {},
    "aanet": {},
}
SIDE = 16
PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "export.md"


def bars(classes: range, each: int = 4, side: tuple[int, int] = (SIDE, SIDE)) -> tuple[np.ndarray, np.ndarray]:
    """Draw a bright bar at a height of its own for each class, under noise."""
    rng, labels = np.random.default_rng(classes.start), np.repeat(list(classes), each)
    images = rng.integers(0, 90, (len(labels), *side, 3))
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 2] += 150
    return images.astype(np.uint8), np.array([f"bar {label}" for label in labels])


def small_learner(name: str, **settings: Any) -> Learner:
    memory = None if name in ("ridge", "ncm", "slda", "fecam") else "per_class:2"
    settings = {"epochs": 1, "training.first.batch_size": 16, "training.later.batch_size": 16, **settings}
    return Learner(name, backbone="none", memory=memory, settings=settings, device="cpu")


def load(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Return what a file computes, loaded as the documentation says."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()
        return lambda images: module(torch.from_numpy(images)).numpy()
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path)
    return lambda images: session.run(None, {"images": images})[0]


def check(learner: Learner, path: Path, images: np.ndarray) -> None:
    found = export_model(learner, path)
    assert found.path == path
    assert 0 <= found.difference <= TOLERANCE
    run = load(path)
    for part in (images, images[:1], images[:5]):
        answers = run(part)
        assert answers.dtype == np.float32
        np.testing.assert_allclose(answers, learner.predict_proba(part), rtol=0, atol=TOLERANCE)


def require(form: str) -> None:
    for name in ("onnx", "onnxscript", "onnxruntime") if form == "onnx" else ():
        pytest.importorskip(name)


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    require(request.param)
    return str(request.param)


@pytest.mark.parametrize("name", HEADS)
def test_a_file_agrees_with_the_learner_before_and_after_adding_classes(name: str, tmp_path: Path) -> None:
    """Of each head a pt2 file before and an ONNX file after classes are added; other tests swap them."""
    images = bars(range(5))[0]
    learner = small_learner(name, **HEADS[name]).fit(*bars(range(3)))
    check(learner, tmp_path / "before.pt2", images)
    learner.add_classes(*bars(range(3, 5)))
    require("onnx")
    check(learner, tmp_path / "after.onnx", images)
    assert learner.predict_proba(images).shape == (20, 5)


def test_photos_of_any_size_are_prepared_in_the_graph(form: str, tmp_path: Path) -> None:
    photos = [bars(range(place, place + 1), 3, side)[0] for place, side in enumerate([(90, 60), (50, 75), (140, 50)])]
    pairs = [(image, place) for place, own in enumerate(photos) for image in own]
    learner = small_learner("ridge", **{"method.width": 0}).fit(pairs)
    export_model(learner, tmp_path / f"model.{form}")
    run = load(tmp_path / f"model.{form}")
    for own in (*photos, photos[0][:1], bars(range(3), side=(20, 31))[0]):
        np.testing.assert_allclose(run(own), learner.predict_proba(own), rtol=0, atol=TOLERANCE)


def test_the_embedded_network(tmp_path: Path) -> None:
    require("onnx")
    learner = Learner(device="cpu", memory="per_class:1").fit(*bars(range(2), 3, (40, 50)))
    path = tmp_path / "model.onnx"
    assert export_model(learner, path).images > 2
    assert path.stat().st_size < 15 << 20  # without the head's sums
    assert learner.model_.head.products.numel()  # which the learner keeps


SIZES = [(300, 200), (200, 300), (224, 224), (100, 37), (640, 257), (500, 200), (1, 5), (131, 128), (700, 512)]


@pytest.mark.parametrize(("resize", "size"), [(64, 56), (73, 64), (36, 32), (40, 40)])
def test_the_view_is_pillows_to_the_last_bit(resize: int, size: int) -> None:
    """Both orders of the passes are among the sizes; Pillow 13 chooses by the shape, older versions do not."""
    rng = np.random.default_rng(0)
    for height, width in SIZES:
        photos = rng.integers(0, 256, (2, height, width, 3), dtype=np.uint8)
        wanted = np.stack([centre_view(Image.fromarray(photo), resize, size) for photo in photos])
        found = centre_views(torch.from_numpy(photos), resize, size).permute(0, 2, 3, 1)
        np.testing.assert_array_equal(found.numpy(), wanted, f"{height} x {width}")


def test_metadata_name_the_classes_and_the_preparation(form: str, tmp_path: Path) -> None:
    learner = small_learner("ncm").fit(*bars(range(3))).add_classes([(image, "ä, 1") for image in bars(range(4, 5))[0]])
    path = export_model(learner, tmp_path / "model", form).path
    if form == "pt2":
        files = {"phasezero": ""}
        with path.open("rb") as file:
            torch.export.load(file, extra_files=files)
        text = files["phasezero"]
    else:
        text = (
            pytest.importorskip("onnxruntime").InferenceSession(path).get_modelmeta().custom_metadata_map["phasezero"]
        )
    facts = json.loads(text)
    assert facts["classes"] == list(learner.classes_) == ["bar 0", "bar 1", "bar 2", "ä, 1"]
    assert facts["input"] == {"name": "images", "type": "uint8", "shape": ["n", SIDE, SIDE, 3]}
    assert facts["preparation"]["in_graph"]
    assert facts["preparation"]["mean"] == pytest.approx(learner._preparation.mean)


def test_grey_arrays_that_are_not_square(tmp_path: Path) -> None:
    images, labels = bars(range(3), side=(8, 20))
    learner = small_learner("ncm").fit(images[..., 0], labels)
    export_model(learner, tmp_path / "model.pt2")
    found = load(tmp_path / "model.pt2")(images[..., :1])
    np.testing.assert_allclose(found, learner.predict_proba(images[..., 0]), rtol=0, atol=TOLERANCE)


class OwnBackbone(torch.nn.Module):
    image_size = 16

    def __init__(self, traceable: bool) -> None:
        super().__init__()
        self.convolution, self.traceable = torch.nn.Conv2d(3, 8, 3, stride=2), traceable

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = self.convolution(images).relu()
        return found if self.traceable or found.sum() > 0 else found + 1


def test_a_module_as_backbone_is_exported_if_it_can_be_traced(tmp_path: Path) -> None:
    images, labels = bars(range(3), side=(30, 20))
    learner = Learner(backbone=OwnBackbone(True), device="cpu").fit(images, labels)
    check(learner, tmp_path / "model.pt2", images)
    learner = Learner(backbone=OwnBackbone(False), device="cpu").fit(images, labels)
    with pytest.raises(UserError, match="cannot trace the backbone"):
        export_model(learner, tmp_path / "other.pt2")
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]


def test_a_model_that_is_too_large_for_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("onnx")
    learner = small_learner("ncm").fit(*bars(range(2)))
    monkeypatch.setattr(export, "LARGEST_ONNX", 1000)
    with pytest.raises(UserError, match=r"at most 2 GiB, and this model has .*; use pt2"):
        export_model(learner, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_a_single_file_is_left_and_the_learner_can_learn_on(tmp_path: Path) -> None:
    learner = small_learner("ridge", **{"method.width": 16}).fit(*bars(range(2)))
    before = {name: tensor.clone() for name, tensor in learner.model_.state_dict().items()}
    export_model(learner, tmp_path / "model.pt2")
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.model_.state_dict().items())
    assert learner.model_.training == learner.model_.head.training
    learner.add_classes(*bars(range(2, 3)))


def test_a_file_that_differs_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = small_learner("ncm").fit(*bars(range(2)))
    (tmp_path / "model.pt2").write_text("the file before")
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(UserError, match="differ from the learner's"):
        export_model(learner, tmp_path / "model.pt2")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["the file before"]


def test_a_wrong_format_a_missing_package_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="call fit first"):
        export_model(Learner(), tmp_path / "model.pt2")
    with pytest.raises(UserError, match="'tflite' is unknown; choose onnx or pt2"):
        check_format("tflite")
    learner = small_learner("ncm").fit(*bars(range(2)))
    with pytest.raises(UserError, match="'' is unknown"):
        export_model(learner, tmp_path / "model")
    (tmp_path / "model.pt2").mkdir()
    with pytest.raises(UserError, match="this is a folder"):
        export_model(learner, tmp_path / "model.pt2")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.setitem(sys.modules, "onnx", sys)
    with pytest.raises(UserError, match=r"onnxscript is missing; pip install 'phasezero\[onnx\]'"):
        check_format("onnx")


def test_the_command(command: Command, tmp_path: Path) -> None:
    require("onnx")
    learner = small_learner("icarl").fit(*bars(range(3)))
    learner.save(tmp_path / "bars")
    code, out, err = command("export", "--model", tmp_path / "bars", "--format", "onnx")
    assert code == 0
    assert err.splitlines()[1:] == []  # the first line is from fit, which says what it chose
    assert "MiB; probabilities differ from the model's by at most" in out
    assert out.count("\n") == 1
    images = bars(range(3))[0]
    np.testing.assert_allclose(load(tmp_path / "bars.onnx")(images), learner.predict_proba(images), atol=TOLERANCE)
    code, _, err = command("export", "--model", tmp_path / "bars", "--format", "tflite")
    assert (code, "'tflite' is unknown" in err) == (2, True)


def test_the_commands_format_is_that_of_the_file(command: Command, tmp_path: Path) -> None:
    small_learner("ncm").fit(*bars(range(2))).save(tmp_path / "bars")
    code, out, _ = command("export", "--model", tmp_path / "bars", "-o", tmp_path / "other" / "a.pt2")
    assert (code, str(tmp_path / "other" / "a.pt2:") in out) == (0, True)
    assert (tmp_path / "other" / "a.pt2").exists()


@pytest.mark.skipif(not PAGE.exists(), reason="no documentation beside these tests")
def test_the_pages_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They export a model, and run it without phasezero."""
    require("onnx")
    monkeypatch.chdir(tmp_path)
    images, labels = bars(range(3), side=(60, 45))
    small_learner("ncm").fit(list(zip(images, labels, strict=True))).save(tmp_path / "animals")
    Image.fromarray(images[0]).save("photo.jpg")
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(programs) == 3
    for program in programs:
        exec(compile(program, str(PAGE), "exec", dont_inherit=True), {"__name__": "__main__"})
