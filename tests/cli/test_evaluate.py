"""`phasezero evaluate`: accuracies, confusions, and a page of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from phasezero.report.confusion import Confusion, confusion_page
from samples import take_photos

Command = Callable[..., tuple[int, str, str]]
Works = Callable[..., tuple[str, str]]


def test_accuracy_in_all_and_by_class_worst_first(model: Path, works: Works) -> None:
    take_photos(Path("tests/test/red"), "red", 2, first=7)
    take_photos(Path("tests/test/green"), "green", 1, first=7)
    take_photos(Path("tests/test/green"), "red", 1, first=9)
    take_photos(Path("tests/train/red"), "red", 1, first=20)
    out, err = works("evaluate", "--model", model, "tests")
    assert err == ""
    assert out.startswith("tests/test: 75.00 % of 4 photos\n")
    words = [line.split() for line in out.splitlines()]
    assert words.index(["green", "0", "2", "50.0", "red"]) < words.index(["red", "0", "2", "100.0", "-"])
    assert ["green", "red", "1", "50.0"] in words


def test_unknown_classes_and_learned_photos_are_told(model: Path, command: Command, works: Works) -> None:
    take_photos(Path("photos/zebra"), "blue", 2)
    out, err = works("evaluate", "--model", model, "photos")
    assert "the model does not know these classes: 1 (zebra); 2 photos left out" in err
    assert "6 of 6 photos were learned by this model" in err
    assert out.startswith("photos: 100.00 % of 6 photos")
    for colour in ("red", "green"):
        shutil.rmtree(Path("photos") / colour)
    code, _, err = command("evaluate", "--model", model, "photos")
    assert code == 2
    assert "`phasezero learn` teaches them" in err


def test_phases_and_a_page(model: Path, works: Works) -> None:
    take_photos(Path("photos/<b>"), "blue")
    works("learn", "photos", "--model", model)
    take_photos(Path("new/val/<b>"), "blue", 1, first=8)
    take_photos(Path("new/val/red"), "red", 1, first=8)
    out, _ = works("evaluate", "--model", model, "new", "-o", "page.html")
    words = [line.split() for line in out.splitlines()]
    assert ["0", "1", "1", "100.0"] in words
    assert ["1", "1", "1", "100.0"] in words
    assert words[-1] == ["page.html"]
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def counts(classes: int) -> list[list[int]]:
    return [[3 if row == column else int(row == column + 1) for column in range(classes)] for row in range(classes)]


@pytest.mark.parametrize(("classes", "named"), [(1, True), (3, True), (100, True), (101, False), (1000, False)])
def test_the_page_is_self_contained_and_names_classes_where_they_fit(classes: int, named: bool) -> None:
    names = [f"kind {place}" for place in range(classes)]
    page = confusion_page(Confusion(names, [place // 50 for place in range(classes)], counts(classes)), "a & b")
    assert "<title>a &amp; b</title>" in page
    assert not re.search(r"<script|https?:|url\(", page)
    assert ("<text" in page) == named
    assert page.count("<rect") == 2 * classes - 1
    assert "light-dark(" in page
    open_tags: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag != "meta":
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            pass

    Balance().feed(page)
    assert not open_tags


def test_classes_without_photos_are_left_out_of_tables() -> None:
    confusion = Confusion(["a", "b", "c"], [0, 0, 1], [[1, 3, 0], [0, 2, 0], [0, 0, 0]])
    assert confusion.accuracy == 0.5
    assert [row[0] for row in confusion.class_grid().rows] == ["a", "b"]
    assert confusion.class_grid(1).caption == "worst 1 of 2 classes"
    assert confusion.phase_grid().rows[1] == ["1", "0", "0", "-"]
    assert confusion.pair_grid().rows == [["a", "b", "3", "75.0"]]
