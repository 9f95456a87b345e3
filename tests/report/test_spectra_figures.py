"""Figures of analyses: the lines and the words in them, and what cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasezero.errors import UserError
from phasezero.records.analysis import Analysis
from phasezero.report import panels
from phasezero.report.spectra import by_classes, draw_alpha, draw_information, draw_overlap
from samples import make_analysis

Draw = Callable[..., tuple[list[Any], str]]


@pytest.fixture
def analyses() -> list[Analysis]:
    return [
        make_analysis([0.5 - eta / 5] * classes, eta=eta, seed=seed, information=-300 + 10 * seed)
        for eta in (0.0, 0.5, 1.0)
        for classes in (2, 3)
        for seed in (0, 1)
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Draw:
    """Draws a figure and returns every line (each x with the values of some runs there), its text and its caption."""
    lines: list[Any] = []
    draw_line, path = panels.draw_line, tmp_path / "a.svg"

    def spy(axes: Any, line: Any) -> Any:
        lines.append(list(line.points))
        return draw_line(axes, line)

    def draw(make: Callable[..., None], models: Any, **options: Any) -> tuple[list[Any], str]:
        lines.clear()
        make(models, path, **options)
        texts = [file.read_text(encoding="utf-8") for file in (path, tmp_path / "a-caption.txt")]
        return list(lines), "\n".join(texts)

    monkeypatch.setattr(panels, "draw_line", spy)
    return draw


def test_names_of_models(analyses: list[Analysis], drawn: Draw) -> None:
    _, text = drawn(draw_alpha, analyses, split="test", form="unit")
    assert "lucir+cwd/glyphs/3 " in text
    assert "(initial.0.weight=0.5)" in text
    assert "Unit features of test images." in text
    assert "2 classes" in drawn(draw_alpha, analyses[:4], name=by_classes)[1]


def test_overlap_with_future_classes_has_panels_of_its_own(analyses: list[Analysis], drawn: Draw) -> None:
    future = "future images nearest to a seen class"
    assert future not in drawn(draw_overlap, analyses)[1]
    for one in analyses:
        one["test"]["unit"]["overlap"] |= {"seen_as_future": 5.0, "future_as_seen": 9.0}
    assert future in drawn(draw_overlap, analyses)[1]


def test_panels_keep_a_models_line(analyses: list[Analysis], drawn: Draw) -> None:
    oracle = [one for one in analyses if one["seen_classes"] == 3 and not one["initial"]]
    few = [one for one in analyses if one["seen_classes"] == 2]
    _, text = drawn(draw_alpha, {"$few$": [*few, *oracle], "oracle": oracle})
    assert "$few$" in text
    assert text.count("lucir/glyphs/3") == 1  # one entry of the legend for both panels
    _, text = drawn(draw_alpha, analyses, classes=["id 1"], by_class=True)
    assert ("class 1" in text, "class 0" in text) == (True, False)


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    one, other = make_analysis([0.5], seed=0), make_analysis([0.5], seed=1)
    mimic = make_analysis([0.5], eta=0.5)
    mimic["config"]["initial"][0]["name"] = "mimic"  # another term has no eta
    refused: list[tuple[Callable[..., None], list[Analysis], dict[str, Any]]] = [
        (draw_alpha, [], {}),
        (draw_information, [], {}),
        (draw_information, [mimic], {}),
        (draw_alpha, [one], {"classes": [], "by_class": True}),  # none is not all
    ]
    for draw, some, options in refused:
        with pytest.raises(UserError, match="nothing to draw"):
            draw(some, tmp_path / "a.svg", **options)
    other["k"] = [3, 4, 6]
    with pytest.raises(UserError, match="lucir/glyphs/1: the seeds have no k in common"):
        draw_alpha([one, other], tmp_path / "a.svg")
    other["train"]["unit"]["information"]["floor"] = 1e-3
    with pytest.raises(UserError, match=r"different floors \(1e-12 and 0.001\) cannot be compared"):
        draw_information([one, other], tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


def test_information_is_drawn_over_chosen_classes(analyses: list[Analysis], drawn: Draw) -> None:
    three = [one for one in analyses if one["seen_classes"] == 3 and one["seed"] == 0]
    for one, middle in zip(three, (-100.0, -200.0, -300.0), strict=True):
        one["train"]["unit"]["information"]["by_class"] = [middle + 30, middle, middle - 90]
    lines, text = drawn(draw_information, three, caption="Models after phase 0.")
    assert lines == [[(0.0, [-120.0]), (0.5, [-220.0]), (1.0, [-320.0])]]
    assert "Models after phase 0." in text
    lines, _ = drawn(draw_information, three, classes=["id 1"])
    assert lines == [[(0.0, [-100.0]), (0.5, [-200.0]), (1.0, [-300.0])]]


def test_classes_of_one_name_have_panels_of_their_own(drawn: Draw) -> None:
    one = make_analysis([0.5, 0.4, 0.3])
    one |= {"class_names": ["crane", "crane", "lake"], "k": [1, 2, 32]}
    lines, text = drawn(draw_alpha, [one], by_class=True)
    assert [line[0] for line in lines] == [(1, [0.5]), (1, [0.4]), (1, [0.3])]
    assert (text.count(">32</text>"), text.count("crane")) == (3, 2)  # each panel has all its k


def test_over_eta_a_line_is_of_models_that_differ_in_nothing_else(drawn: Draw) -> None:
    models = [make_analysis([0.5], eta=eta, information=-1.0) for eta in (0.0, 0.5, 1.0)]
    other = {"network.name": "resnet32"}
    models += [make_analysis([0.5], eta=eta, information=-2.0, settings=other) for eta in (0.0, 0.5)]
    lines, text = drawn(draw_information, [*models, make_analysis([0.5, 0.5], information=-3.0)])
    assert lines == [[(0.0, [-1.0]), (0.5, [-1.0]), (1.0, [-1.0])], [(0.0, [-2.0]), (0.5, [-2.0])], [(0.0, [-3.0])]]
    assert "lucir, classes 1 (network.name=resnet-glyphs)" in text
    assert "lucir, classes 2<" in text  # which has no namesake


def test_over_eta_a_seed_counts_once(drawn: Draw) -> None:
    """Runs of other phases share a phase 0."""
    models = [make_analysis([0.5], eta=0.5, seed=seed, information=float(seed), name="alone") for seed in (0, 1)]
    models += [make_analysis([0.5], eta=0.5, seed=seed, information=9.0, name="longer") for seed in (1, 2)]
    assert drawn(draw_information, models)[0] == [[(0.5, [0.0, 1.0, 9.0])]]


def test_over_eta_a_model_without_cwd_goes_with_every_form_and_training_of_it(drawn: Draw) -> None:
    plain, code = make_analysis([0.5], information=0.0), make_analysis([0.5], eta=0.5, information=1.0)
    equation = make_analysis([0.5], eta=0.5, information=2.0, settings={"initial.0.form": "equation"})
    faster = make_analysis([0.5], eta=1.0, information=9.0, settings={"training.first.lr": 0.7})
    lines, text = drawn(draw_information, [plain, code, equation])
    assert lines == [[(0.0, [0.0]), (0.5, [1.0])], [(0.0, [0.0]), (0.5, [2.0])]]
    assert "lucir, classes 1 (initial.0.form=equation)" in text
    assert drawn(draw_information, [plain, faster])[0] == [[(0.0, [0.0]), (1.0, [9.0])]]
    lines, _ = drawn(draw_information, [plain, code, faster])  # one line was trained as it was
    assert lines == [[(0.0, [0.0]), (0.5, [1.0])], [(1.0, [9.0])]]
