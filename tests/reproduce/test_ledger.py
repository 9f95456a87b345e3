"""RESULTS.md: which records count for which cell, what verifies it, and that the committed one is up to date."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.presets import build_config, preset
from phasezero.reproduce.conduct import Wish, plan
from phasezero.reproduce.illustrate import draw_figures
from phasezero.reproduce.ledger import read_results, write_results
from phasezero.reproduce.verdicts import figure
from phasezero.results import style
from phasezero.results.record import Record, summarise, write_record
from phasezero.session import CHECKPOINT

Make = Callable[..., Record]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def keep(record_of: Make, tmp_path: Path) -> Callable[..., None]:
    def write(
        config: RunConfig, averages: Sequence[float], precision: str = "bf16", where: str = "any"
    ) -> None:
        for seed, average in enumerate(averages):
            record = record_of(config.override({"seed": seed}), average, precision)
            write_record(tmp_path / "results" / where / f"{config.label}-{precision}-{seed}.json", record)

    return write


def row(text: str, *cells: str) -> list[str]:
    """The one line of a table that starts with these cells."""
    start = "| " + " | ".join(cells) + " |"
    (line,) = [line for line in text.splitlines() if line.startswith(start)]
    return [cell.strip() for cell in line.strip("|").split(" | ")][len(cells) :]


LUCIR = ("CIFAR100", "LUCIR", "50", "10", "20")


def test_three_seeds_within_the_tolerance_verify_a_cell(keep: Callable[..., None], tmp_path: Path) -> None:
    keep(
        preset("lucir/cifar100/b50s10"), [64.0, 67.5, 67.7]
    )  # none of them near the paper, but their mean is
    text = write_results(tmp_path / "results", tmp_path)
    assert row(text, *LUCIR) == ["bf16", "66.40 ± 2.08", "3", "66.27 ± 0.28", "+0.13", "**yes**", "-"]
    assert row(text, "Table 1") == ["72", "1", "1"]
    assert row(text, "CIFAR100", "LUCIR + CwD", "50", "10", "20")[-2:] == ["no", "not run"]
    assert "| results/any/lucir-bf16-2.json |" in text


def test_two_seeds_or_a_wide_gap_do_not(keep: Callable[..., None], tmp_path: Path) -> None:
    keep(preset("lucir/cifar100/b50s10"), [66.27, 66.27])
    keep(preset("lucir+cwd/cifar100/b50s10"), [66.7, 66.7, 66.7])
    text = write_results(tmp_path / "results", tmp_path)
    assert row(text, *LUCIR)[-2:] == ["no", "n=2, 3 are needed"]
    cwd = row(text, "CIFAR100", "LUCIR + CwD", "50", "10", "20")
    assert cwd[-3:] == ["-0.56", "no", "the gap is beyond 0.5"]
    assert row(text, "Table 1") == ["72", "2", "0"]


def test_precisions_are_not_mixed_and_seeds_not_counted_twice(
    keep: Callable[..., None], record_of: Make, tmp_path: Path
) -> None:
    config = preset("lucir/cifar100/b50s10")
    keep(config, [66.2, 66.3])
    keep(config, [67.0], "tf32")
    write_record(tmp_path / "results" / "z.json", record_of(config, 50.0, "bf16"))
    text = write_results(tmp_path / "results", tmp_path)
    assert row(text, *LUCIR, "bf16")[:2] == ["66.25 ± 0.07", "2"]
    assert "seed 0 was run more than once" in row(text, *LUCIR, "bf16")[-1]
    assert row(text, *LUCIR, "tf32")[:2] == ["67.00", "1"]


def test_a_changed_run_is_no_cell_and_says_what_was_changed(
    keep: Callable[..., None], tmp_path: Path
) -> None:
    changed = preset("lucir/cifar100/b50s10").override({"training.first.lr": 0.05, "name": "mine"})
    keep(changed, [66.27, 66.27, 66.27])
    text = write_results(tmp_path / "results", tmp_path)
    assert row(text, *LUCIR)[-1] == "not run"
    assert row(text, "mine")[-1] == "training.first.lr=0.05"


def test_icarl_counts_by_its_nearest_mean_classifier(record_of: Make, tmp_path: Path) -> None:
    record = record_of(preset("icarl/cifar100/b50s10"), 10.0)
    for phase in record["phases"]:
        phase["accuracy"]["nearest_mean"] = 60.0
    record["summary"] = summarise(record["phases"])
    write_record(tmp_path / "record.json", record)
    assert row(write_results(tmp_path, tmp_path), "CIFAR100", "iCaRL", "50", "10", "20")[1] == "60.00"


def test_ablations_on_cifar100_are_shown_apart_and_verify_nothing(
    keep: Callable[..., None], tmp_path: Path
) -> None:
    for name in ("lucir", "lucir+cwd"):
        keep(preset(f"{name}/cifar100/b50s10").override({"protocol.base": 20}), [61.0] * 3)
    text = write_results(tmp_path / "results", tmp_path)
    assert "## Table 2: The number of classes B of phase 0, on CIFAR100" in text
    assert "cifar100 stands in for ImageNet100" in text
    # Ours, n, the paper's number on ImageNet100; no gap.
    assert row(text, "LUCIR + CwD", "20", "10", "20") == [
        "61.00 ± 0.00", "3", "62.49 ± 0.36", "-", "+0.00", "+1.28",
    ]  # fmt: skip
    assert row(text, "Table 2") == ["20", "0", "0"]
    assert "## Records that are no cell" not in text
    assert "not there yet" not in text


def test_ablations_are_not_averaged_over_precisions(keep: Callable[..., None], tmp_path: Path) -> None:
    config = preset("lucir/cifar100/b50s10").override({"protocol.memory": "per_class:10"})
    keep(config, [61.0, 62.0], "fp16")
    keep(config, [70.0], "tf32")
    text = write_results(tmp_path / "results", tmp_path)
    assert row(text, "LUCIR (fp16)", "50", "10", "10")[:2] == ["61.50 ± 0.71", "2"]
    assert row(text, "LUCIR (tf32)", "50", "10", "10")[:2] == ["70.00", "1"]


def test_runs_without_a_partner_are_counted(keep: Callable[..., None], tmp_path: Path) -> None:
    keep(preset("lucir/cifar100/b50s10"), [66.0, 66.1, 66.2])
    text = write_results(tmp_path / "results", tmp_path)
    assert "3 and 0" in row(text, "CIFAR100", "LUCIR", "10")


def test_other_files_are_left_out_by_their_format_and_nothing_by_guess(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    other = tmp_path / "deep" / "er" / "speed.json"
    other.write_text(json.dumps({"format": "phasezero-step-time-1", "results": []}))
    assert read_results(tmp_path) == ([], [])
    other.write_text(json.dumps({"results": []}))
    with pytest.raises(UserError, match=r"speed\.json: neither a record nor"):
        read_results(tmp_path)


def test_figures_of_claims_are_drawn_from_what_is_there_and_shown(
    keep: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three etas: the curve over eta; not Fig. 2 of beta 0 alone, and no spectra without an analysis."""
    folder = tmp_path / "results"
    stale = folder / "figures" / "fig3-cifar100.svg"
    stale.parent.mkdir(parents=True)
    stale.touch()
    for terms in ([], ["cwd:0.25"], ["cwd:0.75"]):
        keep(build_config("lucir", "cifar100", initial=terms, step=10), [66.0], where="".join(terms))
    formats: list[str] = []

    def spy(path: Path, *rest: Any) -> None:
        formats.append(path.suffix)
        style.write_figure(path, *rest)

    monkeypatch.setattr("phasezero.results.figures.write_figure", spy)
    drawn = draw_figures(folder, read_results(folder)[0])
    assert [path.name for path in drawn] == ["fig6-cifar100.svg"]
    assert formats == [".svg"]  # none is drawn to be thrown away
    assert "9 of 12 runs are not there yet" in words_of(drawn[0])
    assert not stale.exists()
    text = write_results(folder, tmp_path)
    curve = text.partition("### The average incremental accuracy over eta")[2]
    assert "![fig6-cifar100](results/figures/fig6-cifar100.svg)" in curve
    assert "fig3-cifar100" not in text


def test_figures_of_an_earlier_time_go_though_none_is_drawn(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    stale, other = (folder / "figures" / name for name in ("fig3-cifar100.svg", "mine.svg"))
    stale.parent.mkdir(parents=True)
    stale.touch()
    other.touch()
    assert "fig3-cifar100" not in write_results(folder, tmp_path, figures=True)
    assert (stale.exists(), other.exists()) == (False, True)
    bare = tmp_path / "bare"
    bare.mkdir()
    assert draw_figures(bare, []) == []
    assert not list(bare.iterdir())


def test_each_panel_of_a_figure_counts_its_own_runs(keep: Callable[..., None], tmp_path: Path) -> None:
    folder = tmp_path / "results"
    keep(preset("lucir/cifar100/b50s5"), [60.0, 61.0, 62.0], where="plain")
    keep(preset("lucir+cwd/cifar100/b50s5"), [62.0, 63.0, 64.0], where="cwd")
    keep(preset("podnet/cifar100/b50s5"), [64.0], where="podnet")
    draw_figures(folder, read_results(folder)[0])
    lucir, podnet = (folder / "figures" / f"fig5-cifar100-{method}.svg" for method in ("lucir", "podnet"))
    assert "not there yet" not in words_of(lucir)
    assert words_of(lucir).endswith("n=3.")
    assert "5 of 6 runs are not there yet. n=1." in words_of(podnet)


def test_figures_are_drawn_from_analyses_and_nothing_is_computed_for_them(
    keep: Callable[..., None], tmp_path: Path
) -> None:
    """A model's state beside its record would need the data to be analysed: it is left alone."""
    folder = tmp_path / "results"
    (shown,) = plan(Wish(("fig1",), ("cifar100",), seeds=(0,)))
    keep(shown.lines[-1].config, [70.0], where="sphere")
    (folder / "sphere" / CHECKPOINT).touch()
    assert draw_figures(folder, read_results(folder)[0]) == []


def test_a_figure_in_a_folder_of_two_words_is_shown(tmp_path: Path) -> None:
    assert figure(tmp_path / "my results" / "a.svg", tmp_path) == "![a](my%20results/a.svg)\n"


def test_pictures_without_a_claim_are_shown(tmp_path: Path) -> None:
    picture = tmp_path / "results" / "figures" / "fig8-cifar100.svg"
    picture.parent.mkdir(parents=True)
    assert "sphere" not in write_results(tmp_path / "results", tmp_path)
    picture.touch()
    text = write_results(tmp_path / "results", tmp_path)
    assert "![fig8-cifar100](results/figures/fig8-cifar100.svg)" in text.partition("on the sphere")[2]


def words_of(figure: Path) -> str:
    """All that is written in an SVG; where it stands is matplotlib's affair, and differs with its version."""
    root = ElementTree.parse(figure).getroot()
    lines = ("".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text"))
    return " ".join(" ".join(lines).split())


def test_the_committed_figures_are_those_of_the_committed_records(tmp_path: Path) -> None:
    committed = sorted((ROOT / "results" / "figures").glob("*.svg"))
    if not committed:
        pytest.skip("no figures beside these tests")
    drawn = draw_figures(tmp_path, read_results(ROOT / "results")[0])
    assert [path.name for path in drawn] == [path.name for path in committed]
    assert [words_of(path) for path in drawn] == [words_of(path) for path in committed]


def test_the_committed_results_are_those_of_the_committed_records() -> None:
    committed = ROOT / "RESULTS.md"
    if not committed.exists():
        pytest.skip("no RESULTS.md beside these tests")
    assert committed.read_text(encoding="utf-8") == write_results(ROOT / "results", ROOT)


def test_the_committed_records_name_every_setting_of_today() -> None:
    """Else a record and its run made anew would be two (results/record.py: YOUNGER_SETTINGS)."""
    if not (ROOT / "results").is_dir():
        pytest.skip("no results beside these tests")
    records, _ = read_results(ROOT / "results")
    assert records
    for path, record in records:
        assert RunConfig.from_dict(record["config"]).to_dict() == record["config"], path
