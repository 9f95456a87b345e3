"""Tables in narrow terminals: what may break, where, and that nothing is lost."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from phasezero.results.grid import Grid, Spread, terminal
from phasezero.results.layout import fit, wrap


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("lucir+cwd/cifar100/b50s10", 25, ["lucir+cwd/cifar100/b50s10"]),
        ("lucir+cwd/cifar100/b50s10", 24, ["lucir+cwd/cifar100/", "b50s10"]),
        ("lucir+cwd/cifar100/b50s10", 9, ["lucir+", "cwd/", "cifar100/", "b50s10"]),
        ("lucir+cwd/x", 8, ["lucir+", "cwd/x"]),
        ("60.82 ±0.03 (nearest mean)", 8, ["60.82", "±0.03", "(nearest", "mean)"]),
        ("+0.13 ±0.20", 5, ["+0.13", "±0.20"]),
        ("unbreakable", 4, ["unbr", "eaka", "ble"]),
        ("", 4, [""]),
    ],
)
def test_where_text_breaks(text: str, width: int, lines: list[str]) -> None:
    assert wrap(text, width) == lines


@pytest.mark.parametrize("width", [30, 40, 60, 200])
def test_every_part_fits_and_every_cell_is_somewhere(width: int) -> None:
    lines = [["model", "words", *(f"number_{i}" for i in range(6))]]
    lines += [[f"method{row}+term/data/b50s10", "a few words", *["-12.345 ±0.678"] * 6] for row in range(3)]
    parts = fit(lines, 2, width)
    for places, cells in parts:
        assert places[0] == 0
        widths = [
            max(len(part) for line in cells for part in line[at].split("\n")) for at in range(len(places))
        ]
        assert sum(widths) + len(widths) - 1 <= width
        for line, whole in zip(cells, lines, strict=True):
            for at, place in enumerate(places):
                assert line[at].replace("\n", "").replace(" ", "") == whole[place].replace(" ", "")
    assert [place for places, _ in parts for place in places if place] == list(range(1, 8))
    assert len(parts) == {30: 4, 40: 3, 60: 2, 200: 1}[width]


def test_a_table_that_is_a_column_too_wide_is_broken() -> None:
    lines = [["run name", "numbers"], ["a", "1"]]
    ((_, whole),) = fit(lines, 1, 16)
    assert whole == lines
    ((_, broken),) = fit(lines, 1, 15)
    assert broken == [["run\nname", "numbers"], ["a", "1"]]


def test_a_long_name_leaves_room_for_its_numbers() -> None:
    ((places, cells),) = fit([["run", "average"], ["x" * 50, "66.27"]], 1, 30)
    assert places == [0, 1]
    assert cells[1] == ["\n".join(["x" * 22, "x" * 22, "x" * 6]), "66.27"]


def test_a_caption_has_the_width_of_the_terminal_not_of_the_table() -> None:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(terminal(Grid(["run", "n"], [["[a]", Spread(1.0)]], "A word [b] is a word. " * 10)))
    lines = console.export_text().splitlines()
    assert lines[2].split() == ["[a]", "1.00"]
    caption = lines[3:]
    assert len(caption) == 3
    assert max(map(len, caption)) > 90
    assert " ".join(" ".join(caption).split()) == ("A word [b] is a word. " * 10).strip()
