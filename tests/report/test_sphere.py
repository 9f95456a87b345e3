"""The sphere: rotations that mirror nothing, and the picture from numbers alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from phasezero import write_record
from phasezero.analysis.measure import analyse_run
from phasezero.data.images import ImageData
from phasezero.errors import UserError
from phasezero.presets import preset
from phasezero.report.looks import COLOURS
from phasezero.report.sphere import draw_sphere, facing
from phasezero.runs.session import CHECKPOINT
from samples import MINIMAL, make_analysis, train


def on_sphere(seed: int, count: int, centre: float) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, 3)) * (1, 0.6, 0.2) + centre
    return torch.from_numpy(points / np.linalg.norm(points, axis=1, keepdims=True))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 40), st.sampled_from([0.0, 1.0]))
def test_facing_is_a_rotation(seed: int, count: int, centre: float) -> None:
    points = on_sphere(seed, count, centre)
    turned = facing(points)
    torch.testing.assert_close(turned @ turned.mT, points @ points.mT)  # all angles stay
    volumes = [torch.linalg.det(some[:3]) for some in (points, turned)]
    torch.testing.assert_close(*volumes)  # and so does handedness


def test_facing_puts_the_mean_in_the_middle_and_the_spread_across() -> None:
    turned = facing(on_sphere(3, 200, 1.0))
    right, up, near = turned.mean(0).tolist()
    assert (right, up) == pytest.approx((0, 0), abs=1e-9)
    assert near > 0.5
    assert turned[:, 0].var() > turned[:, 1].var()
    # Without a mean direction, the plane of most points is shown.
    angles = torch.linspace(0, 2 * torch.pi, 9, dtype=torch.float64)[:-1]
    circle = torch.stack([torch.zeros(8), angles.cos(), angles.sin()], 1).double()
    torch.testing.assert_close(facing(circle)[:, 2], torch.zeros(8, dtype=torch.float64))


def test_picture_of_a_trained_model_from_its_analysis(toy_data: ImageData, tmp_path: Path) -> None:
    chosen = {**MINIMAL, "protocol.phase_sizes": [2, 2], "network.name": "alexnet-3d"}
    config = preset("lucir+cwd/glyphs/b50s10").override(chosen)
    record = train(config, data=toy_data, checkpoint=tmp_path / CHECKPOINT, keep_phases=True)
    write_record(tmp_path / "record.json", record)
    analysis = analyse_run(tmp_path, phase=0, data=toy_data, future=True)
    assert analysis["points"] is not None
    assert [len(cloud) for cloud in analysis["points"]["train"]] == [14] * 4
    np.testing.assert_allclose(np.linalg.norm(analysis["points"]["test"][0], axis=1), 1, atol=1e-3)
    draw_sphere({"both phases": analysis}, tmp_path / "all.svg", split="test")
    draw_sphere({"phase 0": analysis}, tmp_path / "seen.svg", future=False)
    for name, classes in (("all.svg", 4), ("seen.svg", 2)):
        text = (tmp_path / name).read_text()
        assert [one for one in analysis["class_names"] if one in text] == analysis["class_names"][:classes]
        caption = (tmp_path / name.replace(".svg", "-caption.txt")).read_text()
        assert "Hollow markers are on the far side of the sphere." in caption


def test_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    one = make_analysis([0.5, 0.4, 0.3])
    one["class_names"] = ["crane", "crane", "lake"]
    clouds = [on_sphere(seed, 5, 0.0).tolist() for seed in range(3)]
    with pytest.raises(UserError, match="64 dimensions"):
        draw_sphere({"flat": one}, tmp_path / "a.png")
    one["points"] = {"train": clouds, "test": clouds}
    draw_sphere({"a": one}, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert text.count(">crane</text>") == 2
    assert all(colour.lower() in text for colour in COLOURS[:3])
