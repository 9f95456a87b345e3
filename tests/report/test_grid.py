"""The four ways to print a table: what each must escape, what each must keep, and how columns fit a terminal."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from phasezero.report.grid import Cell, Grid, Spread, comma_separated, fit, latex, latex_text, markdown, wrap

GRID = Grid(
    ["run", "n", "average", "gap"],
    [
        ["50% of $a_b & {c}", "3", Spread(66.123456, 0.284), Spread(-0.15, sign=True)],
        ["x|y", "1", Spread(7.0, note="head"), "-"],
    ],
    "Mean ± deviation of #1.",
)


def test_latex_is_booktabs_and_escaped() -> None:
    text = latex(GRID)
    lines = text.splitlines()
    assert lines[1:5] == [r"\begin{table}", r"\centering", r"\begin{tabular}{lrrr}", r"\toprule"]
    assert r"50\% of \$a\_b \& \{c\} & 3 & 66.12 $\pm$ 0.28 & $-0.15$ \\" in lines
    assert r"x\textbar{}y & 1 & 7.00 (head) & -- \\" in lines
    assert r"\caption{Mean $\pm$ deviation of \#1.}" in lines
    assert text.count(r"\begin") == text.count(r"\end")
    assert latex_text("a\\b ~^") == r"a\textbackslash{}b \textasciitilde{}\textasciicircum{}"


@pytest.mark.parametrize("name", ["[a]", "*a", "a[b]"])
def test_no_name_is_taken_for_an_option_of_the_line_before(name: str) -> None:
    lines = latex(Grid([name, "gap"], [[name, Spread(-1.5, 0.25, "head")], ["b", Spread(0.5, sign=True)]])).splitlines()
    start = name if name == "a[b]" else "{}" + name
    first = lines.index(r"\toprule") + 1
    assert lines[first] == start + r" & gap \\"
    assert lines[first + 2 : first + 4] == [start + r" & $-1.50$ $\pm$ 0.25 (head) \\", r"b & $+0.50$ \\"]


def test_latex_tables_stay_within_the_page() -> None:
    """Small tables are unchanged, wide tables scaled, long tables on several pages, long words broken."""
    assert "resizebox" not in latex(GRID)
    assert "longtable" not in latex(GRID)
    wide = latex(Grid(["method", *map(str, range(9))], [["LUCIR", *[Spread(66.1, 0.2)] * 9]]))
    assert r"\resizebox{\linewidth}{!}{%" in wide
    assert "graphicx" in wide
    words = latex(Grid(["what", "n"], [["a name of more than a few characters", "1"]] * 50))
    assert r"\begin{longtable}{p{12em}r}" in words
    assert words.count(r"\\") == 51
    assert all(text.count("{") == text.count("}") for text in (wide, words))


def test_csv_has_numbers_and_its_own_column_for_the_deviation() -> None:
    header, first, second = csv.reader(io.StringIO(comma_separated(GRID)))
    assert header == ["run", "n", "average", "average std", "average note", "gap"]
    assert first == ["50% of $a_b & {c}", "3", "66.123456", "0.284", "", "-0.15"]
    assert second == ["x|y", "1", "7.0", "", "head", ""]


def test_no_spreadsheet_takes_a_name_for_a_formula() -> None:
    names = ["=1+1", "+cmd", "-cmd", "@sum", "\t=1", "a=b", "-"]
    numbers: list[Cell] = ["-0.35", "+0.10", "1e-3", "3", Spread(-0.5, sign=True), Spread(2.0, 0.5), "-"]
    grid = Grid(["run", "gap"], [[name, number] for name, number in zip(names, numbers, strict=True)])
    rows = list(csv.reader(io.StringIO(comma_separated(grid))))[1:]
    assert [row[0] for row in rows] == ["'=1+1", "'+cmd", "'-cmd", "'@sum", "'\t=1", "a=b", ""]
    assert [row[1] for row in rows] == ["-0.35", "+0.10", "1e-3", "3", "-0.5", "2.0", ""]


def test_markdown_aligns_numbers_and_lets_no_bar_or_html_through() -> None:
    lines = markdown(GRID).splitlines()
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[3] == r"| x\|y | 1 | 7.00 (head) | - |"
    assert lines[-1] == "Mean ± deviation of #1."
    grid = Grid(["run"], [["<script>alert(1)</script>"]], "Of <img src=x onerror=alert(1)>\nand\rothers.")
    assert "<script" not in markdown(grid)
    assert markdown(grid).splitlines()[-1] == "Of &lt;img src=x onerror=alert(1)> and others."
    remarks = Grid(["run", "n", "why"], [["a", "1", "so that a table is read from the left"]], remarks=True)
    assert markdown(remarks).splitlines()[1] == "| --- | ---: | --- |"
    assert r"\begin{tabular}{lrp{12em}}" in latex(remarks)


@pytest.mark.parametrize("name", ["two\nlines", "two\rlines", "two\r\nlines", "two\u2028lines"])
def test_a_row_is_one_line_whatever_its_name(name: str) -> None:
    grid = Grid(["run", "n"], [[name, "1"]])
    assert markdown(grid).splitlines()[2:] == ["| two lines | 1 |"]
    assert comma_separated(grid).splitlines()[1:] == ["two lines,1"]
    assert latex_text(name) == "two lines"


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("lucir+cwd/cifar100/b50s10", 25, ["lucir+cwd/cifar100/b50s10"]),
        ("lucir+cwd/cifar100/b50s10", 24, ["lucir+cwd/cifar100/", "b50s10"]),
        ("lucir/glyphs/b50s10,first.epochs=3,b=[1,2]", 20, ["lucir/glyphs/b50s10,", "first.epochs=3,", "b=[1,2]"]),
        ("lucir+cwd/cifar100/b50s10", 9, ["lucir+", "cwd/", "cifar100/", "b50s10"]),
        ("60.82 ±0.03 (nearest mean)", 8, ["60.82", "±0.03", "(nearest", "mean)"]),
        ("+0.13 ±0.20", 5, ["+0.13", "±0.20"]),
        ("unbreakable", 4, ["unbr", "eaka", "ble"]),
        ("", 4, [""]),
    ],
)
def test_where_text_breaks(text: str, width: int, lines: list[str]) -> None:
    assert wrap(text, width) == lines


@pytest.mark.parametrize(("width", "count"), [(30, 4), (40, 3), (60, 2), (200, 1)])
def test_every_part_fits_and_every_cell_is_somewhere(width: int, count: int) -> None:
    lines = [["model", "words", *(f"number_{i}" for i in range(6))]]
    lines += [[f"method{row}+term/data/b50s10", "a few words", *["-12.345 ±0.678"] * 6] for row in range(3)]
    parts = fit(lines, 2, width)
    for places, cells in parts:
        assert places[0] == 0
        widths = [max(len(part) for line in cells for part in line[at].split("\n")) for at in range(len(places))]
        assert sum(widths) + len(widths) - 1 <= width
        for line, whole in zip(cells, lines, strict=True):
            for at, place in enumerate(places):
                assert line[at].replace("\n", "").replace(" ", "") == whole[place].replace(" ", "")
    assert [place for places, _ in parts for place in places if place] == list(range(1, 8))
    assert len(parts) == count


def test_a_table_that_is_a_column_too_wide_is_broken() -> None:
    lines = [["run name", "numbers"], ["a", "1"]]
    assert fit(lines, 1, 16) == [([0, 1], lines)]
    assert fit(lines, 1, 15) == [([0, 1], [["run\nname", "numbers"], ["a", "1"]])]
    ((_, cells),) = fit(lines, 1, 2)  # no terminal is so narrow; it must not be filled for ever
    assert cells[0] == ["\n".join("runname"), "numbers"]
    ((_, cells),) = fit([["run", "average"], ["x" * 50, "66.27"]], 1, 30)  # a long name leaves room for numbers
    assert cells[1] == ["\n".join(["x" * 22, "x" * 22, "x" * 6]), "66.27"]


def drawn(grid: Grid, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(grid)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_a_narrow_terminal_has_fewer_columns_and_whole_numbers() -> None:
    header = ["run", "n", "10", "20", "30", "last", "average", "paper"]
    whole = [Spread(66.123, 0.284), Spread(7.1, 0.05)]
    rows: list[list[Cell]] = [[name, "3", *[Spread(50.0)] * 3, *whole, "-"] for name in ("lucir+cwd:0.3", "ncm")]
    grid = Grid(header, rows, "Accuracy.", spare=range(2, 5))
    heading, _, first, second, *caption = drawn(grid, 80)
    assert heading.split() == ["run", "n", "10", "20", "30", "last", "average"]  # nothing was published
    assert first.split() == ["lucir+cwd:0.3", "3", "50.00", "50.00", "50.00", "66.12", "±0.28", "7.10", "±0.05"]
    assert caption == ["Accuracy."]
    heading, _, first, second, *caption = drawn(grid, 47)
    assert heading.split() == ["run", "n", "10", "last", "average"]
    assert first.split() == ["lucir+cwd:0.3", "3", "50.00", "66.12", "±0.28", "7.10", "±0.05"]
    assert second.split() == ["ncm", *first.split()[1:]]
    assert " ".join(caption) == "Accuracy. Not shown at this width: 20, 30."
    assert max(map(len, drawn(grid, 47))) <= 47


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_number_is_broken_in_any_width(width: int) -> None:
    grid = Grid(["run", *"abcdef"], [["lucir+cwd/cifar100/b50s10,first.epochs=40", *[Spread(66.123, 0.284)] * 6]])
    lines = drawn(grid, width)
    assert sum(line.count("66.12 ±0.28") for line in lines) == 6
    assert max(map(len, lines)) <= width
