"""The four ways to print a table: what each must escape, and what each must keep."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import pytest

from phasezero.results.grid import Cell, Grid, Spread, comma_separated, latex, latex_text, markdown
from phasezero.results.record import Record
from phasezero.results.tables import results_grid

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


@pytest.mark.parametrize("name", ["[a]", "*a", "a[b]"])
def test_no_name_is_taken_for_an_option_of_the_line_before(name: str) -> None:
    lines = latex(
        Grid([name, "gap"], [[name, Spread(-1.5, 0.25, "head")], ["b", Spread(0.5, sign=True)]])
    ).splitlines()
    start = name if name == "a[b]" else "{}" + name
    first = lines.index(r"\toprule") + 1
    assert lines[first] == start + r" & gap \\"
    assert lines[first + 2] == start + r" & $-1.50$ $\pm$ 0.25 (head) \\"
    assert lines[first + 3] == r"b & $+0.50$ \\"


@pytest.mark.parametrize(
    ("plain", "safe"),
    [
        ("a\\b", r"a\textbackslash{}b"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"),
        ("two\nlines", "two lines"),
    ],
)
def test_latex_text(plain: str, safe: str) -> None:
    assert latex_text(plain) == safe


def test_csv_has_numbers_and_its_own_column_for_the_deviation() -> None:
    header, first, second = csv.reader(io.StringIO(comma_separated(GRID)))
    assert header == ["run", "n", "average", "average std", "average note", "gap"]
    assert first == ["50% of $a_b & {c}", "3", "66.123456", "0.284", "", "-0.15"]
    assert second == ["x|y", "1", "7.0", "", "head", ""]


def test_markdown_escapes_bars_and_aligns_numbers() -> None:
    lines = markdown(GRID).splitlines()
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[3] == r"| x\|y | 1 | 7.00 (head) | - |"
    assert lines[-1] == "Mean ± deviation of #1."


def test_records_in_every_format_tell_the_same(make_record: Callable[..., Record]) -> None:
    grid = results_grid([make_record(seed=s) for s in range(3)])
    rows = list(csv.DictReader(io.StringIO(comma_separated(grid))))
    assert rows[0]["average"] == "71.0"
    assert rows[0]["average std"] == "1.0"
    assert (rows[0]["paper"], rows[0]["paper std"]) == ("66.27", "0.28")
    assert r"lucir/cifar100/b50s10 & 3 & 81.00" in latex(grid)
    assert r"71.00 $\pm$ 1.00" in latex(grid)


def test_latex_tables_stay_within_the_page() -> None:
    """Small ones as they are, wide ones scaled, long ones over several pages, long words broken."""
    assert "resizebox" not in latex(GRID)
    assert "longtable" not in latex(GRID)
    numbers = [Spread(66.1, 0.2)] * 9
    wide = latex(Grid(["method", *map(str, range(9))], [["LUCIR", *numbers]]))
    assert wide.count("{") == wide.count("}")
    assert r"\resizebox{\linewidth}{!}{%" in wide
    assert "graphicx" in wide
    words = latex(Grid(["what", "n"], [["a name of more than a few characters", "1"]] * 50))
    assert r"\begin{longtable}{p{12em}r}" in words
    assert words.count(r"\\") == 51
    assert words.count("{") == words.count("}")


def test_markdown_lets_no_html_through() -> None:
    assert "<script" not in markdown(Grid(["run"], [["<script>alert(1)</script>"]]))

    grid = Grid(["run"], [["a"]], "Of <img src=x onerror=alert(1)>\nand\rothers.")
    assert markdown(grid).splitlines()[-1] == "Of &lt;img src=x onerror=alert(1)> and others."


@pytest.mark.parametrize("name", ["two\nlines", "two\rlines", "two\r\nlines", "two\u2028lines"])
def test_a_row_is_one_line_whatever_its_name(name: str) -> None:
    grid = Grid(["run", "n"], [[name, "1"]])
    assert markdown(grid).splitlines()[2:] == ["| two lines | 1 |"]
    assert comma_separated(grid).splitlines()[1:] == ["two lines,1"]
    assert latex_text(name) == "two lines"


def test_no_spreadsheet_takes_a_name_for_a_formula() -> None:
    names = ["=1+1", "+cmd", "-cmd", "@sum", "\t=1", "a=b", "-"]
    numbers: list[Cell] = ["-0.35", "+0.10", "1e-3", "3", Spread(-0.5, sign=True), Spread(2.0, 0.5), "-"]
    grid = Grid(["run", "gap"], [[name, number] for name, number in zip(names, numbers, strict=True)])
    rows = list(csv.reader(io.StringIO(comma_separated(grid))))[1:]
    assert [row[0] for row in rows] == ["'=1+1", "'+cmd", "'-cmd", "'@sum", "'\t=1", "a=b", ""]
    assert [row[1] for row in rows] == ["-0.35", "+0.10", "1e-3", "3", "-0.5", "2.0", ""]


def test_remarks_stand_on_the_left() -> None:
    grid = Grid(["run", "n", "why"], [["a", "1", "so that a table is read from the left"]], remarks=True)
    assert markdown(grid).splitlines()[1] == "| --- | ---: | --- |"
    assert r"\begin{tabular}{lrp{12em}}" in latex(grid)


def test_digits() -> None:
    assert [str(Spread(0.12345, 0.5, digits=3)), str(Spread(2.0, digits=1, note="of 64"))] == [
        "0.123 ± 0.500",
        "2.0 (of 64)",
    ]
