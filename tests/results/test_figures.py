"""Figures: written in each format, with their words in them, leaving nothing behind in matplotlib."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pytest
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.figure import Figure

from phasezero.errors import UserError
from phasezero.results.figures import draw_curves
from phasezero.results.record import Record
from phasezero.results.style import draw_spread

Make = Callable[..., Record]


@pytest.fixture
def runs(make_record: Make) -> list[Record]:
    return [
        *(make_record(seed=seed) for seed in range(3)),
        make_record(initial=["cwd:0.5"]),
        make_record(sizes=(100,), method="joint"),
    ]


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_each_format_is_written_the_same_twice(
    runs: list[Record], tmp_path: Path, suffix: str, start: bytes
) -> None:
    path = tmp_path / "figures" / f"curves{suffix}"
    draw_curves(runs, path)
    first = path.read_bytes()
    assert first.startswith(start)
    assert len(first) > 2000
    draw_curves(runs, path)
    assert path.read_bytes() == first


def test_svg_has_the_words(runs: list[Record], tmp_path: Path) -> None:
    draw_curves(runs, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    for words in (
        "Number of classes seen",
        "Accuracy on all seen classes (%)",
        "lucir/cifar100/b50s10: 71.00 ± 1.00",
        "lucir+cwd/cifar100/b50s10: 70.00",
    ):
        assert words in text


@pytest.mark.parametrize("name", ["_hidden", "a$b", r"$\frac{$", "$x$ and $y$", "under_score^2", "%{}\\"])
def test_any_name_is_drawn_as_it_is(make_record: Make, tmp_path: Path, name: str) -> None:
    draw_curves([make_record(name=name)], tmp_path / "curves.svg")
    assert f"{name}: 70.00" in (tmp_path / "curves.svg").read_text(encoding="utf-8")


def test_many_groups_and_many_phases(make_record: Make, tmp_path: Path) -> None:
    records = [make_record(sizes=(50, *[2] * 25), drop=1, name=f"run {i}") for i in range(9)]
    draw_curves(records, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert all(f"run {i}: " in text for i in range(9))


def test_nearest_mean_and_what_cannot_be_drawn(make_record: Make, tmp_path: Path) -> None:
    draw_curves([make_record(nearest_mean=True)], tmp_path / "n.svg", classifier="nearest_mean")
    assert ": 69.00" in (tmp_path / "n.svg").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="nearest_mean"):
        draw_curves([make_record()], tmp_path / "none.png", classifier="nearest_mean")
    with pytest.raises(UserError, match=r"\.png, \.svg, \.pdf"):
        draw_curves([make_record()], tmp_path / "curves.doc")
    assert not (tmp_path / "none.png").exists()


@pytest.mark.parametrize(
    ("values", "kinds"),
    [
        ([[1.0, 2.0], [3.0, 5.0], [4.0, 4.5]], [PolyCollection]),
        # A band would end in a point, as if that were certain.
        ([[1.0, 2.0], [3.0, 5.0], [4.0]], [LineCollection]),
        ([[1.0, 2.0]], [LineCollection]),
        ([[1.0], [2.0]], []),
    ],
)
def test_a_band_only_where_every_point_has_several_runs(
    values: list[list[float]], kinds: list[type[Collection]]
) -> None:
    axes = Figure().add_subplot()
    draw_spread(axes, range(len(values)), values, 0)
    assert len(axes.collections) == len(kinds)
    assert all(map(isinstance, axes.collections, kinds))


def test_settings_of_matplotlib_are_left_alone(runs: list[Record], tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    draw_curves(runs, tmp_path / "curves.png")
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_never_imported() -> None:
    code = "import sys, phasezero.results.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
