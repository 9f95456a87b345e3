"""Figures of models: which classes are drawn, named and averaged over, and what is said of the paper's statements."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from phasezero.config import RunConfig
from phasezero.paper import figures
from phasezero.paper.figures import analyse, draw
from phasezero.paper.plan import RecordIndex, Request, attach, expand, plan, with_records
from phasezero.paper.tables import Output, Row, Table, write_texts
from phasezero.paper.targets import TARGETS
from phasezero.presets import preset
from phasezero.records.analysis import FORMS, SPLITS, Analysis, analysis_name, read_analysis, write_analysis
from phasezero.records.run import Record
from phasezero.report.grid import markdown
from phasezero.runs.session import CHECKPOINT
from samples import analysis_of, line_of

Make = Callable[..., Record]
Draw = Callable[..., Output]


@pytest.fixture
def drawn(record_of: Make, tmp_path: Path) -> Draw:
    """A figure from analyses next to records, without models: alpha_1 of each class, by the end of a run's name."""

    def show(name: str, alpha: Callable[[Row], Sequence[float]], sizes: Mapping[str, Sequence[int]]) -> Output:
        rows = []
        for row in expand(TARGETS[name], "glyphs"):
            key = row.config.name.partition("/glyphs/")[2]
            if key not in sizes:
                continue
            record = record_of(row.config)
            record["phases"] = record["phases"][: len(sizes[key])]
            folder = tmp_path / row.config.name.replace("/", "-")
            made = analysis_of(row.config, alpha(row), sizes=sizes[key], name=row.config.name)
            write_analysis(folder / analysis_name(len(sizes[key]) - 1), made)
            rows.append(replace(row, records={0: (folder / "record.json", record)}))
        table, base = Table(TARGETS[name], "glyphs", rows, (0,)), tmp_path / name
        output = draw(table, RecordIndex(), base)
        write_texts(table, output, base)
        return output

    return show


def test_fig_3_counts_every_shared_class_and_names_the_one_it_draws(drawn: Draw, tmp_path: Path) -> None:
    """Models of 2, 3 and 4 classes replace those of 10, 25 and 50: class 1 rises from the first to the second."""
    models = {"sizes10": [0.6, 0.3], "sizes25": [0.5, 0.4, 0.9], "sizes50": [0.4, 0.3, 0.8, 0.7]}
    sizes = {key: (len(alpha),) for key, alpha in models.items()}
    output = drawn("fig3", lambda row: models[row.config.name.rpartition("/")[2]], sizes)
    assert "Class drawn: class 0." in output.grid.caption
    assert "means over the 2 classes that the models are compared on" in output.grid.caption
    text = (tmp_path / "fig3.md").read_text()
    # alpha_1 over classes 0 and 1 alone, though the larger models have more.
    assert line_of(text, "lucir/glyphs/sizes50")[3] == "0.350"
    first, second = json.loads((tmp_path / "fig3-findings.json").read_text())["findings"][::3]
    assert (first["claim"], first["k"], first["cases"], first["holds"]) == ("more classes", 1, 2, 1)
    assert [case["class_name"] for case in first["exceptions"]] == ["class 1"]
    assert (second["cases"], second["holds"]) == (3, 3)
    assert "Class drawn: class 0." in (tmp_path / "fig3-caption.txt").read_text()


def test_fig_10_looks_only_at_classes_that_came_after_phase_0(drawn: Draw, tmp_path: Path) -> None:
    alphas = {"lucir": [0.9, 0.9, 0.8, 0.6], "lucir+cwd": [0.1, 0.1, 0.5, 0.5], "oracle": [0.3, 0.3, 0.4, 0.4]}

    def alpha(row: Row) -> Sequence[float]:
        return alphas["oracle" if row.config.protocol.phase_sizes else row.config.label]

    pair = "b50s10,later.epochs=2"
    output = drawn("fig10", alpha, {pair: (2, 2), "sizes100": (4,)})
    assert "Class drawn: class 2." in output.grid.caption
    assert "means over the 2 classes after phase 0 that the models are compared on" in output.grid.caption
    text = (tmp_path / "fig10.md").read_text()
    names = (f"lucir/glyphs/{pair}", f"lucir+cwd/glyphs/{pair}", "lucir/glyphs/sizes100")
    assert [line_of(text, name)[3] for name in names] == ["0.700", "0.500", "0.400"]
    found = json.loads((tmp_path / "fig10-findings.json").read_text())["findings"]
    assert {one["classes"] for one in found} == {2}
    (nearer,) = [one for one in found if one["claim"] == "nearer to the oracle" and one["k"] == 1]
    assert nearer["difference"] == pytest.approx(((0.1 - 0.4) + (0.1 - 0.2)) / 2)


@pytest.mark.parametrize("oracle", [{}, {"sizes100": (6,)}])
def test_no_smaller_model_replaces_the_oracle_of_fig_4(
    drawn: Draw, monkeypatch: pytest.MonkeyPatch, oracle: Mapping[str, Sequence[int]]
) -> None:
    panels: dict[str, list[str]] = {}

    def spy(
        found: Mapping[str, Sequence[Analysis]], *_: object, name: Callable[[Analysis], str], **__: object
    ) -> list[Path]:
        panels.update({title: [name(one) for one in some] for title, some in found.items()})
        return []

    monkeypatch.setattr(figures, "draw_alpha", spy)
    monkeypatch.setattr(figures, "write_every_format", lambda base, make, _: make(base) or [])
    sizes = {"sizes10": (2,), "sizes50": (4,), **oracle}
    output = drawn("fig4", lambda row: [0.5] * sizes[row.config.name.rpartition("/")[2]][0], sizes)
    etas = ["LUCIR", *(f"LUCIR + CwD (eta {eta})" for eta in (0.02, 0.05, 0.1, 0.5, 1))]
    models = [*etas, "6 classes"] if oracle else etas
    assert panels == {"2 classes": models, "4 classes": models}
    statements = {str(line[0]) for grid in output.further for line in grid.rows}
    assert ("nearer to the oracle" in statements) == bool(oracle)


@pytest.mark.parametrize(
    ("name", "classes", "why"),
    [
        ("fig10", 4, "Nothing is drawn: the number of classes that came after phase 0 that these models share is 0."),
        ("fig9", 1, "Nothing is drawn: the number of classes that these models share is 1."),
        ("fig9", 3, "Classes drawn: class 1, class 2."),
    ],
)
def test_no_other_class_replaces_a_missing_one(drawn: Draw, name: str, classes: int, why: str) -> None:
    """The oracle alone has no later phase; where models share one class there is no second."""
    output = drawn(name, lambda row: [0.5] * classes, {"sizes100": (classes,)})
    assert why in output.grid.caption
    assert bool(output.files) == ("Nothing" not in why)


def table_of(name: str, rows: Sequence[Row]) -> Table:
    return Table(TARGETS[name], "glyphs", rows, (0, 1, 2))


@pytest.mark.parametrize("damage", ["floor", "file"])
def test_an_analysis_that_cannot_be_used_is_made_again_elsewhere(record_of: Make, tmp_path: Path, damage: str) -> None:
    """Information with another floor cannot be compared; nothing else depends on the floor."""
    row = expand(TARGETS["fig7"], "glyphs")[0]
    path, record = tmp_path / "elsewhere" / "record.json", record_of(row.config)
    theirs = path.parent / analysis_name(len(record["phases"]) - 1)
    usual = analysis_of(row.config, [0.5] * 6)
    other = copy.deepcopy(usual)
    for measured in (other[split][form] for split in SPLITS for form in ("raw", "unit")):
        measured["information"]["floor"] = 1e-3
    write_analysis(theirs, other)
    if damage == "file":
        theirs.write_text("{")
    before, rows, made = theirs.read_text(), [replace(row, records={0: (path, record)})], []

    def measure(folder: Path, **_: object) -> Analysis:
        made.append(folder)
        return usual

    for _ in range(2):  # the second time from the file that was written
        (computed,) = analyse(table_of("fig7", rows), RecordIndex(), tmp_path / "out", measure)
        assert computed["train"] == usual["train"]
    assert made == [path.parent]
    assert theirs.read_text() == before  # somebody's own stays as it is
    if damage == "floor":
        (kept,) = analyse(table_of("fig3", rows), RecordIndex(), tmp_path / "other", measure)
        assert kept["train"] == other["train"]
        assert not RecordIndex().analysis(TARGETS["fig7"], path.parent, record)  # without a model it cannot be shown


def on_a_sphere(config: RunConfig, *, seen: int = 2, looked_at: int = 4) -> Analysis:
    """An analysis of phase 0 with a point of each class, of a run that comes to four classes."""
    found = analysis_of(config, [0.5] * 4, sizes=[seen], name=config.name)
    found["classes"], found["class_names"] = found["classes"][:looked_at], found["class_names"][:looked_at]
    for split in SPLITS:
        for form in FORMS:
            found[split][form]["information"]["unavoidable"] = [0] * 4  # 10 images of a class for 3 features
    points = [[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.6, 0.8]]] * looked_at
    return {**found, "feature_size": 3, "points": {"train": points, "test": points}}


@pytest.mark.parametrize("name", ["fig1", "fig8"])
def test_a_sphere_needs_points_and_the_classes_to_come(record_of: Make, tmp_path: Path, name: str) -> None:
    """Otherwise nothing could be shown without a model and its data."""
    (table,) = plan(Request((name,), ("glyphs",)))
    config = table.rows[0].seeded(0)
    exist = [(tmp_path / "record.json", record_of(config))]
    whole = on_a_sphere(config)
    without = analysis_of(config, [0.5] * 4, sizes=[2], name=config.name)  # of 64 features
    for found, enough in ((whole, True), (on_a_sphere(config, looked_at=2), False), (without, False)):
        write_analysis(tmp_path / analysis_name(0), cast(Analysis, found))
        assert bool(attach(table, RecordIndex(exist), states=False).rows[0].records) == enough
    (tmp_path / CHECKPOINT).touch()
    assert attach(table, RecordIndex(exist)).rows[0].records  # it can be computed


@pytest.mark.parametrize(
    ("seeds", "told"), [([(2, 1), (1, 2)], "Seed 1."), ([(0, 1), (1,)], "Seeds: 0 (a: naive), 1 (b: CwD).")]
)
def test_a_sphere_names_the_seed_it_draws(
    record_of: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: Sequence[Sequence[int]], told: str
) -> None:
    """The first of several seeds."""
    spheres: dict[str, Mapping[str, Analysis]] = {}
    monkeypatch.setattr(
        figures, "draw_sphere", lambda panels, *_, caption, **__: spheres.update({caption: panels}) or []
    )
    rows = []
    for row, some in zip(expand(TARGETS["fig8"], "glyphs"), seeds, strict=True):
        paths = {seed: tmp_path / row.panel[0] / str(seed) / "record.json" for seed in some}
        for seed, path in paths.items():
            write_analysis(path.parent / analysis_name(0), on_a_sphere(row.seeded(seed)))
        rows.append(with_records(row, [(path, record_of(row.seeded(seed))) for seed, path in paths.items()]))
    draw(table_of("fig8", rows), RecordIndex(), tmp_path / "fig8")
    ((caption, panels),) = spheres.items()
    assert caption.endswith(told)
    assert [one["seed"] for one in panels.values()] == [min(some) for some in seeds]


def test_seeds_of_runs_with_other_names_and_lengths_are_one_model(record_of: Make, tmp_path: Path) -> None:
    """Seed 0 from a run with S=10, seed 1 from one with S=5 and a name of its own: two seeds of phase 0 alone."""
    exist = []
    for seed, run in enumerate(("b50s10", "b50s5")):
        for term, alpha in (("", 0.6), ("+cwd", 0.5)):
            config = replace(preset(f"lucir{term}/cifar100/{run}", seed=seed), name="mine" * seed)
            path = tmp_path / f"{run}{term}" / "record.json"
            made = analysis_of(config, [alpha] * 50, information=-100.0 - 100.0 * alpha, name=config.name)
            write_analysis(path.parent / analysis_name(0), made)
            exist.append((path, record_of(config)))
    (table,) = plan(Request(("fig7",), ("cifar100",), seeds=(0, 1)))
    index = RecordIndex(exist)
    output = draw(attach(table, index), index, tmp_path / "fig7", (".svg",))
    models = [[f"lucir{term}/cifar100/sizes50", "2", "50"] for term in ("", "+cwd")]
    assert [line[:3] for line in output.grid.lines()[1:]] == models
    (findings,) = output.further
    assert "100 of 100" in markdown(findings)  # classes times seeds
    assert read_analysis(exist[0][0].parent / analysis_name(0))["name"] != table.rows[0].config.name


def test_a_method_without_exemplars_is_drawn_by_its_head(record_of: Make, tmp_path: Path) -> None:
    record = record_of(config := preset("icarl/glyphs/b50s10"), 61.5)
    for measured in (record["summary"], *(phase["accuracy"] for phase in record["phases"])):
        cast(dict[str, object], measured)["nearest_mean"] = None
    row = Row("", config, records={0: (tmp_path / "record.json", record)})
    for target in ("fig6", "fig5"):
        output = draw(Table(TARGETS[target], "glyphs", [row], (0,)), RecordIndex(), tmp_path / target, (".svg",))
        assert "61.50" in line_of(markdown(output.grid), "iCaRL")
