"""The paper's statements on made-up spectra, where every exception is known."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from phasezero.analysis.compare import Claim, Finding, compare, find, lines_over_eta, write_findings
from phasezero.errors import UserError
from phasezero.identity import group_analyses
from phasezero.records.analysis import Analysis
from samples import make_analysis


def only(analyses: list[Analysis], claim: Claim, **options: Any) -> list[Finding]:
    return [one for one in compare(analyses, claims=[claim], **options) if one.k in (1, None)]


def test_more_classes_over_all_shared_classes_and_seeds() -> None:
    few = [make_analysis([0.6, 0.5, 0.4], seed=seed) for seed in (0, 1)]
    more = [
        make_analysis([0.5, 0.45, 0.4, 0.1], seed=0),  # equal is not a fall
        make_analysis([0.7, 0.3, 0.2, 0.1], seed=1),
    ]
    (finding,) = only([*more, *few], "more classes")
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


def test_phases_are_not_mixed_up() -> None:
    """Models after phase 0 are paired with each other, later models with the oracle of as many classes."""
    nested = [make_analysis([0.6] * classes) for classes in (2, 3)]
    continued, oracle = make_analysis([0.5] * 4, phase_sizes=(2, 2)), make_analysis([0.4] * 4)
    assert [one.models for one in only([*nested, continued, oracle], "more classes")] == [
        ("lucir/glyphs/2", "lucir/glyphs/3"),
        ("lucir/glyphs/3", "lucir/glyphs/4"),
        ("lucir/glyphs/2-2", "lucir/glyphs/4"),
    ]


def test_equals_are_each_compared_with_the_next() -> None:
    equals = [make_analysis([0.6] * 2, name=name) for name in ("one", "other")]
    found = only([*equals, make_analysis([0.5] * 3)], "more classes")
    assert [one.models for one in found] == [("one", "lucir/glyphs/3"), ("other", "lucir/glyphs/3")]


def test_larger_eta_goes_step_by_step_within_one_protocol() -> None:
    analyses = [
        make_analysis([0.6, 0.5], eta=eta, name=f"eta {eta}", settings={"training.first.lr": lr})
        for eta, lr in ((1.0, 0.2), (0.0, 0.1), (0.5, 0.2))
    ]
    found = only([*analyses, make_analysis([0.1, 0.1, 0.1], eta=2.0)], "larger eta")
    assert [one.models for one in found] == [("eta 0.0", "eta 0.5"), ("eta 0.5", "eta 1.0")]
    # A larger rate may be the reason as well.
    assert [one.also_differ_in for one in found] == [("training.first.lr",), ()]


def test_a_setting_that_an_older_analysis_lacks_is_no_difference() -> None:
    older, newer = make_analysis([0.6]), make_analysis([0.5], eta=0.5)
    del older["config"]["engine"]["photos"]
    (found,) = only([older, newer], "larger eta")
    assert found.also_differ_in == ()


def test_neighbours_go_by_seed() -> None:
    """Seed 0 has an eta between, seed 1 does not: its models are compared all the same, and without seed 0."""
    made = [
        make_analysis([0.5], eta=eta, seed=seed, name=f"eta {eta}")
        for eta, seed in ((0, 0), (0, 1), (0.3, 0), (0.5, 0), (0.5, 1))
    ]
    found = only(made, "larger eta")
    pairs = [("eta 0", "eta 0.3"), ("eta 0", "eta 0.5"), ("eta 0.3", "eta 0.5")]
    assert [one.models for one in found] == pairs
    assert [(one.seeds, one.cases) for one in found] == [((0,), 1), ((1,), 1), ((0,), 1)]
    # With only eta 0.3 of seed 0 and 0.5 of seed 1, each is paired with eta 0, without an error.
    assert [one.seeds for one in only([*made[:3], made[4]], "larger eta")] == [(0,), (1,)]


def test_forms_of_cwd_are_not_ranked_against_each_other() -> None:
    code = make_analysis([0.6], eta=0.5)
    equation = make_analysis([0.5], eta=1.0, settings={"initial.0.form": "equation"})
    assert only([code, equation], "larger eta") == []
    found = only([code, equation, make_analysis([0.7])], "larger eta")
    assert [one.models[0] for one in found] == ["lucir/glyphs/1"] * 2


def test_models_of_one_phase_0_are_one_line_over_eta() -> None:
    """Whatever comes after phase 0; another network is another line."""
    alone, begun = make_analysis([0.5], eta=0.5), make_analysis([0.5], eta=1.0)
    begun["config"]["protocol"] |= {"phase_sizes": [], "base": 1, "step": 7}
    other = make_analysis([0.5], eta=1.0, settings={"network.name": "resnet32"})
    lines = lines_over_eta(group_analyses([alone, begun, other]))
    assert {label: len(groups) for label, groups in lines.items()} == {
        "lucir, classes 1 (network.name=resnet-glyphs)": 2,
        "lucir, classes 1 (network.name=resnet32)": 1,
    }


def test_methods_and_data_are_not_compared_with_each_other() -> None:
    naive, oracle = make_analysis([0.6, 0.6]), make_analysis([0.3] * 4)
    with_cwd, of_podnet = (make_analysis([0.5, 0.5], eta=0.5, method=one) for one in ("lucir", "podnet"))
    about_cwd: list[Claim] = ["larger eta", "nearer to the oracle"]
    assert {one.claim for one in compare([naive, with_cwd, oracle], ks=[1], claims=about_cwd)} == {*about_cwd}
    assert compare([naive, of_podnet, oracle], claims=about_cwd) == []
    for one in (naive, with_cwd, oracle):
        elsewhere = copy.deepcopy(one)
        elsewhere["data"]["name"] = "cifar100"
        models = [elsewhere if other is one else other for other in (naive, with_cwd, oracle)]
        assert only(models, "nearer to the oracle") == []


def test_nearer_to_the_oracle_on_the_classes_of_later_phases() -> None:
    sizes = (2, 1, 1)
    naive = make_analysis([0.9, 0.9, 0.9, 0.9], phase_sizes=sizes)
    cwd = make_analysis([0.1, 0.1, 0.6, 0.2], eta=0.5, phase_sizes=sizes)
    oracle = make_analysis([0.6, 0.6, 0.6, 0.6], method="joint")
    (finding,) = only([naive, cwd, oracle], "nearer to the oracle", later=True)
    assert (finding.models[0], finding.models[2]) == ("lucir/glyphs/2-1-1", "joint/glyphs/4")
    assert (finding.later, finding.phases, finding.classes) == (True, (2, 2, 0), 2)
    assert [case.class_id for case in finding.exceptions] == ["id 3"]  # |0.2 - 0.6| > |0.9 - 0.6|
    assert finding.difference == pytest.approx((0.0 - 0.3 + 0.4 - 0.3) / 2)
    (everywhere,) = only([naive, cwd, oracle], "nearer to the oracle")
    assert (everywhere.later, everywhere.classes) == (False, 4)
    assert [case.class_id for case in everywhere.exceptions] == ["id 0", "id 1", "id 3"]
    half = make_analysis([0.6, 0.6, 0.6], method="joint")  # more than they began with, but not all they saw
    assert only([naive, cwd, half], "nearer to the oracle") == []


def test_information_should_rise_with_eta() -> None:
    """The statement is about a rise of the proxy of each class, so a fall or no change is an exception."""
    plain = [make_analysis([0.6, 0.5], seed=seed, information=-300.0) for seed in (0, 1)]
    with_cwd = [make_analysis([0.5, 0.4], eta=0.5, seed=seed) for seed in (0, 1)]
    for one, by_class in zip(with_cwd, ([-250.0, -300.0], [-290.0, -320.0]), strict=True):
        one["train"]["raw"]["information"]["by_class"] = by_class
    (finding,) = only([*plain, *with_cwd], "more information")
    assert (finding.k, finding.cases, finding.holds) == (None, 4, 2)
    assert [(case.class_name, case.seed, case.values) for case in finding.exceptions] == [
        ("class 1", 0, (-300.0, -300.0)),
        ("class 1", 1, (-300.0, -320.0)),
    ]
    assert finding.means == (-300.0, (-250 - 300 - 290 - 320) / 4)
    assert finding.difference == pytest.approx(10.0)
    assert finding.holds_on_average


def test_what_cannot_be_compared() -> None:
    one, other = make_analysis([0.5, 0.5], seed=0), make_analysis([0.5], seed=1)
    with pytest.raises(UserError, match="no seed in common"):
        compare([one, other])
    left_out: list[str] = []
    assert compare([one, other], left_out=left_out) == []
    assert left_out == ["more classes: lucir/glyphs/1 and lucir/glyphs/2 have no seed in common"]
    with pytest.raises(UserError, match="a seed occurs twice"):
        group_analyses([one, one])
    pair = group_analyses([one, make_analysis([0.4], seed=0)])
    with pytest.raises(UserError, match="alpha_3 was not measured"):
        find("more classes", pair, 3)
    with pytest.raises(UserError, match="no class in common that came after phase 0"):
        find("more classes", pair, 1, later=True)
    assert compare([one]) == []


def with_floor(analysis: Analysis, floor: float) -> Analysis:
    """The same, as if its training images had been analysed with another floor."""
    changed = copy.deepcopy(analysis)
    changed["train"]["raw"]["information"]["floor"] = floor
    return changed


def test_information_with_different_floors_is_no_finding() -> None:
    plain = [make_analysis([0.6, 0.5], seed=seed) for seed in (0, 1)]
    cwd = [make_analysis([0.5, 0.4], eta=0.5, seed=seed, information=-200.0) for seed in (0, 1)]
    mixed = [with_floor(plain[0], 1e-3), plain[1], *cwd]
    with pytest.raises(UserError, match=r"different floors \(1e-12 and 0.001\) and cannot be compared"):
        compare(mixed)
    left_out: list[str] = []
    assert {one.claim for one in compare(mixed, left_out=left_out)} == {"larger eta"}  # alpha_k has no floor
    assert [why.partition(":")[0] for why in left_out] == ["more information"]
    # Only seed 0 has the other floor.
    assert [one.seeds for one in only([mixed[0], plain[1], cwd[1]], "more information")] == [(1,)]
    (raised,) = only([with_floor(one, 1e-3) for one in [*plain, *cwd]], "more information")
    assert raised.holds == raised.cases == 4


def test_nothing_is_said_of_a_k_beyond_the_features() -> None:
    """Every alpha_k from 64 on is 1 for 64 features."""
    pair = [make_analysis([0.6, 0.5]), make_analysis([0.5, 0.4, 0.3])]
    with pytest.raises(UserError, match="alpha_64 is 1 in every model of 64 features"):
        compare(pair, ks=[64])
    left_out: list[str] = []
    assert [one.k for one in compare(pair, ks=[1, 1000], left_out=left_out)] == [1]
    assert left_out == ["more classes: alpha_1000 is 1 in every model of 64 features"]


def test_the_file_tells_every_exception(tmp_path: Path) -> None:
    analyses = [make_analysis([share] * classes, seed=s) for share, classes in ((0.5, 7), (0.6, 8)) for s in (0, 1)]
    write_findings(tmp_path / "comparison.json", compare(analyses), split="train", form="raw")
    written = json.loads((tmp_path / "comparison.json").read_text())
    assert (written["format"], written["phases"], written["later"]) == ("phasezero-comparison-3", [0], False)
    assert [one["k"] for one in written["findings"]] == [1, 2, 5]
    assert written["findings"][0]["holds"] == 0
    assert len(written["findings"][0]["exceptions"]) == 14
