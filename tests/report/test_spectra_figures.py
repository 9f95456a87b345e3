"""Figures of analyses: each format, the words in them, and what cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasezero.errors import UserError
from phasezero.records.analysis import Analysis
from phasezero.report import spectra, style
from phasezero.report.spectra import draw_alpha, draw_alpha_by_class, draw_information
from samples import make_analysis


@pytest.fixture
def analyses() -> list[Analysis]:
    return [
        make_analysis([0.5 - eta / 5] * classes, eta=eta, seed=seed, information=-300 + 10 * seed)
        for eta in (0.0, 0.5, 1.0)
        for classes in (2, 3)
        for seed in (0, 1)
    ]


def words(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def test_names_of_models(analyses: list[Analysis], tmp_path: Path) -> None:
    draw_alpha(analyses, tmp_path / "a.svg", split="test", form="unit")
    text = words(tmp_path / "a.svg")
    assert "lucir+cwd/glyphs/3 (initial.0.weight=0.5)" in text
    assert "unit features, test images" in text
    draw_alpha(analyses[:4], tmp_path / "a.svg", name=spectra.by_classes)
    assert "2 classes" in words(tmp_path / "a.svg")


def test_overlap_with_future_classes_has_panels_of_its_own(analyses: list[Analysis], tmp_path: Path) -> None:
    for future in (False, True):
        for one in analyses if future else ():
            one["test"]["unit"]["overlap"] |= {"seen_as_future": 5.0, "future_as_seen": 9.0}
        spectra.draw_overlap(analyses, tmp_path / "a.svg")
        assert ("future images nearest to a seen class" in words(tmp_path / "a.svg")) == future


def test_panels_keep_a_models_line(analyses: list[Analysis], tmp_path: Path) -> None:
    oracle = [one for one in analyses if one["seen_classes"] == 3 and not one["initial"]]
    few = [one for one in analyses if one["seen_classes"] == 2]
    spectra.draw_alpha_panels({"$few$": [*few, *oracle], "oracle": oracle}, tmp_path / "a.svg")
    text = words(tmp_path / "a.svg")
    assert "$few$" in text
    assert text.count("lucir/glyphs/3") == 1  # one entry of the legend for both panels
    draw_alpha_by_class(analyses, tmp_path / "b.svg", classes=["id 1"])
    assert "class 1" in words(tmp_path / "b.svg")
    assert "class 0" not in words(tmp_path / "b.svg")


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    one, other = make_analysis([0.5], seed=0), make_analysis([0.5], seed=1)
    mimic = make_analysis([0.5], eta=0.5)
    mimic["config"]["initial"][0]["name"] = "mimic"  # another term has no eta
    refused: list[tuple[Callable[..., None], list[Analysis], dict[str, Any]]] = [
        (draw_alpha, [], {}),
        (draw_information, [], {}),
        (draw_information, [mimic], {}),
        (draw_alpha_by_class, [one], {"classes": []}),  # none is not all
    ]
    for draw, some, options in refused:
        with pytest.raises(UserError, match="nothing to draw"):
            draw(some, tmp_path / "a.svg", **options)
    other["k"] = [3, 4, 6]
    with pytest.raises(UserError, match="lucir/glyphs/1: its seeds have no k in common"):
        draw_alpha([one, other], tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every line that is drawn: x, and the values of some runs there."""
    lines: list[Any] = []
    draw_spread = style.draw_spread

    def spy(axes: Any, points: Any, index: int) -> Any:
        lines.append(list(points))
        return draw_spread(axes, points, index)

    monkeypatch.setattr(style, "draw_spread", spy)
    return lines


def test_information_is_drawn_over_chosen_classes_and_one_floor(
    analyses: list[Analysis], tmp_path: Path, drawn: list[Any]
) -> None:
    three = [one for one in analyses if one["seen_classes"] == 3 and one["seed"] == 0]
    for one, middle in zip(three, (-100.0, -200.0, -300.0), strict=True):
        one["train"]["unit"]["information"]["by_class"] = [middle + 30, middle, middle - 90]
    draw_information(three, tmp_path / "a.svg", caption="Models after phase 0.")
    draw_information(three, tmp_path / "b.svg", classes=["id 1"])
    assert drawn == [
        [(0.0, [-120.0]), (0.5, [-220.0]), (1.0, [-320.0])],
        [(0.0, [-100.0]), (0.5, [-200.0]), (1.0, [-300.0])],
    ]
    assert "Models after phase 0." in words(tmp_path / "a.svg")
    three[0]["train"]["unit"]["information"]["floor"] = 1e-3
    with pytest.raises(UserError, match=r"different floors \(1e-12 and 0.001\) cannot be compared"):
        draw_information(three, tmp_path / "c.svg")
    assert not (tmp_path / "c.svg").exists()


def test_classes_of_one_name_have_panels_of_their_own(tmp_path: Path, drawn: list[Any]) -> None:
    one = make_analysis([0.5, 0.4, 0.3])
    one |= {"class_names": ["crane", "crane", "lake"], "k": [1, 2, 32]}
    draw_alpha_by_class([one], tmp_path / "a.svg")
    assert words(tmp_path / "a.svg").count(">32</text>") == 3  # each panel has all its k
    assert [line[0] for line in drawn] == [(1, [0.5]), (1, [0.4]), (1, [0.3])]
    assert words(tmp_path / "a.svg").count("crane") == 2


def test_over_eta_a_line_is_of_models_that_differ_in_nothing_else(tmp_path: Path, drawn: list[Any]) -> None:
    def curve(information: float, etas: tuple[float, ...], **settings: Any) -> list[Analysis]:
        return [make_analysis([0.5], eta=eta, information=information, settings=settings) for eta in etas]

    first = curve(-1.0, (0.0, 0.5, 1.0))
    second = curve(-2.0, (0.0, 0.5), **{"network.name": "resnet32"})
    draw_information([*first, *second, make_analysis([0.5, 0.5], information=-3.0)], path := tmp_path / "a.svg")
    assert drawn == [[(0.0, [-1.0]), (0.5, [-1.0]), (1.0, [-1.0])], [(0.0, [-2.0]), (0.5, [-2.0])], [(0.0, [-3.0])]]
    assert "lucir, classes 1 (network.name=resnet-glyphs)" in words(path)
    assert "lucir, classes 2<" in words(path)  # which has no namesake


def test_over_eta_a_seed_counts_once(tmp_path: Path, drawn: list[Any]) -> None:
    """Runs of other phases share a phase 0."""
    models = [make_analysis([0.5], eta=0.5, seed=seed, information=float(seed), name="alone") for seed in (0, 1)]
    models += [make_analysis([0.5], eta=0.5, seed=seed, information=9.0, name="longer") for seed in (1, 2)]
    draw_information(models, tmp_path / "a.svg")
    assert drawn == [[(0.5, [0.0, 1.0, 9.0])]]


def test_over_eta_a_model_without_cwd_goes_with_every_form_and_training_of_it(tmp_path: Path, drawn: list[Any]) -> None:
    plain, code, equation = (
        make_analysis([0.5], eta=eta, information=float(place)) for place, eta in enumerate((0.0, 0.5, 0.5))
    )
    equation["config"]["initial"][0]["form"] = "equation"
    draw_information([plain, code, equation], path := tmp_path / "a.svg")
    assert drawn == [[(0.0, [0.0]), (0.5, [1.0])], [(0.0, [0.0]), (0.5, [2.0])]]
    assert "lucir, classes 1 (initial.0.form=equation)" in words(path)
    drawn.clear()
    faster = make_analysis([0.5], eta=1.0, information=9.0, settings={"training.first.lr": 0.7})
    draw_information([plain, faster], path)
    assert drawn == [[(0.0, [0.0]), (1.0, [9.0])]]
    drawn.clear()
    draw_information([plain, code, faster], path)  # one line was trained as it was
    assert drawn == [[(0.0, [0.0]), (0.5, [1.0])], [(1.0, [9.0])]]
