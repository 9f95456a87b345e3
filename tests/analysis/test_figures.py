"""Figures of analyses: each format, the words in them, and what cannot be drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasezero.analysis import figures
from phasezero.analysis.figures import (
    by_classes,
    by_eta,
    draw_alpha,
    draw_alpha_by_class,
    draw_alpha_panels,
    draw_information,
    draw_overlap,
)
from phasezero.analysis.record import Analysis
from phasezero.errors import UserError
from phasezero.results.style import draw_spread

Make = Callable[..., Analysis]


@pytest.fixture
def analyses(make_analysis: Make) -> list[Analysis]:
    return [
        make_analysis([0.5 - eta / 5] * classes, eta=eta, seed=seed, information=-300 + 10 * seed)
        for eta in (0.0, 0.5, 1.0)
        for classes in (2, 3)
        for seed in (0, 1)
    ]


def words(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("draw", [draw_alpha, draw_alpha_by_class, draw_information, draw_overlap])
@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_each_format_is_written_the_same_twice(
    analyses: list[Analysis], tmp_path: Path, draw: Callable[..., None], suffix: str, start: bytes
) -> None:
    draw(analyses, path := tmp_path / f"figure{suffix}")
    first = path.read_bytes()
    assert first.startswith(start)
    draw(analyses, path)
    assert path.read_bytes() == first


def test_names_of_models(analyses: list[Analysis], tmp_path: Path) -> None:
    draw_alpha(analyses, tmp_path / "a.svg", split="test", form="unit")
    text = words(tmp_path / "a.svg")
    assert "lucir+cwd/glyphs/3 (initial=cwd:0.5)" in text
    assert "unit features, test images" in text
    draw_alpha(analyses, tmp_path / "b.svg", name=by_eta)
    assert "3 classes, η = 0.5" in words(tmp_path / "b.svg")
    draw_alpha(analyses[:4], tmp_path / "c.svg", name=by_classes)
    assert "2 classes" in words(tmp_path / "c.svg")


def test_panels_keep_a_models_line(analyses: list[Analysis], tmp_path: Path) -> None:
    oracle = [one for one in analyses if one["seen_classes"] == 3 and not one["initial"]]
    few = [one for one in analyses if one["seen_classes"] == 2]
    draw_alpha_panels({"$few$": [*few, *oracle], "oracle": oracle}, tmp_path / "a.svg")
    text = words(tmp_path / "a.svg")
    assert "$few$" in text
    assert text.count("lucir/glyphs/3") == 1  # one entry of the legend for both panels
    draw_alpha_by_class(analyses, tmp_path / "b.svg", classes=["id 1"])
    assert "class 1" in words(tmp_path / "b.svg")
    assert "class 0" not in words(tmp_path / "b.svg")


def test_overlap_with_future_classes_has_panels_of_its_own(analyses: list[Analysis], tmp_path: Path) -> None:
    draw_overlap(analyses, tmp_path / "a.svg")
    assert "future" not in words(tmp_path / "a.svg")
    for one in analyses:
        one["test"]["unit"]["overlap"] |= {"seen_as_future": 5.0, "future_as_seen": 9.0}
    draw_overlap(analyses, tmp_path / "b.svg")
    assert "future images nearest to a seen class" in words(tmp_path / "b.svg")


def test_nothing_to_draw(make_analysis: Make, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to draw"):
        draw_alpha([], tmp_path / "a.svg")
    with pytest.raises(UserError, match="nothing to draw"):
        draw_information([], tmp_path / "a.svg")
    assert not list(tmp_path.iterdir())


Lines = list[tuple[list[float], list[list[float]]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """Every line that is drawn: x, and the values of some runs there."""
    lines: Lines = []

    def spy(axes: Any, x: Any, values: Any, index: int) -> Any:
        lines.append((list(x), values))
        return draw_spread(axes, x, values, index)

    monkeypatch.setattr(figures, "draw_spread", spy)
    return lines


def test_information_is_drawn_over_chosen_classes_and_one_floor(
    analyses: list[Analysis], tmp_path: Path, drawn: Lines
) -> None:
    three = [one for one in analyses if one["seen_classes"] == 3 and one["seed"] == 0]
    for one, middle in zip(three, (-100.0, -200.0, -300.0), strict=True):
        one["train"]["unit"]["information"]["by_class"] = [middle + 30, middle, middle - 90]
    draw_information(three, tmp_path / "a.svg", caption="Models after phase 0.")
    draw_information(three, tmp_path / "b.svg", classes=["id 1"])
    etas = [0.0, 0.5, 1.0]
    assert drawn == [(etas, [[-120.0], [-220.0], [-320.0]]), (etas, [[-100.0], [-200.0], [-300.0]])]
    assert "Models after phase 0." in words(tmp_path / "a.svg")

    three[0]["train"]["unit"]["information"]["floor"] = 1e-3
    with pytest.raises(UserError, match=r"different floors \(1e-12 and 0.001\) cannot be compared"):
        draw_information(three, tmp_path / "c.svg")
    assert not (tmp_path / "c.svg").exists()


def test_seeds_with_other_k_share_a_line(make_analysis: Make, tmp_path: Path) -> None:
    one, other = make_analysis([0.5], seed=0), make_analysis([0.5], seed=1)
    other["k"] = [1, 3, 5]  # alpha_1 and alpha_5 are in both
    draw_alpha([one, other], tmp_path / "a.svg")
    assert (tmp_path / "a.svg").exists()
    other["k"] = [3, 4, 6]
    with pytest.raises(UserError, match="lucir/glyphs/1: its seeds have no k in common"):
        draw_alpha([one, other], tmp_path / "b.svg")
    assert not (tmp_path / "b.svg").exists()


def test_all_k_of_a_panel_have_ticks(make_analysis: Make, tmp_path: Path) -> None:
    """Whichever line is the last."""
    one, other = make_analysis([0.5]), make_analysis([0.5], eta=0.5)
    one["k"] = [1, 2, 32]
    draw_alpha([one, other], tmp_path / "a.svg")
    assert ">32</text>" in words(tmp_path / "a.svg")


def test_classes_of_one_name_have_panels_of_their_own(
    make_analysis: Make, tmp_path: Path, drawn: Lines
) -> None:
    one = make_analysis([0.5, 0.4, 0.3])
    one["class_names"] = ["crane", "crane", "lake"]
    draw_alpha_by_class([one], tmp_path / "a.svg")
    assert [values[0] for _, values in drawn] == [[0.5], [0.4], [0.3]]
    assert words(tmp_path / "a.svg").count("crane") == 2
    with pytest.raises(UserError, match="nothing to draw"):
        draw_alpha_by_class([one], tmp_path / "b.svg", classes=[])  # none is not all


def test_over_eta_a_line_is_of_models_that_differ_in_nothing_else(
    make_analysis: Make, tmp_path: Path, drawn: Lines
) -> None:
    def curve(information: float, etas: tuple[float, ...], **settings: Any) -> list[Analysis]:
        chosen = {key.replace("__", "."): value for key, value in settings.items()}
        return [make_analysis([0.5], eta=eta, information=information, settings=chosen) for eta in etas]

    first, second = curve(-1.0, (0.0, 0.5, 1.0)), curve(-2.0, (0.0, 0.5), protocol__data="cifar100")
    draw_information([*first, *second], path := tmp_path / "a.svg")
    assert drawn == [([0.0, 0.5, 1.0], [[-1.0]] * 3), ([0.0, 0.5], [[-2.0]] * 2)]
    assert "lucir, classes 1 (protocol.data=glyphs)" in words(path)
    assert "lucir, classes 1 (protocol.data=cifar100)" in words(path)

    drawn.clear()
    second = curve(-2.0, (0.0, 0.5), network__name="resnet32")
    draw_information([*first, *second, make_analysis([0.5, 0.5], information=-3.0)], path)
    assert [(len(etas), values[0]) for etas, values in drawn] == [(3, [-1.0]), (2, [-2.0]), (1, [-3.0])]
    assert "lucir, classes 1 (network.name=resnet-glyphs)" in words(path)
    assert "lucir, classes 2<" in words(path)  # which has no namesake


def test_over_eta_a_model_without_cwd_goes_with_every_form_and_training_of_it(
    make_analysis: Make, tmp_path: Path, drawn: Lines
) -> None:
    plain, code, equation, mimic = (
        make_analysis([0.5], eta=eta, information=float(place))
        for place, eta in enumerate((0.0, 0.5, 0.5, 0.5))
    )
    equation["config"]["initial"][0]["form"] = "equation"
    mimic["config"]["initial"][0]["name"] = "mimic"  # another term has no eta
    draw_information([plain, code, equation, mimic], path := tmp_path / "a.svg")
    assert drawn == [([0.0, 0.5], [[0.0], [1.0]]), ([0.0, 0.5], [[0.0], [2.0]])]
    assert "lucir, classes 1 (cwd.form=code)" in words(path)
    assert "lucir, classes 1 (cwd.form=equation)" in words(path)
    with pytest.raises(UserError, match="nothing to draw"):
        draw_information([mimic], tmp_path / "b.svg")

    drawn.clear()
    faster = make_analysis([0.5], eta=1.0, information=9.0, settings={"training.first.lr": 0.7})
    draw_information([plain, faster], path)
    assert drawn == [([0.0, 1.0], [[0.0], [9.0]])]
    drawn.clear()
    draw_information([plain, code, faster], path)  # one line was trained as it was
    assert drawn == [([0.0, 0.5], [[0.0], [1.0]]), ([1.0], [[9.0]])]
