"""Figures of models: which classes are drawn, named and averaged over, and what is said of the paper's statements."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from phasezero.analysis.record import SPLITS, Analysis, analysis_name, read_analysis, write_analysis
from phasezero.config import RunConfig
from phasezero.reproduce import pictures
from phasezero.reproduce.pictures import SPHERES, Folders, analyse, can_be_shown, draw
from phasezero.reproduce.plan import Line, expand
from phasezero.reproduce.targets import TARGETS
from phasezero.reproduce.views import Drawn, Shown, write_texts
from phasezero.results.grid import markdown
from phasezero.results.record import Record
from phasezero.session import CHECKPOINT
from samples import analysis_of

Make = Callable[..., Record]
Alpha = Callable[[Line], Sequence[float]]


@pytest.fixture
def drawn(record_of: Make, tmp_path: Path) -> Callable[..., Drawn]:
    """A figure from analyses that lie beside records: no model is there."""

    def show(name: str, alpha: Alpha, sizes: Mapping[str, Sequence[int]]) -> Drawn:
        target = TARGETS[name]
        lines = []
        for line in expand(target, "glyphs", {}):
            key = line.config.name.partition("/")[2]
            if key not in sizes:
                continue
            record = record_of(line.config)
            record["phases"] = record["phases"][: len(sizes[key])]
            for phase, size in zip(record["phases"], sizes[key], strict=True):
                phase["new_classes"] = phase["seen_classes"] = size
            record["phases"][-1]["seen_classes"] = sum(sizes[key])
            folder = tmp_path / line.config.name.replace("/", "-")
            made = analysis_of(line.config, alpha(line), sizes=sizes[key], name=line.config.name)
            write_analysis(folder / analysis_name(len(sizes[key]) - 1), made)
            lines.append(replace(line, records={0: (folder / "record.json", record)}))
        shown = Shown(target, "glyphs", lines, {}, (0,))
        base = tmp_path / f"{name}-glyphs"
        result = draw(shown, Folders(tmp_path), base)
        write_texts(shown, result, base)
        return result

    return show


def cells(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_fig_3_counts_every_shared_class_and_names_the_one_it_draws(
    drawn: Callable[..., Drawn], tmp_path: Path
) -> None:
    """Models of 2, 3 and 4 classes stand for 10, 25 and 50: class 1 rises from the first to the second."""
    models = {2: [0.6, 0.3], 3: [0.5, 0.4, 0.9], 4: [0.4, 0.3, 0.8, 0.7]}
    sizes = {"glyphs/sizes10": (2,), "glyphs/sizes25": (3,), "glyphs/sizes50": (4,)}
    result = drawn("fig3", lambda line: models[sizes[line.config.name.partition("/")[2]][0]], sizes)
    assert "Class drawn: class 0." in result.grid.caption
    assert "means over the 2 classes that the models are compared on" in result.grid.caption
    assert "information" not in result.grid.caption.lower()
    text = (tmp_path / "fig3-glyphs.md").read_text()
    # alpha_1 over classes 0 and 1 alone, though the larger models have more.
    assert cells(text, "lucir/glyphs/sizes50")[4] == "0.350"
    first, second = json.loads((tmp_path / "fig3-glyphs-findings.json").read_text())["findings"][::3]
    assert (first["claim"], first["k"], first["cases"], first["holds"]) == ("more classes", 1, 2, 1)
    assert [case["class_name"] for case in first["exceptions"]] == ["class 1"]
    assert (second["cases"], second["holds"]) == (3, 3)
    assert "| 1 of 2 | class 1 |" in text
    assert "Class drawn: class 0." in " ".join((tmp_path / "fig3-glyphs.svg").read_text().split())


def test_fig_9_names_its_nine_classes(drawn: Callable[..., Drawn]) -> None:
    sizes = {"glyphs/sizes10": (3,), "glyphs/sizes25": (4,)}
    result = drawn("fig9", lambda line: [0.5] * sizes[line.config.name.partition("/")[2]][0], sizes)
    assert "Classes drawn: class 1, class 2." in result.grid.caption
    (findings,) = result.further
    assert "| 0 of 3 |" in markdown(findings)  # equal is no fall


def test_fig_10_looks_only_at_classes_that_came_after_phase_0(
    drawn: Callable[..., Drawn], tmp_path: Path
) -> None:
    alphas = {
        "lucir": [0.9, 0.9, 0.8, 0.6],
        "lucir+cwd": [0.1, 0.1, 0.5, 0.5],
        "oracle": [0.3, 0.3, 0.4, 0.4],
    }

    def alpha(line: Line) -> Sequence[float]:
        return alphas["oracle" if line.config.protocol.phase_sizes else line.config.label]

    result = drawn("fig10", alpha, {"glyphs/b50s10/short": (2, 2), "glyphs/sizes100": (4,)})
    assert "Class drawn: class 2." in result.grid.caption
    assert "means over the 2 classes after phase 0 that the models are compared on" in result.grid.caption
    text = (tmp_path / "fig10-glyphs.md").read_text()
    assert cells(text, "lucir/glyphs/b50s10/short")[4] == "0.700"  # (0.8 + 0.6) / 2
    assert cells(text, "lucir+cwd/glyphs/b50s10/short")[4] == "0.500"
    assert cells(text, "lucir/glyphs/sizes100")[4] == "0.400"
    found = json.loads((tmp_path / "fig10-glyphs-findings.json").read_text())["findings"]
    assert {one["classes"] for one in found} == {2}
    (nearer,) = [one for one in found if one["claim"] == "nearer to the oracle" and one["k"] == 1]
    assert nearer["difference"] == pytest.approx(((0.1 - 0.4) + (0.1 - 0.2)) / 2)
    assert "information" not in text


@pytest.mark.parametrize("oracle", [{}, {"glyphs/sizes100": (6,)}])
def test_no_smaller_model_stands_in_for_the_oracle_of_fig_4(
    drawn: Callable[..., Drawn], monkeypatch: pytest.MonkeyPatch, oracle: Mapping[str, Sequence[int]]
) -> None:
    panels: dict[str, list[str]] = {}

    def spy(
        found: Mapping[str, Sequence[Analysis]], *_: object, name: Callable[[Analysis], str], **__: object
    ) -> None:
        panels.update({title: [name(one) for one in some] for title, some in found.items()})

    monkeypatch.setattr(pictures, "draw_alpha_panels", spy)
    monkeypatch.setattr(pictures, "write_every_format", lambda base, make, _: make(base) or [])
    sizes = {"glyphs/sizes10": (2,), "glyphs/sizes50": (4,), **oracle}
    result = drawn("fig4", lambda line: [0.5] * sizes[line.config.name.partition("/")[2]][0], sizes)
    etas = ["LUCIR", *(f"LUCIR + CwD (eta {eta})" for eta in (0.02, 0.05, 0.1, 0.5, 1))]
    models = [*etas, "6 classes"] if oracle else etas
    assert panels == {"2 classes": models, "4 classes": models}
    statements = {str(row[0]) for grid in result.further for row in grid.rows}
    assert ("nearer to the oracle" in statements) == bool(oracle)


@pytest.mark.parametrize(
    ("name", "sizes", "why"),
    [
        ("fig10", (4,), "no class in common that came after phase 0"),
        ("fig9", (1,), "no more than one class in common"),
    ],
)
def test_no_other_class_stands_in_for_one_that_is_not_there(
    drawn: Callable[..., Drawn], name: str, sizes: tuple[int, ...], why: str
) -> None:
    """The oracle alone has no later phase; of one class that models share there is no second."""
    result = drawn(name, lambda line: [0.5] * sizes[0], {"glyphs/sizes100": sizes})
    assert result.files == []
    assert f"Nothing is drawn: these models have {why}." in result.grid.caption


def test_an_analysis_is_needed(record_of: Make, tmp_path: Path) -> None:
    shown = Shown(TARGETS["fig3"], "glyphs", expand(TARGETS["fig3"], "glyphs", {}), {}, (0,))
    result = draw(shown, Folders(tmp_path), tmp_path / "fig3-glyphs")
    assert (result.further, result.files) == ((), ())


def test_information_of_another_floor_is_computed_anew(
    record_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = expand(TARGETS["fig7"], "glyphs", {})[0]
    record = record_of(line.config)
    path = tmp_path / "elsewhere" / "record.json"
    phase = len(record["phases"]) - 1
    usual = analysis_of(line.config, [0.5] * record["phases"][phase]["seen_classes"])
    other = copy.deepcopy(usual)
    for measured in (other[split][form] for split in SPLITS for form in ("raw", "unit")):
        measured["information"]["floor"] = 1e-3
    write_analysis(path.parent / analysis_name(phase), other)
    made: list[Path] = []

    def compute(folder: Path, **_: object) -> Analysis:
        made.append(folder)
        return usual

    monkeypatch.setattr(pictures, "analyse_run", compute)
    lines, place = [replace(line, records={0: (path, record)})], Folders(tmp_path / "out")
    (kept,) = analyse("spectra", lines, place)
    assert kept["train"] == other["train"]  # nothing but information depends on the floor
    assert not can_be_shown("information", path, record)  # without a model
    assert can_be_shown("spectra", path, record)
    (path.parent / CHECKPOINT).touch()
    assert can_be_shown("information", path, record)
    for _ in range(2):  # the second time from the file that was written
        (computed,) = analyse("information", lines, place)
        assert computed["train"] == usual["train"]
    assert made == [path.parent]
    assert read_analysis(path.parent / analysis_name(phase)) == other  # somebody's own stays as it is


def on_a_sphere(config: RunConfig, *, seen: int = 2, looked_at: int = 4) -> Analysis:
    """An analysis of phase 0 with a point of each class, of a run that comes to four classes."""
    found = analysis_of(config, [0.5] * 4, sizes=[seen], name=config.name)
    found["classes"], found["class_names"] = found["classes"][:looked_at], found["class_names"][:looked_at]
    points = [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.6, 0.8]]] * looked_at
    return {**found, "feature_size": 3, "points": {"train": points, "test": points}}


def test_a_sphere_wants_points_and_the_classes_to_come(record_of: Make, tmp_path: Path) -> None:
    """Else nothing could be shown without a model and its data."""
    config = expand(TARGETS["fig8"], "glyphs", {})[0].config
    path, record = tmp_path / "record.json", record_of(config)
    whole = on_a_sphere(config)
    for found, enough in (
        (whole, True),
        (on_a_sphere(config, looked_at=2), False),
        ({**whole, "feature_size": 64, "points": None}, False),
    ):
        write_analysis(tmp_path / analysis_name(0), cast(Analysis, found))
        for view in SPHERES:
            assert can_be_shown(view, path, record, states=False) == enough
    (tmp_path / CHECKPOINT).touch()
    assert can_be_shown("sphere", path, record)  # it can be computed


@pytest.mark.parametrize(
    ("seeds", "told"), [([(2, 1), (1, 2)], "Seed 1."), ([(0, 1), (1,)], "Seeds: 0 (a: naive), 1 (b: CwD).")]
)
def test_a_sphere_names_the_seed_it_draws(
    record_of: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seeds: Sequence[Sequence[int]],
    told: str,
) -> None:
    """Of several seeds the first."""
    drawn: dict[str, Mapping[str, Analysis]] = {}
    monkeypatch.setattr(
        pictures, "draw_sphere", lambda panels, *_, caption, **__: drawn.update({caption: panels})
    )
    lines = []
    for line, some in zip(expand(TARGETS["fig8"], "glyphs", {}), seeds, strict=True):
        records = {}
        for seed in some:
            path = tmp_path / line.panel[0] / str(seed) / "record.json"
            write_analysis(path.parent / analysis_name(0), on_a_sphere(line.seeded(seed)))
            records[seed] = (path, record_of(line.seeded(seed)))
        lines.append(replace(line, records=records))
    shown = Shown(TARGETS["fig8"], "glyphs", lines, {}, (0, 1, 2))
    draw(shown, Folders(tmp_path), tmp_path / "fig8-glyphs")
    ((caption, panels),) = drawn.items()
    assert caption.endswith(told)
    assert [one["seed"] for one in panels.values()] == [min(some) for some in seeds]


def test_a_damaged_analysis_is_computed_anew(
    record_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = expand(TARGETS["fig3"], "glyphs", {})[0]
    record, path = record_of(line.config), tmp_path / "elsewhere" / "record.json"
    damaged = path.parent / analysis_name(len(record["phases"]) - 1)
    damaged.parent.mkdir()
    damaged.write_text("{")
    good = analysis_of(line.config, [0.5] * 6)
    monkeypatch.setattr(pictures, "analyse_run", lambda *_, **__: good)
    lines, place = [replace(line, records={0: (path, record)})], Folders(tmp_path / "out")
    (found,) = analyse("spectra", lines, place)
    assert found["train"] == good["train"]
    assert damaged.read_text() == "{"


def test_seeds_of_runs_with_other_names_are_one_model(record_of: Make, tmp_path: Path) -> None:
    """A run counts by its settings, whatever it was called: Fig. 10 averages over its seeds."""
    line = expand(TARGETS["fig10"], "glyphs", {})[0]
    records = {}
    for seed, name in enumerate((line.config.name, "my-own")):
        config, path = replace(line.seeded(seed), name=name), tmp_path / str(seed) / "record.json"
        found = analysis_of(config, [0.5] * 6, sizes=(4, 2), name=name)
        write_analysis(path.parent / analysis_name(1), found)
        records[seed] = (path, record_of(config))
    lines = [replace(line, records=records)]
    result = draw(
        Shown(TARGETS["fig10"], "glyphs", lines, {}, (0, 1)), Folders(tmp_path), tmp_path / "fig10", (".svg",)
    )
    assert [[str(cell) for cell in row[:2]] for row in result.grid.rows] == [[line.config.name, "2"]]
