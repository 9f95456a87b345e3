"""The paper's statements on made-up spectra, where every exception is known."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from phasezero.analysis.compare import Finding, alpha_of, compare, find, write_findings
from phasezero.analysis.record import Analysis, group_analyses
from phasezero.analysis.tables import (
    analysis_caption,
    analysis_cells,
    chosen_columns,
    figure_caption,
    finding_caption,
    finding_cells,
)
from phasezero.errors import UserError

Make = Callable[..., Analysis]


def text_cells(*analyses: object, **options: object) -> tuple[list[str], list[list[str]]]:
    """As they are printed."""
    header, rows = analysis_cells(*analyses, **options)  # type: ignore[arg-type]
    return header, [[str(cell) for cell in row] for row in rows]


def only(findings: list[Finding], claim: str, k: int = 1) -> list[Finding]:
    return [one for one in findings if one.claim == claim and one.k == k]


def test_more_classes_over_all_shared_classes_and_seeds(make_analysis: Make) -> None:
    few = [make_analysis([0.6, 0.5, 0.4], seed=0), make_analysis([0.6, 0.5, 0.4], seed=1)]
    more = [
        make_analysis([0.5, 0.45, 0.4, 0.1], seed=0),  # equal is not a fall
        make_analysis([0.7, 0.3, 0.2, 0.1], seed=1),
    ]
    (finding,) = only(compare([*more, *few]), "more classes")
    assert finding.models == ("lucir/glyphs/3", "lucir/glyphs/4")  # fewer classes first, however they come
    assert (finding.classes, finding.cases, finding.holds, finding.seeds) == (3, 6, 4, (0, 1))
    assert [(case.class_name, case.seed, case.values) for case in finding.exceptions] == [
        ("class 2", 0, (0.4, 0.4)),
        ("class 0", 1, (0.6, 0.7)),
    ]
    assert finding.means == pytest.approx((0.5, (0.5 + 0.45 + 0.4 + 0.7 + 0.3 + 0.2) / 6))
    by_seed = [-(0.1 + 0.05 + 0) / 3, (0.1 - 0.2 - 0.2) / 3]
    assert finding.difference == pytest.approx(sum(by_seed) / 2)
    assert finding.deviation == pytest.approx(abs(by_seed[0] - by_seed[1]) / 2**0.5)
    assert finding.also_differ_in == ()


def test_exceptions_of_one_name_are_counted_apart(make_analysis: Make) -> None:
    few = [make_analysis([0.4, 0.4], seed=seed) for seed in (0, 1)]
    more = [make_analysis([0.5, 0.3 + seed / 5, 0.1], seed=seed) for seed in (0, 1)]
    for one in (*few, *more):
        one["class_names"][:2] = ["crane", "crane"]
    header, rows = finding_cells(only(compare([*few, *more]), "more classes"))
    assert rows[0][header.index("exceptions")] == "crane (2), crane"


def test_phases_are_not_mixed_up(make_analysis: Make) -> None:
    """Models after phase 0 go with each other; those after a later phase with the oracle of as many classes."""
    nested = [make_analysis([0.6] * classes) for classes in (2, 3)]
    continued = make_analysis([0.5] * 4, phase_sizes=(2, 2))
    oracle = make_analysis([0.4] * 4)
    pairs = [finding.models for finding in only(compare([*nested, continued, oracle]), "more classes")]
    assert pairs == [
        ("lucir/glyphs/2", "lucir/glyphs/3"),
        ("lucir/glyphs/3", "lucir/glyphs/4"),
        ("lucir/glyphs/2-2", "lucir/glyphs/4"),
    ]


def test_equals_are_each_compared_with_the_next(make_analysis: Make) -> None:
    equals = [make_analysis([0.6] * 2, name=name) for name in ("one", "other")]
    pairs = [finding.models for finding in only(compare([*equals, make_analysis([0.5] * 3)]), "more classes")]
    assert pairs == [("one", "lucir/glyphs/3"), ("other", "lucir/glyphs/3")]


def test_larger_eta_goes_step_by_step_within_one_protocol(make_analysis: Make) -> None:
    analyses = [
        make_analysis([0.6, 0.5], eta=eta, settings={"training.first.lr": lr})
        for eta, lr in ((1.0, 0.2), (0.0, 0.1), (0.5, 0.2))
    ]
    elsewhere = make_analysis([0.1, 0.1, 0.1], eta=2.0)
    found = only(compare([*analyses, elsewhere]), "larger eta")
    labels = [finding.models for finding in found]
    assert len(found) == 2
    assert "cwd:0.5" in labels[0][1]
    assert labels[0][1] == labels[1][0]
    assert "cwd:1" in labels[1][1]
    assert found[0].also_differ_in == ("training.first.lr",)  # a larger rate may be the reason as well
    assert found[1].also_differ_in == ()
    assert "training.first.lr" in finding_caption(found)


def test_neighbours_go_by_seed(make_analysis: Make) -> None:
    """Seed 0 has an eta between, seed 1 does not: its models are compared all the same, and without seed 0."""
    made = [
        make_analysis([0.5], eta=eta, seed=seed)
        for eta, seed in ((0, 0), (0, 1), (0.3, 0), (0.5, 0), (0.5, 1))
    ]
    found = [one for one in compare(made) if one.claim == "larger eta" and one.k == 1]
    etas = [tuple(model.partition("cwd:")[2].rstrip(")") for model in one.models) for one in found]
    assert etas == [("", "0.3"), ("", "0.5"), ("0.3", "0.5")]
    assert [one.seeds for one in found] == [(0,), (1,), (0,)]
    assert [one.cases for one in found] == [1, 1, 1]
    # With eta 0.3 of seed 0 and 0.5 of seed 1 alone, each goes with eta 0, and nobody complains.
    found = [one for one in compare([*made[:3], made[4]]) if one.claim == "larger eta" and one.k == 1]
    assert [one.seeds for one in found] == [(0,), (1,)]


def test_forms_of_cwd_are_not_ranked_against_each_other(make_analysis: Make) -> None:
    code = make_analysis([0.6], eta=0.5)
    equation = make_analysis([0.5], eta=1.0, settings={"initial.0.form": "equation"})
    assert only(compare([code, equation]), "larger eta") == []
    plain = make_analysis([0.7])
    found = only(compare([code, equation, plain]), "larger eta")
    assert len(found) == 2
    assert {finding.models[0] for finding in found} == {"lucir/glyphs/1"}


def test_methods_and_data_are_not_compared_with_each_other(make_analysis: Make) -> None:
    naive, oracle = make_analysis([0.6, 0.6]), make_analysis([0.3] * 4)
    with_cwd, of_podnet = (make_analysis([0.5, 0.5], eta=0.5, method=one) for one in ("lucir", "podnet"))
    about_cwd = ("larger eta", "nearer to the oracle")
    assert {one.claim for one in compare([naive, with_cwd, oracle], ks=[1], claims=about_cwd)} == {*about_cwd}
    assert compare([naive, of_podnet, oracle], claims=about_cwd) == []
    for one in (naive, with_cwd, oracle):
        elsewhere = copy.deepcopy(one)
        elsewhere["data"]["name"] = "cifar100"
        models = [elsewhere if other is one else other for other in (naive, with_cwd, oracle)]
        assert only(compare(models), "nearer to the oracle") == []


def test_all_features_hold_all_there_is(make_analysis: Make) -> None:
    analysis = make_analysis([0.6, 0.5])
    assert alpha_of(analysis, "train", "raw", ["id 0", "id 1"], analysis["feature_size"]) == [1.0, 1.0]
    with pytest.raises(UserError, match="alpha_63 was not measured"):
        alpha_of(analysis, "train", "raw", ["id 0"], analysis["feature_size"] - 1)


def test_nearer_to_the_oracle_on_the_classes_of_later_phases(make_analysis: Make) -> None:
    sizes = (2, 1, 1)
    naive = make_analysis([0.9, 0.9, 0.9, 0.9], phase_sizes=sizes)
    cwd = make_analysis([0.1, 0.1, 0.6, 0.2], eta=0.5, phase_sizes=sizes)
    oracle = make_analysis([0.6, 0.6, 0.6, 0.6], method="joint")
    (finding,) = only(compare([naive, cwd, oracle], later=True), "nearer to the oracle")
    assert finding.models[0] == "lucir/glyphs/2-1-1"
    assert finding.models[2] == "joint/glyphs/4"
    assert finding.classes == 2
    assert [case.class_id for case in finding.exceptions] == ["id 3"]  # |0.2 - 0.6| > |0.9 - 0.6|
    assert finding.difference == pytest.approx((0.0 - 0.3 + 0.4 - 0.3) / 2)
    (everywhere,) = only(compare([naive, cwd, oracle]), "nearer to the oracle")
    assert everywhere.classes == 4
    half = make_analysis([0.6, 0.6, 0.6], method="joint")  # more than they began with, but not all they saw
    assert only(compare([naive, cwd, half]), "nearer to the oracle") == []
    assert (finding.later, everywhere.later, finding.phases) == (True, False, (2, 2, 0))
    assert "classes that the models share, of those after phase 0, times seeds" in finding_caption([finding])
    assert "classes that the models share, times seeds" in finding_caption([everywhere])
    assert [case.class_id for case in everywhere.exceptions] == ["id 0", "id 1", "id 3"]


def test_information_should_rise_with_eta(make_analysis: Make) -> None:
    """The proxy of each class; a statement about a rise, so what falls or stays is an exception."""
    plain = [make_analysis([0.6, 0.5], seed=seed, information=-300.0) for seed in (0, 1)]
    with_cwd = [make_analysis([0.5, 0.4], eta=0.5, seed=seed, information=-310.0) for seed in (0, 1)]
    for one, by_class in zip(with_cwd, ([-250.0, -300.0], [-290.0, -320.0]), strict=True):
        one["train"]["raw"]["information"]["by_class"] = by_class
    (finding,) = [one for one in compare([*plain, *with_cwd]) if one.claim == "more information"]
    assert finding.k is None
    assert (finding.cases, finding.holds) == (4, 2)
    assert [(case.class_name, case.seed, case.values) for case in finding.exceptions] == [
        ("class 1", 0, (-300.0, -300.0)),
        ("class 1", 1, (-300.0, -320.0)),
    ]
    assert finding.means == (-300.0, (-250 - 300 - 290 - 320) / 4)
    assert finding.difference == pytest.approx(10.0)
    assert finding.holds_on_average
    header, rows = finding_cells([finding])
    row = dict(zip(header, rows[0], strict=True))
    assert (row["k"], row["means"], row["difference"]) == ("-", "-300.0 -> -290.0", "+10.0 ± 21.2")
    assert "information proxy (without a k) it says above zero" in finding_caption([finding])


def test_what_cannot_be_compared(make_analysis: Make) -> None:
    one, other = make_analysis([0.5, 0.5], seed=0), make_analysis([0.5], seed=1)
    with pytest.raises(UserError, match="no seed in common"):
        compare([one, other])
    left_out: list[str] = []
    assert compare([one, other], left_out=left_out) == []
    assert left_out == ["more classes: lucir/glyphs/1 and lucir/glyphs/2 have no seed in common"]
    with pytest.raises(UserError, match="a seed is there twice"):
        group_analyses([one, one])
    pair = group_analyses([one, make_analysis([0.4], seed=0)])
    with pytest.raises(UserError, match="alpha_3 was not measured"):
        find("more classes", pair, 3)
    with pytest.raises(UserError, match="no class in common that came after phase 0"):
        find("more classes", pair, 1, later=True)
    assert compare([one]) == []


def with_floor(analysis: Analysis, floor: float) -> Analysis:
    """The same, as if it had been analysed with another floor."""
    changed = copy.deepcopy(analysis)
    for split in ("train", "test"):
        for form in ("raw", "unit"):
            changed[split][form]["information"]["floor"] = floor  # type: ignore[literal-required]
    return changed


def test_information_with_different_floors_is_no_finding(make_analysis: Make) -> None:
    plain = [make_analysis([0.6, 0.5], seed=seed) for seed in (0, 1)]
    cwd = [make_analysis([0.5, 0.4], eta=0.5, seed=seed, information=-200.0) for seed in (0, 1)]
    mixed = [with_floor(plain[0], 1e-3), plain[1], *cwd]
    with pytest.raises(UserError, match=r"different floors \(1e-12 and 0.001\): these cannot be compared"):
        compare(mixed)
    left_out: list[str] = []
    found = compare(mixed, left_out=left_out)
    assert {one.claim for one in found} == {"larger eta"}  # alpha_k has no floor
    assert [why.partition(":")[0] for why in left_out] == ["more information"]
    assert f"Left out: {left_out[0]}." in finding_caption(found, left_out)
    only_seed_1 = compare(
        [mixed[0], plain[1], cwd[1]], claims=["more information"]
    )  # of the other floor: seed 0
    assert [one.seeds for one in only_seed_1] == [(1,)]
    (raised,) = compare([with_floor(one, 1e-3) for one in [*plain, *cwd]], claims=["more information"])
    assert raised.holds == raised.cases == 4

    header, rows = text_cells(mixed)  # no mean over different floors, and a word about the column
    assert [row[header.index("information")] for row in rows] == ["-", "-200.0 ± 0.0"]
    assert [row[header.index("floored")] for row in rows] == ["-", "2.0 (of 64)"]
    told = "eigenvalues below 1e-12 or 0.001 are raised to it"
    assert told in (caption := analysis_caption(mixed, "train", "raw"))
    assert "different floors cannot be compared" in caption
    assert "different floors" not in analysis_caption([*plain, *cwd], "train", "raw")


def test_a_k_beyond_the_features(make_analysis: Make) -> None:
    """Every alpha_k from 64 on is 1 for 64 features: shown where asked for, but nothing is said of it."""
    pair = [make_analysis([0.6, 0.5]), make_analysis([0.5, 0.4, 0.3])]
    header, rows = text_cells(pair, ks=[1, 1000])
    assert header[5:7] == ["alpha_1", "alpha_1000"]
    assert [row[6] for row in rows] == ["1.000", "1.000"]
    with pytest.raises(UserError, match="alpha_64 is 1 in every model of 64 features"):
        compare(pair, ks=[64])
    left_out: list[str] = []
    assert [one.k for one in compare(pair, ks=[1, 1000], left_out=left_out)] == [1]
    assert left_out == ["more classes: alpha_1000 is 1 in every model of 64 features"]
    assert compare(pair, ks=[1000], left_out=[]) == []
    with pytest.raises(UserError, match="alpha_3 was not measured"):
        text_cells(pair, ks=[3])


def test_file_and_tables_tell_all_of_it(make_analysis: Make, tmp_path: Path) -> None:
    analyses = [make_analysis([0.5] * 7, seed=seed) for seed in (0, 1)]
    analyses += [make_analysis([0.6] * 8, seed=seed) for seed in (0, 1)]
    findings = compare(analyses)
    write_findings(tmp_path / "comparison.json", findings, split="train", form="raw")
    written = json.loads((tmp_path / "comparison.json").read_text())
    assert written["format"] == "phasezero-comparison-3"
    assert (written["phases"], written["later"]) == ([0], False)
    assert [one["k"] for one in written["findings"]] == [1, 2, 5]
    assert written["findings"][0]["holds"] == 0
    assert len(written["findings"][0]["exceptions"]) == 14

    header, rows = finding_cells(findings)
    first, second = (dict(zip(header, row, strict=True)) for row in rows[:2])
    assert first["holds"] == "0 of 14"
    assert first["difference"] == "+0.1000 ± 0.0000"
    assert "class 0 (2)" in first["exceptions"]
    assert "and 3 more" in first["exceptions"]
    assert (second["statement"], second["models"], second["k"]) == ("", "", "2")

    header, rows = text_cells(analyses)
    row = dict(zip(header, rows[0], strict=True))
    assert row["n"] == "2"
    assert row["accuracy"] == "80.50 ± 0.71"
    assert row["alpha_2"] == "0.600 ± 0.000"
    assert row["floored"] == "2.0 (of 64)"
    assert row["constant"] == "-"  # analyses of earlier versions do not say
    for one, number in zip(analyses, (3, 5), strict=False):
        one["train"]["constant_features"] = number
    header, rows = text_cells(analyses)
    assert rows[0][header.index("constant")] == "4.0 ± 1.4"


def test_a_table_over_the_classes_that_models_share(make_analysis: Make) -> None:
    analyses = [make_analysis([0.6, 0.5]), make_analysis([0.4, 0.2, 0.9])]
    classes = ["id 0", "id 1"]
    header, rows = text_cells(analyses, classes=classes)
    column = header.index("alpha_1")
    assert [row[column] for row in rows] == ["0.550", "0.300"]
    assert [row[column] for row in text_cells(analyses)[1]] == ["0.550", "0.500"]
    caption = analysis_caption(analyses, "train", "raw", classes=classes)
    assert "alpha_k and information: means over the 2 classes that the models are compared on" in caption
    assert "2 classes after phase 0" in analysis_caption(
        analyses, "train", "raw", classes=classes, later=True
    )
    analyses[1]["train"]["raw"]["information"] |= {"by_class": [-100, -110, -900], "floored": [2, 4, 60]}
    row = dict(zip(header, text_cells(analyses, classes=classes)[1][1], strict=True))
    assert (row["information"], row["floored"]) == ("-105.0", "3.0 (of 64)")
    row = dict(zip(header, text_cells(analyses)[1][1], strict=True))
    assert (row["information"], row["floored"]) == ("-370.0", "22.0 (of 64)")
    for columns in (["alpha_1"], ["information"], ["alpha_2", "information"], ["accuracy"]):
        told = analysis_caption(analyses, "train", "raw", columns=columns)
        assert ("alpha_k" in told) == any(name.startswith("alpha") for name in columns)
        assert ("eigenvalues below 1e-12" in told) == ("information" in columns)
    assert chosen_columns((header, rows), ["alpha_1", "model"])[0] == ["model", "alpha_1"]


def test_a_figure_says_which_models_and_classes_it_is_of(make_analysis: Make) -> None:
    analyses = [make_analysis([0.6] * 7, phase_sizes=(1, 6)), make_analysis([0.5] * 7)]
    assert figure_caption(analyses) == "Models after phase 0, 1. Over all classes that each has seen."
    assert figure_caption(analyses[:1], ["id 0", "id 2"]) == (
        "Models after phase 1. Means over the 2 classes that all of them have seen: class 0, class 2."
    )
    assert figure_caption(analyses[:1], [f"id {place}" for place in range(1, 7)], later=True) == (
        "Models after phase 1. Means over the 6 classes that came after phase 0 and that all of them have seen: "
        "class 1, class 2, class 3, class 4, and 2 more."
    )
