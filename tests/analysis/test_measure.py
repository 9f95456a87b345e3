"""Analyses of trained runs: slow references computed from the checkpoint, the schema, and where models are found."""

from __future__ import annotations

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
from safetensors.torch import load_file

from phasezero import write_record
from phasezero.analysis import measure
from phasezero.analysis.information import FLOOR
from phasezero.analysis.measure import analyse_model, analyse_run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit
from phasezero.engine.checkpoint import FORMAT, phase_checkpoint
from phasezero.engine.sealed import read_sealed, write_sealed
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.identity import group_analyses
from phasezero.nets import NETWORKS
from phasezero.presets import preset
from phasezero.records import analysis as records
from phasezero.records.analysis import analysis_name, find_analyses, read_analysis
from phasezero.records.jsonfile import load_schema
from phasezero.records.run import Record, read_record
from phasezero.runs.session import CHECKPOINT
from samples import make_analysis, train

Make = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, toy_data: ImageData) -> Path:
    """LUCIR on 4 + 2 + 2 classes, every phase's state kept."""
    folder = tmp_path_factory.mktemp("run")
    settings = {f"training.{when}.batch_size": 16 for when in ("first", "later")}
    settings |= {"protocol.phase_sizes": [4, 2, 2], "protocol.memory": "per_class:3"}
    keep(preset("lucir/glyphs/b50s10,epochs=2").override(settings), folder, data=toy_data, keep_phases=True)
    return folder


def keep(config: RunConfig, folder: Path, **options: Any) -> Record:
    """Train, and leave the record and the checkpoint in a folder."""
    record = train(config, checkpoint=folder / CHECKPOINT, **options)
    write_record(folder / "record.json", record)
    return record


def after_phase_0(folder: Path, data: ImageData) -> tuple[Record, Trainer]:
    record = read_record(folder)
    trainer = Trainer(RunConfig.from_dict(record["config"]), data)
    trainer.phases_done = 1
    return record, trainer


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
    found: Any = analyse_run(trained, phase=phase, data=toy_data, ks=[1, 3, 7], floor=1e-8)
    assert (found["phase"], found["seen_classes"], found["k"]) == (phase, seen, [1, 3, 7])
    assert found["phase_sizes"] == [4, 2, 2][: phase + 1]
    for split, images in (("train", toy_data.train), ("test", toy_data.test)):
        raw = list(features_by_hand(trained, phase, toy_data, images))[:seen]
        assert found[split]["images"] == [len(features) for features in raw]
        within = np.mean([features.var(0, ddof=1) for features in raw], 0)
        assert found[split]["constant_features"] == sum(within < within.mean() / 10_000)
        unit = [features / np.linalg.norm(features, axis=1, keepdims=True) for features in raw]
        for form, by_class in (("raw", raw), ("unit", unit)):
            measured, logs = found[split][form], []
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
    seen, found = (analyse_run(trained, phase=0, data=toy_data, future=future) for future in (False, True))
    assert (len(found["classes"]), found["classes"][:4]) == (8, seen["classes"])
    one, other = seen["train"]["raw"], found["train"]["raw"]
    np.testing.assert_allclose(other["alpha"][:4], one["alpha"], atol=1e-5)
    np.testing.assert_allclose(other["alpha_mean"], one["alpha_mean"], atol=1e-5)
    assert other["overlap"]["nearest_mean_error"] == one["overlap"]["nearest_mean_error"]
    assert one["overlap"]["seen_as_future"] is None
    assert other["overlap"]["seen_as_future"] is not None
    last = analyse_run(trained, data=toy_data)
    assert last["phase"] == 2
    assert records.shared_classes([last], later=True) == last["classes"][4:]
    assert records.shared_classes([last, found]) == found["classes"][:4]  # measured, but not trained on
    assert [group.label[-9:] for group in group_analyses([last, found])] == ["(phase=0)", "(phase=2)"]


def test_what_is_told_of_the_seen_and_by_training_means(
    trained: Path, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up features: seen classes do not vary in the first, those to come do; test images lie elsewhere."""
    rng, seen = np.random.default_rng(5), 4
    scales = [np.array([1e-6, 1, 2])] * seen + [np.array([9.0, 8, 7])] * 4
    centres = 3 * rng.normal(size=(8, 3))
    made = {
        split: [
            shift + centre + scale * rng.normal(size=(12, 3)) for centre, scale in zip(centres, scales, strict=True)
        ]
        for split, shift in (("train", 0.0), ("test", 2.0))
    }
    monkeypatch.setattr(measure, "_features", lambda _, split, classes: list(map(torch.from_numpy, made[split])))
    record, trainer = after_phase_0(trained, toy_data)
    found: Any = analyse_model(trainer, record, ks=[1], future=True)
    means = [features.mean(0) for features in made["train"][:seen]]
    for split in ("train", "test"):
        features, measured = made[split], found[split]["raw"]
        assert found[split]["constant_features"] == 1
        spectra = [np.sort(np.linalg.eigvalsh(np.cov(one.T)))[::-1] for one in features[:seen]]
        np.testing.assert_allclose(measured["spectrum_mean"], np.mean(spectra, 0), rtol=1e-4)
        logs = [np.log(np.maximum(one, FLOOR)).sum() for one in spectra]
        np.testing.assert_allclose(measured["information"]["mean"], np.mean(logs), rtol=1e-4)
        nearest = [
            [np.argmin([np.linalg.norm(row - mean) for mean in means]) for row in one] for one in features[:seen]
        ]
        wrong = [place != found_at for place, some in enumerate(nearest) for found_at in some]
        assert measured["overlap"]["nearest_mean_error"] == pytest.approx(100 * np.mean(wrong))
        own = np.array([one.mean(0) for one in features[:seen]])
        within = np.mean([np.trace(np.cov(one.T)) for one in features[:seen]])
        assert measured["overlap"]["scatter_ratio"] == pytest.approx(within / np.trace(np.cov(own.T)))


def test_schema_and_file(trained: Path, toy_data: ImageData, tmp_path: Path) -> None:
    found = analyse_run(trained, data=toy_data)
    jsonschema.Draft202012Validator.check_schema(load_schema("analysis"))
    validator = jsonschema.Draft202012Validator(load_schema("analysis"))
    validator.validate(found)
    path = tmp_path / "deep" / analysis_name(2)
    records.write_analysis(path, found)
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
        changed: dict[str, Any] = {**found, **damage}
        path.write_text(json.dumps(changed))
        with pytest.raises(UserError, match=message):
            read_analysis(path)
        assert not validator.is_valid(changed)
    with pytest.raises(UserError, match="no analysis-phaseN"):
        find_analyses([trained])


LISTS = (
    "class_names phase_sizes train.images train.raw.alpha_mean train.raw.alpha test.unit.alpha.0 test.unit.variance "
    "test.raw.information.by_class train.unit.information.floored train.unit.information.unavoidable points.test "
    "points.train.0.0"
)


@pytest.mark.parametrize("place", LISTS.split())
def test_a_list_that_lost_an_entry_is_named(tmp_path: Path, place: str) -> None:
    clouds = [[[1.0, 0.0, 0.0]]] * 4
    made = {**make_analysis([0.2, 0.3, 0.4, 0.5], phase_sizes=[3, 1]), "points": {"train": clouds, "test": clouds}}
    path = tmp_path / analysis_name(1)
    path.write_text(json.dumps(made))
    shortened: Any = (found := read_analysis(path))
    for key in place.split("."):
        shortened = shortened[int(key) if key.isdecimal() else key]
    shortened.pop()
    path.write_text(json.dumps(found))
    told = f"{place.partition('.')[0]}.* has {len(shortened)} entries and should have {len(shortened) + 1}"
    with pytest.raises(UserError, match=told):
        read_analysis(path)


def test_where_a_models_state_is_found(toy_data: ImageData, toy_config: Make, tmp_path: Path) -> None:
    config = toy_config("lucir/glyphs/b50s10")
    first, again, store = tmp_path / "first", tmp_path / "again", tmp_path / "store"
    for folder in (first, again):
        keep(config, folder, data=toy_data, store=store)
    assert not phase_checkpoint(first / CHECKPOINT, 0).exists()
    for phase, why in ((0, "--keep-phases"), (3, "phases 0 to 2")):
        with pytest.raises(UserError, match=why):
            analyse_run(first, phase=phase, data=toy_data)
    stored, same = (analyse_run(folder, phase=0, data=toy_data, store=store) for folder in (first, again))
    assert stored["seen_classes"] == 4
    assert {**stored, "environment": None} == {**same, "environment": None}
    # Of phase 0 alone, taken out of the store: the checkpoint is there all the same.
    alone = replace(config, protocol=replace(config.protocol, phase_sizes=(4,)))
    record = keep(alone, folder := tmp_path / "alone", data=toy_data, store=store, keep_phases=True)
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
        record = keep(toy_config("lucir/glyphs/b50s10"), folder, data=toy_data, store=store)
    assert record["environment"]["device_name"] == "a processor elsewhere"
    assert analyse_run(folder, phase=0, data=toy_data, store=store)["seen_classes"] == 4


def test_what_does_not_belong_to_the_run_is_refused(trained: Path, toy_data: ImageData, tmp_path: Path) -> None:
    turned = replace(toy_data, train=replace(toy_data.train, images=255 - toy_data.train.images))
    with pytest.raises(UserError, match="other images"):
        analyse_run(trained, data=turned)
    renamed = replace(toy_data, class_ids=tuple(f"other {place}" for place in range(8)))
    with pytest.raises(UserError, match="has other classes now"):
        analyse_run(trained, data=renamed)
    shutil.copytree(trained, tmp_path / "run")
    checkpoint = phase_checkpoint(tmp_path / "run" / CHECKPOINT, 2)
    facts, tensors = read_sealed(checkpoint, FORMAT, "checkpoint")
    write_sealed(checkpoint, FORMAT, facts, {**tensors, "model.backbone.extra": torch.zeros(1)})
    with pytest.raises(UserError, match="does not fit this version's 'resnet-glyphs'"):
        analyse_run(tmp_path / "run", data=toy_data)


def test_a_class_with_one_image_is_named(trained: Path, toy_data: ImageData) -> None:
    record, trainer = after_phase_0(trained, toy_data)
    trainer.method.grow(trainer.model, trainer.stream.phases[0], torch.Generator())
    trainer.test_by_class[1] = trainer.test_by_class[1][:1]
    name = record["data"]["class_names"][1]
    with pytest.raises(UserError, match=f"class '{name}' has 1 test image"):
        analyse_model(trainer, record)
