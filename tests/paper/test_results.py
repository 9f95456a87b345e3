"""RESULTS.md: which records count for which cell, what verifies it, and that the committed file is up to date."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from phasezero.config import RunConfig, complete
from phasezero.errors import UserError
from phasezero.paper.claims import CLAIMS
from phasezero.paper.figures import draw_figures
from phasezero.paper.plan import RecordIndex, Request, plan
from phasezero.paper.results import folded, pictures_of, read_notes, read_results, write_results
from phasezero.presets import build_config, preset
from phasezero.records.run import Record, summarise, write_record
from phasezero.report.style import caption_files
from phasezero.runs.session import CHECKPOINT
from samples import line_of

Make = Callable[..., Record]
Keep = Callable[..., None]
ROOT = Path(__file__).parents[2]
FIGURES = [*filter(None, (figure for _, figure in CLAIMS.values())), "fig1", "fig8"]
LUCIR = ("CIFAR100", "LUCIR", "50", "10", "20")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def text_of(folder: Path) -> str:
    return write_results(folder, folder.parent)


def draw(folder: Path) -> list[Path]:
    records, analyses = read_results(folder)
    return draw_figures(FIGURES, folder, RecordIndex(records, dict(analyses)))


@pytest.mark.parametrize(
    ("values", "cells", "counts"),
    [  # in the first, no run is near the paper, but their mean is
        ([64.0, 67.5, 67.7], ["66.40 ± 2.08", "3", "66.27 ± 0.28", "+0.13", "**yes**", "-"], ["1", "1"]),
        ([66.27, 66.27], ["66.27 ± 0.00", "2", "66.27 ± 0.28", "+0.00", "no", "n=2, 3 are needed"], ["1", "0"]),
        ([65.7] * 3, ["65.70 ± 0.00", "3", "66.27 ± 0.28", "-0.57", "no", "the gap is beyond 0.5"], ["1", "0"]),
    ],
)
def test_three_seeds_within_the_tolerance_verify_a_cell(
    keep: Keep, folder: Path, values: list[float], cells: list[str], counts: list[str]
) -> None:
    keep(preset("lucir/cifar100/b50s10"), values)
    text = text_of(folder)
    assert line_of(text, *LUCIR) == ["fp16", *cells]
    assert line_of(text, "Table 1") == ["72", *counts]
    assert "71 cells were not run: CIFAR100 (26), ImageNet100 (27), ImageNet (18)." in text
    assert "20 cells were not run: ImageNet100 (20)." in text
    assert "| results/lucir-cifar100-b50s10-fp16/seed1/record.json |" in text
    assert f"{len(values)} and 0" in line_of(text, "CIFAR100", "LUCIR", "10")  # runs without a partner are counted


def test_precisions_are_not_mixed_and_seeds_not_counted_twice(keep: Keep, record_of: Make, folder: Path) -> None:
    config = preset("lucir/cifar100/b50s10")
    keep(config, [66.2, 66.3])
    keep(config, [67.0], "tf32")
    write_record(folder / "z.json", record_of(config, 50.0, "fp16"))
    text = text_of(folder)
    assert line_of(text, *LUCIR, "fp16")[:2] == ["66.25 ± 0.07", "2"]
    assert "seed 0 was run more than once" in line_of(text, *LUCIR, "fp16")[-1]
    assert line_of(text, *LUCIR, "tf32")[:2] == ["67.00", "1"]


def test_a_changed_run_is_no_cell_and_says_what_was_changed(keep: Keep, folder: Path) -> None:
    keep(preset("lucir/cifar100/b50s10").override({"training.first.lr": 0.05, "name": "mine"}), [66.27] * 3)
    text = text_of(folder)
    assert "72 cells were not run" in text
    assert line_of(text, "mine")[-1] == "training.first.lr=0.05"


def test_icarl_counts_by_its_nearest_mean_classifier(record_of: Make, folder: Path) -> None:
    record = record_of(preset("icarl/cifar100/b50s10"), 10.0)
    for phase in record["phases"]:
        phase["accuracy"]["nearest_mean"] = 60.0
        phase["by_phase"]["nearest_mean"] = [60.0] * (phase["phase"] + 1)
    write_record(folder / "record.json", {**record, "summary": summarise(record["phases"])})
    assert line_of(text_of(folder), "CIFAR100", "iCaRL", "50", "10", "20")[1] == "60.00"


def test_ablations_on_cifar100_are_shown_apart_and_verify_nothing(keep: Keep, folder: Path) -> None:
    for name in ("lucir", "lucir+cwd"):
        keep(preset(f"{name}/cifar100/b20s10"), [61.0] * 3)
    keep(preset("lucir/cifar100/b50s10r10"), [61.0, 62.0], "fp16")
    keep(preset("lucir/cifar100/b50s10r10"), [70.0], "tf32")
    text = text_of(folder)
    assert "## Table 2: The number of classes B of phase 0, on CIFAR100" in text
    assert "cifar100 replaces ImageNet100" in text
    cells = ["61.00 ± 0.00", "3", "62.49 ± 0.36", "-", "+0.00", "+1.28"]  # the paper's number has no gap
    assert line_of(text, "LUCIR + CwD", "20", "10", "20") == cells
    assert line_of(text, "LUCIR (fp16)", "50", "10", "10")[:2] == ["61.50 ± 0.71", "2"]
    assert line_of(text, "LUCIR (tf32)", "50", "10", "10")[:2] == ["70.00", "1"]
    assert line_of(text, "Table 2") == ["20", "0", "0"]
    assert "## Records that are no cell" not in text


def test_other_files_are_left_out_by_their_format_and_nothing_by_guess(folder: Path) -> None:
    other = folder / "deep" / "speed.json"
    other.parent.mkdir()
    other.write_text(json.dumps({"format": "phasezero-step-time-1", "results": []}))
    assert read_results(folder) == ([], [])
    other.write_text(json.dumps({"results": []}))
    with pytest.raises(UserError, match=r"speed\.json: neither a record nor"):
        read_results(folder)
    other.write_text("{half")
    warnings: list[str] = []
    assert read_results(folder, warnings.append) == ([], [])
    assert ["not JSON" in text for text in warnings] == [True]


def test_notes_are_printed_next_to_their_cell_and_claim(folder: Path) -> None:
    claims = "".join(f"  {key}: 'About\n    {key}.'\n" for key in CLAIMS)
    cells = "cells: {table1: {bic/cifar100/b50s10: It was tried.}}\n"
    (folder / "notes.yaml").write_text(f"{cells}claims:\n{claims}")
    text = text_of(folder)
    assert line_of(text, "CIFAR100", "BiC", "50", "10", "20")[-1] == "not run. It was tried."
    for key, (title, _) in CLAIMS.items():
        assert f"Note: About {key}." in text.partition(f"### {title}")[2].partition("\n### ")[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cell: {}", "unknown key in the file 'cell'; did you mean 'cells'"),
        ("cells: {table9: {}}", "unknown key in cells 'table9'"),
        ("cells: {table2: {bic/cifar100/b50s10: x}}", "unknown key in table2"),
        ("claims: {mimicry: x}", "unknown key in claims 'mimicry'; did you mean 'mimic'"),
        ("claims: {mimic: 3}", "mimic: a text is expected"),
        ("claims: {mimic: ' '}", "a text is expected"),
        ("claims: [mimic]", "claims should be a mapping, not list"),
        ("a: [", "is not YAML"),
    ],
)
def test_notes_that_nobody_would_read_are_an_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "notes.yaml"
    cells = {"table1": ["bic/cifar100/b50s10"], "table2": ["lucir/imagenet100-cwd/b10s10"]}
    empty = {"cells": {}, "claims": {}}
    assert read_notes(path, cells) == empty
    path.write_text("cells:\n")
    assert read_notes(path, cells) == empty
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_notes(path, cells)


def words_of(figure: Path) -> str:
    """All that is written in an SVG; where it stands differs with matplotlib's version."""
    root = ElementTree.parse(figure).getroot()
    lines = ("".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text"))
    return " ".join(" ".join(lines).split())


def test_figures_are_drawn_from_what_exists_and_older_ones_removed(keep: Keep, folder: Path) -> None:
    """Three etas: the curve over eta; not Fig. 2 of beta 0 alone, and no spectra without an analysis."""
    names = ("fig3-cifar100.svg", "fig3-cifar100.pdf", "fig3-cifar100-caption.txt", "fig3-cifar100-figure.tex")
    *stale, other = (folder / "figures" / name for name in (*names, "mine.svg"))
    other.parent.mkdir()
    for path in (*stale, other):
        path.touch()
    (sphere,) = plan(Request(("fig1",), ("cifar100",)))
    keep(sphere.rows[-1].config, [70.0])
    for path in folder.rglob("record.json"):
        (path.parent / CHECKPOINT).touch()  # a state would need the data to be analysed: it is left alone
    assert draw(folder) == []
    assert list(other.parent.iterdir()) == [other]
    assert "fig3-cifar100" not in text_of(folder)
    for terms in ([], ["cwd:0.25"], ["cwd:0.75"]):
        keep(build_config("lucir", "cifar100", initial=terms, step=10), [66.0])
    drawn = draw(folder)
    assert [path.name for path in drawn] == ["fig6-cifar100.svg"]
    ends = ("-caption.txt", "-figure.tex", ".pdf", ".svg")
    assert sorted(path.name for path in other.parent.glob("fig*")) == [f"fig6-cifar100{end}" for end in ends]
    caption = (other.parent / "fig6-cifar100-caption.txt").read_text()
    assert "missing" not in caption
    curve = text_of(folder).partition("### The average incremental accuracy over eta")[2]
    assert f"![fig6-cifar100](results/figures/fig6-cifar100.svg)\n\n{caption}" in curve


def test_each_panel_of_a_figure_counts_its_own_runs(keep: Keep, folder: Path) -> None:
    for method, values in (("lucir", [60.0, 61.0, 62.0]), ("lucir+cwd", [62.0, 63.0, 64.0]), ("podnet", [64.0])):
        keep(preset(f"{method}/cifar100/b50s5"), values)
    draw(folder)
    files = (folder / "figures" / f"fig5-cifar100-{method}-caption.txt" for method in ("lucir", "podnet"))
    lucir, podnet = (path.read_text() for path in files)
    assert "Means and sample standard deviations of 3 runs." in lucir
    assert "n=1." in podnet


def test_spheres_and_folders_of_two_words_are_shown(tmp_path: Path) -> None:
    picture = tmp_path / "my results" / "figures" / "fig8-cifar100.svg"
    picture.parent.mkdir(parents=True)
    assert "sphere" not in text_of(tmp_path / "my results")
    picture.touch()
    shown = "![fig8-cifar100](my%20results/figures/fig8-cifar100.svg)"
    assert pictures_of("fig8", tmp_path / "my results", tmp_path) == [f"{shown}\n"]
    picture.with_name("fig8-cifar100-caption.txt").write_text("Two <classes>.\n")
    assert pictures_of("fig8", tmp_path / "my results", tmp_path) == [f"{shown}\n", "Two &lt;classes>.\n"]
    assert shown in text_of(tmp_path / "my results").partition("on the sphere")[2]


def test_seeds_of_one_run_are_named_together() -> None:
    paths = ["a/seed0/b.json", "c.json", "a/seed12/b.json", "d/seed3/b.json", "c.json"]
    assert folded(paths) == ["`a/seed{0,12}/b.json`", "`c.json`", "`d/seed3/b.json`"]


def test_runs_on_data_of_a_plugin_are_counted_and_not_listed() -> None:
    text = write_results(ROOT / "results", ROOT)
    count = len(list((ROOT / "results/h200/photos").rglob("record.json")))
    assert count
    assert f"Not listed: {count} of data sets that plug-ins add." in text
    assert "caltech101" not in text


def test_the_committed_files_are_those_of_the_committed_records(tmp_path: Path) -> None:
    if not (ROOT / "RESULTS.md").exists():
        pytest.skip("no RESULTS.md beside these tests")
    assert (ROOT / "RESULTS.md").read_text(encoding="utf-8") == write_results(ROOT / "results", ROOT)
    committed = sorted((ROOT / "results" / "figures").glob("*.svg"))
    records, analyses = read_results(ROOT / "results")
    drawn = draw_figures([*FIGURES, "board", "study"], tmp_path, RecordIndex(records, dict(analyses)))
    assert [path.name for path in drawn] == [path.name for path in committed]
    assert [words_of(path) for path in drawn] == [words_of(path) for path in committed]
    for path, own in zip(drawn, committed, strict=True):
        assert own.with_suffix(".pdf").exists()
        for made, kept in zip(caption_files(path), caption_files(own), strict=True):
            assert made.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")
    for path, record in read_results(ROOT / "results")[0]:  # else a record and the same run made again would be two
        assert RunConfig.from_record(record["config"]).to_dict() == complete(record["config"]), path
