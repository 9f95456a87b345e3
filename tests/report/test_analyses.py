"""Tables and captions of analyses and findings: what each cell says, and what is not compared."""

from __future__ import annotations

from typing import Any

import pytest

from phasezero.analysis.compare import compare
from phasezero.errors import UserError
from phasezero.records.analysis import Analysis
from phasezero.report.analyses import analysis_grid, figure_caption, findings_grid
from samples import make_analysis


def rows_of(analyses: list[Analysis], **options: Any) -> list[dict[str, str]]:
    header, *rows = analysis_grid(analyses, **options).lines()
    return [dict(zip(header, row, strict=True)) for row in rows]


def findings_of(analyses: list[Analysis]) -> list[dict[str, str]]:
    header, *rows = findings_grid(compare(analyses)).lines()
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_row_is_the_mean_over_seeds() -> None:
    analyses = [make_analysis([0.5] * 7, seed=seed) for seed in (0, 1)]
    (row,) = rows_of(analyses)
    assert (row["n"], row["accuracy"], row["alpha_2"]) == ("2", "80.50 ± 0.71", "0.600 ± 0.000")
    assert (row["floored"], row["constant"]) == ("2.0 (of 64)", "-")  # older analyses do not say how many are constant
    for one, number in zip(analyses, (3, 5), strict=True):
        one["train"]["constant_features"] = number
    assert rows_of(analyses)[0]["constant"] == "4.0 ± 1.4"
    assert rows_of(analyses, ks=[1, 1000])[0]["alpha_1000"] == "1.000 ± 0.000"  # all features hold all there is
    with pytest.raises(UserError, match="alpha_3 was not measured"):
        rows_of(analyses, ks=[3])


def test_a_table_over_the_classes_that_models_share() -> None:
    analyses = [make_analysis([0.6, 0.5]), make_analysis([0.4, 0.2, 0.9])]
    analyses[1]["train"]["raw"]["information"] |= {"by_class": [-100, -110, -900], "floored": [2, 4, 60]}
    shared, seen = rows_of(analyses, classes=["id 0", "id 1"]), rows_of(analyses)
    assert [row["alpha_1"] for row in shared] == ["0.550", "0.300"]
    assert [row["alpha_1"] for row in seen] == ["0.550", "0.500"]
    assert (shared[1]["information"], shared[1]["floored"]) == ("-105.0", "3.0 (of 64)")
    assert (seen[1]["information"], seen[1]["floored"]) == ("-370.0", "22.0 (of 64)")
    assert analysis_grid(analyses, columns=["alpha_1", "model"]).header == ["model", "alpha_1"]
    assert "the 2 classes after phase 0" in analysis_grid(analyses, classes=["id 0", "id 1"], later=True).caption
    told = figure_caption(analyses, ["id 0", "id 1"])
    assert (told[:22], told[-17:]) == ("Models after phase 0. ", "class 0, class 1.")
    for columns in (["alpha_1"], ["information"], ["alpha_2", "information"], ["accuracy"]):
        told = analysis_grid(analyses, columns=columns).caption
        assert ("alpha_k" in told) == any(name.startswith("alpha") for name in columns)
        assert ("eigenvalues below 1e-12" in told) == ("information" in columns)


def test_information_with_different_floors_has_no_mean() -> None:
    mixed = [make_analysis([0.6], seed=0), make_analysis([0.6], seed=1), make_analysis([0.5], eta=0.5)]
    assert "different floors" not in analysis_grid(mixed).caption
    mixed[0]["train"]["raw"]["information"]["floor"] = 1e-3
    rows = rows_of(mixed)
    assert [(row["information"], row["floored"]) for row in rows] == [("-", "-"), ("-300.0", "2.0 (of 64)")]
    assert "below 1e-12 or 0.001" in (caption := analysis_grid(mixed).caption)
    assert "different floors cannot be compared" in caption


def test_findings_tell_how_often_by_how_much_and_where_not() -> None:
    analyses = [make_analysis([share] * size, seed=s) for share, size in ((0.5, 7), (0.6, 8)) for s in (0, 1)]
    first, second, _ = findings_of(analyses)
    assert (first["holds"], first["difference"]) == ("0 of 14", "+0.1000 ± 0.0000")
    assert first["exceptions"] == "class 0 (2), class 1 (2), class 2 (2), class 3 (2), and 3 more"
    assert (second["statement"], second["models"], second["k"]) == ("", "", "2")  # words are not repeated
    plain, cwd = make_analysis([0.6]), make_analysis([0.5], eta=0.5, settings={"training.first.lr": 0.7})
    cwd["train"]["raw"]["information"]["by_class"] = [-290.0]
    last = findings_of([plain, cwd])[-1]
    assert (last["k"], last["means"], last["difference"]) == ("-", "-300.0 -> -290.0", "+10.0")
    caption = findings_grid(compare([plain, cwd]), ["models of another floor"]).caption
    assert "also differ in training.first.lr." in caption
    assert "Left out: models of another floor." in caption


def test_exceptions_of_one_name_are_counted_apart() -> None:
    few = [make_analysis([0.4, 0.4], seed=seed) for seed in (0, 1)]
    more = [make_analysis([0.5, 0.3 + seed / 5, 0.1], seed=seed) for seed in (0, 1)]
    for one in (*few, *more):
        one["class_names"][:2] = ["crane", "crane"]
    assert findings_of([*few, *more])[0]["exceptions"] == "crane (2), crane"
