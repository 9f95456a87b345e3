"""Files of figures, as other programs read them: text, legend, looks, captions and published points."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import ImageFont

from phasezero.identity import group_by_identity
from phasezero.records.run import Record
from phasezero.report.board import Board, Point, PublishedLine, apart, draw_boards
from phasezero.report.curves import draw_curves
from phasezero.report.looks import method_look
from phasezero.report.panels import Line, Panel, write_panels
from phasezero.report.spectra import draw_alpha
from phasezero.report.style import COLUMN, PAGE, write_figure
from samples import make_analysis, make_record

SVG = "{http://www.w3.org/2000/svg}"
FONT = Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf"
Box = tuple[float, float, float, float]


def group(picture: Path, name: str) -> ElementTree.Element:
    """The part of an SVG with this id."""
    (found,) = (part for part in ElementTree.parse(picture).iter(f"{SVG}g") if part.get("id") == name)
    return found


def texts(part: ElementTree.Element) -> dict[str, Box]:
    """Each text with its left, top, right and bottom (unless it is turned), measured in the font that it names."""
    found: dict[str, Box] = {}
    for text in part.iter(f"{SVG}text"):
        words, style = "".join(text.itertext()), text.get("style", "")
        size = float(re.findall(r"font-size: ([\d.]+)px|font: ([\d.]+)px", style)[0][0])
        width = ImageFont.truetype(FONT, 100).getlength(words) * size / 100
        anchors = re.findall(r"text-anchor: (\w+)", style) or ["start"]
        moved = re.findall(r"translate\(([\d.]+) ([\d.]+)\)", text.get("transform", ""))
        x, y = map(float, moved[0] if moved else (text.get("x", "nan"), text.get("y", "nan")))
        left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchors[0]] * width
        found[words] = left, y - 0.75 * size, left + width, y + 0.2 * size
    return found


def size_of(picture: Path) -> tuple[float, float]:
    *_, width, height = map(float, ElementTree.parse(picture).getroot().get("viewBox", "").split())
    return width, height


def curves_of(picture: Path) -> list[list[tuple[float, float]]]:
    """The corners of every line of data: those that are clipped to the axes, without the grid."""
    lines = []
    for path in group(picture, "axes_1").iter(f"{SVG}path"):
        if path.get("clip-path") and "fill: none" in path.get("style", "") and "#e6e6e6" not in path.get("style", ""):
            numbers = [float(word) for word in re.findall(r"-?[\d.]+", path.get("d", ""))]
            lines.append(list(zip(numbers[::2], numbers[1::2], strict=True)))
    return lines


def runs(count: int, name: str = "") -> list[Record]:
    """Runs of LUCIR with different settings and, unless named alike, with names of their own."""
    chosen = [{"method.margin": 0.1 + place / 100} for place in range(count)]
    return [make_record(name=name or f"run {place}", settings=each) for place, each in enumerate(chosen)]


LONG_NAME = "lucir/glyphs/b50s10," + ",".join(f"method.option_{place}=0.123456" for place in range(9))


@pytest.mark.parametrize(
    ("records", "width"),
    [
        (runs(1), COLUMN),
        (runs(5), COLUMN),
        (runs(3, LONG_NAME), COLUMN),
        ([make_record(sizes=[50, *[2] * 25], drop=1, method=name) for name in ("lucir", "podnet", "bic")], COLUMN),
        (runs(30), PAGE),
    ],
)
def test_a_legend_stays_inside_the_figure_and_off_the_lines(
    tmp_path: Path, records: Sequence[Record], width: float
) -> None:
    picture = tmp_path / "a.svg"
    draw_curves(group_by_identity(records), picture)
    assert size_of(picture)[0] == pytest.approx(72 * width)
    legend = texts(group(picture, "legend_1"))
    assert len(legend) >= len(records)
    for left, top, right, bottom in legend.values():
        assert left >= 0
        assert right <= size_of(picture)[0]
        assert top >= 0
        assert bottom <= size_of(picture)[1]
    lines = curves_of(picture)
    assert len(lines) >= len(records)
    for line in lines:
        for (x, y), (next_x, next_y) in pairwise(line):
            for step in range(51):
                at, height = x + (next_x - x) * step / 50, y + (next_y - y) * step / 50
                for left, top, right, bottom in legend.values():
                    assert not (left < at < right and top < height < bottom)


def test_a_legend_is_inside_the_axes_where_there_is_room(tmp_path: Path) -> None:
    look, heights = method_look("lucir"), {}
    for name, values in (("room", [9.0, 1.0, 1.0, 1.0]), ("full", [9.0, 1.0, 9.0, 1.0, 9.0, 1.0, 9.0, 1.0])):
        line = Line("a name of some length", [(place, [value]) for place, value in enumerate(values)], look)
        write_panels(tmp_path / f"{name}.svg", [Panel([line], "x", "y")])
        heights[name] = size_of(tmp_path / f"{name}.svg")[1]
    assert heights["room"] < heights["full"]  # which grew by the legend below
    axes = [group(tmp_path / f"{name}.svg", "axes_1") for name in heights]
    assert ["a name of some length" in texts(part) for part in axes] == [True, False]


def test_text_is_text_and_the_caption_is_beside_the_picture(tmp_path: Path) -> None:
    files = draw_curves(group_by_identity(runs(2)), tmp_path / "a.svg", caption="What is shown.")
    assert [path.name for path in files] == ["a.svg", "a-caption.txt", "a-figure.tex"]
    drawn = texts(ElementTree.parse(files[0]).getroot())
    assert {"Number of classes seen", "Accuracy on all seen classes (%)"} < set(drawn)
    assert "shown" not in " ".join(drawn)
    assert files[1].read_text() == "What is shown. n=1.\n"
    assert "\\caption{What is shown. n=1.}\n" in files[2].read_text()
    assert draw_curves(group_by_identity(runs(2)), tmp_path / "b.png") == [tmp_path / "b.png"]


def test_text_in_a_pdf_can_be_edited(tmp_path: Path) -> None:
    draw_curves(group_by_identity(runs(1)), tmp_path / "a.pdf")
    content = (tmp_path / "a.pdf").read_bytes()
    assert b"/CIDFontType2" in content  # TrueType
    assert b"/Type3" not in content


@pytest.mark.parametrize(
    ("suffix", "inches", "lines"),
    [
        (".pdf", 3.3, [r"\begin{figure}", r"\includegraphics[width=\linewidth]{my_figure}", r"\end{figure}"]),
        (".pdf", 6.9, [r"\begin{figure*}", r"\end{figure*}"]),
        (".svg", 3.3, [r"\includesvg[width=\linewidth]{my_figure}"]),
    ],
)
def test_latex_includes_the_figure_and_its_caption_is_escaped(
    tmp_path: Path, suffix: str, inches: float, lines: Sequence[str]
) -> None:
    caption = r"70% of A & B_1 cost $5 #1 {x} \y ~ ^ 1 ± 2 <3> |"
    escaped = (
        r"70\% of A \& B\_1 cost \$5 \#1 \{x\} \textbackslash{}y \textasciitilde{} \textasciicircum{} 1 $\pm$ 2 "
        r"\textless{}3\textgreater{} \textbar{}"
    )
    write_figure(tmp_path / f"my_figure{suffix}", lambda: Figure(figsize=(inches, 2)), caption)
    written = (tmp_path / "my_figure-figure.tex").read_text().splitlines()
    assert rf"\caption{{{escaped}}}" in written
    assert r"\label{fig:my_figure}" in written
    assert set(lines) <= set(written)
    assert (tmp_path / "my_figure-caption.txt").read_text() == f"{caption}\n"


def test_a_name_that_latex_cannot_read_is_pointed_out(tmp_path: Path) -> None:
    """LaTeX takes the rest of the line for a comment, and has no escape in the name of a file."""
    for name, told in (("50%.pdf", True), ("50.pdf", False)):
        write_figure(tmp_path / name, lambda: Figure(figsize=(3, 2)), "A caption.")
        written = (tmp_path / f"{Path(name).stem}-figure.tex").read_text()
        assert ("LaTeX cannot read a file of this name" in written) == told


def strokes(picture: Path) -> set[tuple[str, str]]:
    """The colour and dashes of everything drawn."""
    styles = [part.get("style", "") for part in ElementTree.parse(picture).iter()]
    found = [
        (re.findall(r"stroke: (#\w+)", style), re.findall(r"stroke-dasharray: ([\d., ]+)", style)) for style in styles
    ]
    return {(colour[0], "".join(dashes)) for colour, dashes in found if colour}


def test_a_method_has_its_look_in_every_figure(tmp_path: Path) -> None:
    plain, with_cwd = method_look("lucir"), method_look("lucir", ["cwd"])
    dashes = ",".join(f"{1.2 * part:g}" for part in with_cwd.dash)  # in widths of a line of 1.2 points
    wanted = {(plain.colour.lower(), ""), (with_cwd.colour.lower(), dashes)}
    # LUCIR is the first line of one figure and the last of the others.
    records = [make_record(), make_record(initial=["cwd:0.5"]), make_record(method="podnet")]
    draw_curves(group_by_identity(records), tmp_path / "curves.svg")
    draw_curves(group_by_identity(records[::-1]), tmp_path / "turned.svg")
    draw_alpha([make_analysis([0.5, 0.4], eta=eta) for eta in (0.0, 0.5)], tmp_path / "alpha.svg")
    for name in ("curves", "turned", "alpha"):
        assert wanted <= strokes(tmp_path / f"{name}.svg"), name
    published = PublishedLine("LUCIR + CwD", 67.0, with_cwd)
    board = Board("S=10", [Point("LUCIR", "lucir", "plain", 100.0, [66.0])], [published])
    draw_boards([board], tmp_path / "board.svg", device="cpu")
    assert plain.colour.lower() in {colour for colour, _ in strokes(tmp_path / "board.svg")}
    assert any(colour == with_cwd.colour.lower() and dashes for colour, dashes in strokes(tmp_path / "board.svg"))


def test_the_papers_average_is_a_hollow_marker_beside_the_curves(tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    draw_curves(group_by_identity([make_record(seed=0), make_record(seed=1)]), picture)
    strip = group(picture, "axes_2")
    assert {"average", "ours", "paper"} <= set(texts(strip))
    # Two grid lines of the left axes tell which height is which accuracy.
    heights: dict[float, float] = {}
    for tick in group(picture, "axes_1").iter(f"{SVG}g"):
        if re.fullmatch(r"ytick_\d+", tick.get("id", "")):
            (label,) = texts(tick)
            heights[float(label)] = float(next(tick.iter(f"{SVG}use")).get("y", "nan"))
    (low, y_low), *_, (high, y_high) = sorted(heights.items())
    marks = [use for use in strip.iter(f"{SVG}use") if "fill: #ffffff; stroke: #005e9b" in use.get("style", "")]
    (hollow,) = marks
    value = low + (float(hollow.get("y", "nan")) - y_low) / (y_high - y_low) * (high - low)
    assert value == pytest.approx(66.27, abs=0.01)  # LUCIR, CIFAR100, S=10 in the paper's Table 1
    assert "Hollow markers: numbers of the CwD paper." in (tmp_path / "a-caption.txt").read_text()


def test_nothing_is_hollow_where_the_paper_has_no_number(tmp_path: Path) -> None:
    draw_curves(group_by_identity([make_record(settings={"method.margin": 0.25})]), tmp_path / "a.svg")
    assert "paper" not in (tmp_path / "a.svg").read_text()
    assert "Hollow" not in (tmp_path / "a-caption.txt").read_text()


def test_a_panel_with_published_points_names_them_in_its_legend(tmp_path: Path) -> None:
    line = Line("S=10", [(0, [60.0]), (0.5, [61.0])], method_look("lucir"), [(0.5, 62.0, 0.3)])
    write_panels(tmp_path / "a.svg", [Panel([line], "eta", "accuracy")])
    assert {"S=10", "paper"} == set(texts(group(tmp_path / "a.svg", "legend_1")))


@pytest.mark.parametrize(
    ("places", "moved"),
    [
        ([], []),
        ([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]),
        ([0.5, 0.5], [0.45, 0.55]),
        ([0.3, 0.4, 0.42, 0.43], [0.2375, 0.3375, 0.4375, 0.5375]),
    ],
)
def test_labels_of_a_board_are_moved_apart_around_their_middle(places: list[float], moved: list[float]) -> None:
    assert apart(places, 0.1) == pytest.approx(moved)
