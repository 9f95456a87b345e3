"""Figures of runs: written in each format, with their words in them, leaving nothing behind in matplotlib."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.figure import Figure

from phasezero.errors import UserError
from phasezero.identity import group_by_identity
from phasezero.records.run import Record
from phasezero.report.curves import draw_curves
from phasezero.report.looks import method_look
from phasezero.report.panels import Line, draw_line
from samples import make_record

RUNS = [*(make_record(seed=seed) for seed in range(3)), make_record(initial=["cwd:0.5"])]
RUNS += [make_record(sizes=(100,), method="joint")]


def draw(records: list[Record], path: Path, **options: Any) -> str:
    """Draw the curves and return the file's text."""
    draw_curves(group_by_identity(records), path, **options)
    return path.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_each_format_is_written_the_same_twice(tmp_path: Path, suffix: str, start: bytes) -> None:
    path, before = tmp_path / "figures" / f"curves{suffix}", dict(matplotlib.rcParams)
    text = draw(RUNS, path)
    first = path.read_bytes()
    assert first.startswith(start)
    draw(RUNS, path)
    assert path.read_bytes() == first
    assert dict(matplotlib.rcParams) == before
    words = ["Number of classes seen", "Accuracy on all seen classes (%)"]
    words += ["lucir: 71.00 ± 1.00", ">cifar100/b50s10<"]  # what most names share
    assert suffix != ".svg" or all(word in text for word in words)


@pytest.mark.parametrize("name", ["_hidden", "a$b", r"$\frac{$", "$x$ and $y$", "under_score^2", "%{}\\"])
def test_any_name_is_drawn_as_it_is(tmp_path: Path, name: str) -> None:
    many = [make_record(sizes=(50, *[2] * 25), drop=1, name=f"run {i}") for i in range(4)]  # the legend goes below
    text = draw([make_record(name=name), *many], tmp_path / "curves.svg")
    assert all(f"{one}: " in text for one in (name, "run 0", "run 3"))


def test_a_long_name_leaves_room_for_the_axes(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    name = "lucir/glyphs/b50s10," + ",".join(f"method.option_{place}=0.123456" for place in range(9))
    text = draw([make_record(name=name), make_record(name=name, seed=1)], tmp_path / "curves.svg")
    assert [str(one.message) for one in recwarn] == []  # matplotlib's that the axes collapsed
    assert all(f"method.option_{place}=0.123456" in text for place in range(9))


def test_nearest_mean_and_what_cannot_be_drawn(tmp_path: Path) -> None:
    assert ": 69.00" in draw([make_record(nearest_mean=True)], tmp_path / "n.svg", classifier="nearest_mean")
    with pytest.raises(UserError, match="nearest_mean"):
        draw([make_record()], tmp_path / "none.png", classifier="nearest_mean")
    with pytest.raises(UserError, match=r"\.png, \.svg, \.pdf"):
        draw([make_record()], tmp_path / "curves.doc")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n-caption.txt", "n-figure.tex", "n.svg"]


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
    draw_line(axes, Line("LUCIR", list(enumerate(values)), method_look("lucir")))
    assert len(axes.collections) == len(kinds)
    assert all(map(isinstance, axes.collections, kinds))


def test_pyplot_is_never_imported() -> None:
    code = "import sys, phasezero.report.curves; sys.exit('matplotlib.pyplot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
