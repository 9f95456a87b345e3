"""Analyses of trained runs: against numbers computed slowly from the checkpoint, by schema, by where a model is."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from phasezero import run, write_record
from phasezero.analysis import measure
from phasezero.analysis.information import FLOOR
from phasezero.analysis.measure import analyse_model, analyse_run
from phasezero.analysis.record import (
    Analysis,
    analysis_name,
    find_analyses,
    group_analyses,
    later_classes,
    read_analysis,
    schema,
    shared_classes,
    write_analysis,
)
from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit
from phasezero.engine.persist import phase_checkpoint
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.nets import NETWORKS
from phasezero.presets import preset
from phasezero.results.record import read_record
from phasezero.session import CHECKPOINT

Make = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, toy_data: ImageData) -> Path:
    """LUCIR on 4 + 2 + 2 classes, every phase's state kept."""
    folder = tmp_path_factory.mktemp("run")
    short = {"epochs": 2, "milestones": [1], "batch_size": 16}
    settings = {
        f"training.{when}.{key}": value for when in ("first", "later") for key, value in short.items()
    }
    sizes = {"protocol.phase_sizes": [4, 2, 2], "protocol.memory": "per_class:3"}
    config = preset("lucir/glyphs/b50s10").override({**settings, **sizes})
    record = run(config, data=toy_data, checkpoint=folder / CHECKPOINT, keep_phases=True)
    write_record(folder / "record.json", record)
    return folder


def features_by_hand(folder: Path, phase: int, data: ImageData, split: ImageSplit) -> Iterator[np.ndarray]:
    """Each class's features, image by image, through a network filled from the file."""
    state = load_file(phase_checkpoint(folder / CHECKPOINT, phase))
    network = NETWORKS["resnet-glyphs"](channels=1, last_relu=False).eval()
    prefix = "model.backbone."
    network.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)})
    order = json.loads((folder / "record.json").read_text())["data"]["class_order_indices"]
    for index in order:
        rows = []
        for image, label in zip(split.images, split.labels, strict=True):
            if label == index:
                pixels = (np.asarray(image, np.float64) / 255 - data.preparation.mean) / data.preparation.std
                with torch.no_grad():
                    rows.append(network(torch.from_numpy(pixels).float().permute(2, 0, 1)[None]).pooled[0])
        yield torch.stack(rows).double().numpy()


@pytest.mark.parametrize(("phase", "seen"), [(0, 4), (2, 8)])
def test_against_features_by_hand(trained: Path, toy_data: ImageData, phase: int, seen: int) -> None:
    found = analyse_run(trained, phase=phase, data=toy_data, ks=[1, 3, 7], floor=1e-8)
    assert (found["phase"], found["seen_classes"], found["k"]) == (phase, seen, [1, 3, 7])
    assert found["phase_sizes"] == [4, 2, 2][: phase + 1]
    for split, images in (("train", toy_data.train), ("test", toy_data.test)):
        everything = list(features_by_hand(trained, phase, toy_data, images))[:seen]
        assert found[split]["images"] == [len(features) for features in everything]  # type: ignore[literal-required]
        within = np.mean([features.var(0, ddof=1) for features in everything], 0)
        assert found[split]["constant_features"] == sum(within < within.mean() / 10_000)  # type: ignore[literal-required]
        for form in ("raw", "unit"):
            by_class = [
                features / np.linalg.norm(features, axis=1, keepdims=True) if form == "unit" else features
                for features in everything
            ]
            measured = found[split][form]  # type: ignore[literal-required]
            logs = []
            for place, features in enumerate(by_class):
                eigenvalues = np.linalg.eigvalsh(np.cov(features.T))[::-1]
                expected = [eigenvalues[:k].sum() / eigenvalues.sum() for k in (1, 3, 7)]
                np.testing.assert_allclose(measured["alpha"][place], expected, atol=2e-5)
                np.testing.assert_allclose(measured["variance"][place], eigenvalues.sum(), rtol=1e-4)
                logs.append(np.log(np.maximum(eigenvalues, 1e-8)).sum())
                assert measured["information"]["unavoidable"][place] == 64 - (len(features) - 1)
            np.testing.assert_allclose(measured["alpha_mean"], np.mean(measured["alpha"], 0), atol=2e-6)
            # Two roundings of float32 features move an eigenvalue near the floor, hence the tolerance.
            np.testing.assert_allclose(measured["information"]["mean"], np.mean(logs), rtol=1e-3)
            assert measured["information"]["floor"] == 1e-8


def test_future_classes_come_after_the_seen(trained: Path, toy_data: ImageData) -> None:
    seen = analyse_run(trained, phase=0, data=toy_data)
    found = analyse_run(trained, phase=0, data=toy_data, future=True)
    assert len(found["classes"]) == 8
    assert found["classes"][:4] == seen["classes"]
    for form in ("raw", "unit"):
        one, other = seen["train"][form], found["train"][form]  # type: ignore[literal-required]
        np.testing.assert_allclose(other["alpha"][:4], one["alpha"], atol=1e-5)
        np.testing.assert_allclose(other["alpha_mean"], one["alpha_mean"], atol=1e-5)
        assert other["overlap"]["nearest_mean_error"] == one["overlap"]["nearest_mean_error"]
        assert one["overlap"]["seen_as_future"] is None
        assert other["overlap"]["seen_as_future"] is not None
    last = analyse_run(trained, data=toy_data)
    assert last["phase"] == 2
    assert later_classes(last) == last["classes"][4:]
    assert shared_classes([last, found]) == found["classes"][:4]  # looked at is not seen
    assert [group.label for group in group_analyses([last, found])] == [
        f"{found['name']} (phase={phase})" for phase in (0, 2)
    ]


def test_what_is_told_of_the_seen_and_by_training_means(
    trained: Path, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up features: seen classes do not vary in the first, those to come do; test images lie elsewhere."""
    rng, seen = np.random.default_rng(5), 4
    scales = [np.array([1e-6, 1, 2])] * seen + [np.array([9.0, 8, 7])] * 4
    centres = 3 * rng.normal(size=(8, 3))
    made = {
        split: [
            shift + centre + scale * rng.normal(size=(12, 3))
            for centre, scale in zip(centres, scales, strict=True)
        ]
        for split, shift in (("train", 0.0), ("test", 2.0))
    }
    monkeypatch.setattr(
        measure,
        "_features",
        lambda _, split, classes: [torch.from_numpy(one) for one in made[split][:classes]],
    )
    record = read_record(trained)
    trainer = Trainer(RunConfig.from_dict(record["config"]), toy_data)
    trainer.phases_done = 1
    found = analyse_model(trainer, record, ks=[1], future=True)
    means = [features.mean(0) for features in made["train"][:seen]]
    for split in ("train", "test"):
        features = made[split]
        assert found[split]["constant_features"] == 1  # type: ignore[literal-required]
        measured = found[split]["raw"]  # type: ignore[literal-required]
        spectra = [np.sort(np.linalg.eigvalsh(np.cov(one.T)))[::-1] for one in features[:seen]]
        np.testing.assert_allclose(measured["spectrum_mean"], np.mean(spectra, 0), rtol=1e-4)
        logs = [np.log(np.maximum(one, FLOOR)).sum() for one in spectra]
        np.testing.assert_allclose(measured["information"]["mean"], np.mean(logs), rtol=1e-4)
        wrong = [
            place != np.argmin([np.linalg.norm(row - mean) for mean in means])
            for place in range(seen)
            for row in features[place]
        ]
        assert measured["overlap"]["nearest_mean_error"] == pytest.approx(100 * np.mean(wrong))
        own = np.array([one.mean(0) for one in features[:seen]])
        within = np.mean([np.trace(np.cov(one.T)) for one in features[:seen]])
        assert measured["overlap"]["scatter_ratio"] == pytest.approx(within / np.trace(np.cov(own.T)))


def test_schema_and_file(trained: Path, toy_data: ImageData, tmp_path: Path) -> None:
    found = analyse_run(trained, data=toy_data)
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    validator.validate(found)
    path = tmp_path / "deep" / analysis_name(2)
    write_analysis(path, found)
    assert read_analysis(path) == found
    assert find_analyses([tmp_path]) == find_analyses([path, tmp_path]) == [path.resolve()]

    for damage, message in (
        ({"format": "phasezero-analysis-2"}, "phasezero-analysis-2"),
        ({"k": None}, "k should be array"),
        ({"train": {"images": [], "raw": {}, "unit": {}}}, "missing key 'train.raw.alpha_mean'"),
        ({"data": {}}, "missing key 'data.name'"),
        ({"config": {}}, "missing key 'config.initial'"),
        ({"config": {**found["config"], "initial": [{"name": "cwd"}]}}, r"'config.initial\[0\].weight'"),
        ({"phase": -1}, "phase should be at least 0"),
    ):
        changed: dict[str, Any] = {**copy.deepcopy(found), **damage}
        path.write_text(json.dumps(changed))
        with pytest.raises(UserError, match=message):
            read_analysis(path)
        assert not validator.is_valid(changed)
    with pytest.raises(UserError, match="no analysis-phaseN"):
        find_analyses([trained])


SHORTENED = [
    "class_names",
    "phase_sizes",
    "train.images",
    "train.raw.alpha_mean",
    "train.raw.alpha",
    "test.unit.alpha.0",
    "test.unit.variance",
    "test.raw.information.by_class",
    "train.unit.information.floored",
    "train.unit.information.unavoidable",
    "points.test",
    "points.train.0.0",
]


@pytest.mark.parametrize("place", SHORTENED)
def test_a_list_that_lost_an_entry_is_named(
    make_analysis: Callable[..., Analysis], tmp_path: Path, place: str
) -> None:
    clouds = [[[1.0, 0.0, 0.0]] for _ in range(4)]
    found: Any = copy.deepcopy({**make_analysis([0.2, 0.3, 0.4, 0.5], phase_sizes=[3, 1])})
    found["points"] = {"train": clouds, "test": clouds}
    path = tmp_path / analysis_name(1)
    path.write_text(json.dumps(found))
    read_analysis(path)
    found = json.loads(path.read_text())
    shortened: Any = found
    for key in place.split("."):
        shortened = shortened[int(key) if key.isdecimal() else key]
    length = len(shortened)
    shortened.pop()
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=f"has {length - 1} entries and should have {length}") as caught:
        read_analysis(path)
    assert place.partition(".")[0] in str(caught.value)


def test_where_a_models_state_is_found(
    trained: Path, toy_data: ImageData, toy_config: Make, tmp_path: Path
) -> None:
    config = toy_config("lucir/glyphs/b50s10")
    first, again, store = tmp_path / "first", tmp_path / "again", tmp_path / "store"
    for folder in (first, again):
        record = run(config, data=toy_data, checkpoint=folder / CHECKPOINT, store=store)
        write_record(folder / "record.json", record)
    assert not phase_checkpoint(first / CHECKPOINT, 0).exists()
    with pytest.raises(UserError, match="--keep-phases"):
        analyse_run(first, phase=0, data=toy_data)
    with pytest.raises(UserError, match="phases 0 to 2"):
        analyse_run(first, phase=3, data=toy_data)
    stored = analyse_run(first, phase=0, data=toy_data, store=store)
    assert stored["seen_classes"] == 4
    assert without_place(stored) == without_place(analyse_run(again, phase=0, data=toy_data, store=store))
    # Of phase 0 alone, taken out of the store: the checkpoint is there all the same.
    alone = replace(config, protocol=replace(config.protocol, phase_sizes=(4,)))
    folder = tmp_path / "alone"
    record = run(alone, data=toy_data, checkpoint=folder / CHECKPOINT, store=store, keep_phases=True)
    write_record(folder / "record.json", record)
    assert record["timing"]["reused_phase_zero"]
    assert phase_checkpoint(folder / CHECKPOINT, 0).exists()
    assert analyse_run(folder, data=toy_data)["train"] == stored["train"]


def test_a_stored_phase_0_is_found_on_another_machine(
    toy_data: ImageData, toy_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, store = tmp_path / "run", tmp_path / "store"
    with monkeypatch.context() as there:
        there.setattr("phasezero.engine.device.processor_name", lambda: "a processor elsewhere")
        there.setattr(torch, "__version__", "2.11.7")
        record = run(
            toy_config("lucir/glyphs/b50s10"), data=toy_data, checkpoint=folder / CHECKPOINT, store=store
        )
    write_record(folder / "record.json", record)
    assert record["environment"]["device_name"] == "a processor elsewhere"
    assert analyse_run(folder, phase=0, data=toy_data, store=store)["seen_classes"] == 4


def without_place(analysis: Analysis) -> dict[str, Any]:
    return {key: value for key, value in analysis.items() if key != "environment"}


def test_a_state_of_another_network_is_refused(trained: Path, toy_data: ImageData, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    checkpoint = phase_checkpoint(tmp_path / "run" / CHECKPOINT, 2)
    with safe_open(checkpoint, "pt") as file:
        metadata = file.metadata()
    save_file({**load_file(checkpoint), "model.backbone.extra": torch.zeros(1)}, checkpoint, metadata)
    with pytest.raises(UserError, match="not of this version's 'resnet-glyphs'"):
        analyse_run(tmp_path / "run", data=toy_data)


def test_other_classes_are_refused(trained: Path, toy_data: ImageData) -> None:
    renamed = replace(toy_data, class_ids=tuple(f"other {place}" for place in range(8)))
    with pytest.raises(UserError, match="has other classes now"):
        analyse_run(trained, data=renamed)


def test_other_images_are_refused(trained: Path, toy_data: ImageData) -> None:
    assert isinstance(toy_data.train.images, np.ndarray)
    turned = replace(toy_data, train=replace(toy_data.train, images=255 - toy_data.train.images))
    with pytest.raises(UserError, match="other images"):
        analyse_run(trained, data=turned)


def test_a_class_with_one_image_is_named(trained: Path, toy_data: ImageData) -> None:
    record = read_record(trained)
    trainer = Trainer(RunConfig.from_dict(record["config"]), toy_data)
    trainer.phases_done = 1
    trainer.method.grow(trainer.model, trainer.stream.phases[0], torch.Generator())
    trainer.test_by_class[1] = trainer.test_by_class[1][:1]
    name = record["data"]["class_names"][1]
    with pytest.raises(UserError, match=f"class '{name}' has 1 test image"):
        analyse_model(trainer, record)
