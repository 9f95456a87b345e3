"""What a run returns: its record, and a model that names the classes of images."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from phasezero import RunResult, UserError, run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData

Make = Callable[..., RunConfig]


def accuracy(result: RunResult, images: Any, names: Sequence[str], **choice: str) -> float:
    return 100 * float(
        np.mean([one == name for one, name in zip(result.predict(images, **choice), names, strict=True)])
    )


@pytest.mark.parametrize("method", ["lucir", "icarl", "bic"])
def test_predictions_give_the_accuracies_of_the_last_phase(
    method: str, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """Also those of a run that was finished before; nothing is asked for but images."""
    config = toy_config(f"{method}/glyphs/b50s10", training__first__epochs=6, protocol__phase_sizes=[4, 2])
    run(config, data=toy_data, checkpoint=tmp_path / "checkpoint")
    result = run(config, data=toy_data, checkpoint=tmp_path / "checkpoint")
    seen = np.isin(toy_data.test.labels, list(result.trainer.stream.order))
    images, names = np.array(toy_data.test.images)[seen], [f"bar {label}" for label in toy_data.test.labels[seen]]
    assert sorted(result.class_names) == sorted(set(names))
    measured = {name: one for name, one in result.record["phases"][-1]["accuracy"].items() if one is not None}
    found = {classifier: accuracy(result, images, names, classifier=classifier) for classifier in measured}
    assert found == pytest.approx(measured)
    own = "nearest_mean" if method == "icarl" else "head"
    assert result.predict(images) == result.predict(images, classifier=own)
    assert len(set(found.values())) > 1  # so that it matters which classifier is asked
    assert result.predict(images[::-1]) == result.predict(images)[::-1]
    assert result.predict(images[:0]) == []


def test_without_exemplars_icarl_answers_by_its_head(toy_config: Make, toy_data: ImageData) -> None:
    config = toy_config("icarl/glyphs/b50s10", protocol__phase_sizes=[4], protocol__memory="per_class:0")
    result, images = run(config, data=toy_data), np.array(toy_data.test.images)
    assert result.predict(images) == result.predict(images, classifier="head")
    with pytest.raises(UserError, match=r"no classifier 'nearest_mean'; available: head"):
        result.predict(images, classifier="nearest_mean")


def test_wrong_images_are_refused(toy_config: Make, toy_data: ImageData) -> None:
    result = run(toy_config(protocol__phase_sizes=[2], training__first__epochs=1), data=toy_data)
    images = np.array(toy_data.test.images)
    for wrong, got in (
        (images[..., 0], r"uint8 \(48, 16, 16\)"),
        (images[0], r"uint8 \(16, 16, 1\)"),
        (images[:, :8], r"uint8 \(48, 8, 16, 1\)"),
        (images / 255, r"float64 \(48, 16, 16, 1\)"),
        ([Path("a.png")], "list"),
    ):
        with pytest.raises(UserError, match=rf"an array of uint8 images of shape \(16, 16, 1\) is expected, got {got}"):
            result.predict(wrong)


@pytest.mark.parametrize("photos", ["files", "resident"])
def test_files_are_named_for_a_run_on_photos(photos: str, toy_config: Make, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for (brightness, name), side, number in itertools.product(enumerate("abcd"), ("train", "val"), range(4)):
        (tmp_path / side / name).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 60, (40 + number, 50, 3), dtype=np.uint8) + np.uint8(60 * brightness)
        Image.fromarray(pixels).save(tmp_path / side / name / f"{number}.png")
    protocol = {"data": f"folder:{tmp_path}", "phase_sizes": [2, 1], "class_order": [3, 0, 2]}
    settings = {"engine.photos": photos, **{f"protocol.{key}": value for key, value in protocol.items()}}
    result = run(toy_config("lucir/glyphs/b50s10").override(settings))
    last = result.record["phases"][-1]
    assert result.record["environment"]["photos"] == photos
    assert result.class_names == ["d", "a", "c"]
    files = sorted(path for path in (tmp_path / "val").rglob("*.png") if path.parent.name != "b")
    assert len(files) == last["test_images"]
    names = [file.parent.name for file in files]
    assert accuracy(result, files, names) == pytest.approx(last["accuracy"]["head"])
    assert result.predict([str(files[0])]) == result.predict(files[:1])
    assert result.predict([]) == []
    with pytest.raises(UserError, match=r"gone\.png"):
        result.predict([tmp_path / "gone.png"])
    for wrong in (np.zeros((1, 40, 50, 3), np.uint8), "a.png", tmp_path / "a.png"):
        with pytest.raises(UserError, match="a list of image files is expected"):
            result.predict(wrong)  # type: ignore[arg-type]
