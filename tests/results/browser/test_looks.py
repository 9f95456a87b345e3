"""How the page looks: themes, widths from a phone's on, long names, many runs; and what the Tab key reaches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phasezero.results.page import write_page
from phasezero.results.record import Record

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

LONG = "x" * 300
Open = Callable[..., Any]


@pytest.mark.parametrize(("width", "whole"), [(1280, True), (2560, True), (380, False)])
def test_no_number_of_the_results_is_cut(
    visit_other: Open, make_record: Callable[..., Record], width: int, whole: bool
) -> None:
    methods = [
        ("lucir", ()),
        ("lucir", ("cwd:0.5",)),
        ("podnet", ()),
        ("bic", ()),
        ("lwf", ()),
        ("lucir-original", ()),
    ]
    records = [
        make_record(method=method, initial=initial, sizes=sizes, seed=seed)
        for sizes in ((50, 10, 10), (50, 5, 5))
        for method, initial in methods
        for seed in (0, 1)
    ]
    page = visit_other(
        [*records, make_record(name="one/with/a/rather/long/name/cifar100/b50s10")], width=width
    )
    box = page.locator(".scroll:has(#results-rows)")
    assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth") == whole
    edges = """(box) => {
        const right = box.getBoundingClientRect().right;
        return [...box.querySelectorAll("tbody .number")].map((cell) => cell.getBoundingClientRect())
            .filter((cell) => cell.left < right - 1 && cell.right > right + 1).length;
    }"""
    assert box.evaluate(edges) == 0
    more = page.locator("#results-table .more")
    assert more.is_visible() != whole
    if not whole:
        assert more.inner_text() == "3 more columns →"  # phase 0, last and forgetting
        box.evaluate("(box) => box.scrollTo(box.scrollWidth, 0)")
        playwright.expect(more).to_be_hidden()


def test_dark_by_preference_and_by_switch(visit: Open) -> None:
    shade = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    white, black = light.evaluate(shade), dark.evaluate(shade)
    assert white == "rgb(255, 255, 255)"
    assert black != white
    cells = light.evaluate("document.getElementById('canvas').toDataURL()")
    light.select_option("#theme", "dark")
    assert light.evaluate(shade) == black
    assert light.evaluate("document.getElementById('canvas').toDataURL()") != cells
    dark.select_option("#theme", "light")
    assert dark.evaluate(shade) == white


def test_forty_lines_differ_without_their_colours(visit: Open) -> None:
    drawn = visit().evaluate(
        "Array.from({length: 40}, (_, i) => dash(i) + marker(i, 0, 0).getAttribute('d'))",
    )
    assert len(set(drawn)) == 40


def test_a_long_name_is_whole_in_the_panel(
    browser: Any, make_record: Callable[..., Record], tmp_path: Path
) -> None:
    write_page([make_record(name=LONG), make_record(method="bic")], tmp_path / "long.html")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto((tmp_path / "long.html").as_uri())
    panel = page.locator(".panel").bounding_box()
    name = page.get_by_label(LONG).locator("xpath=..").locator(".run span").bounding_box()
    assert name["x"] + name["width"] <= panel["x"] + panel["width"]
    assert name["height"] > 100  # 300 letters in some 18rem are many lines
    assert (
        page.evaluate(
            "document.querySelector('.panel').scrollWidth - document.querySelector('.panel').clientWidth"
        )
        == 0
    )
    page.close()


@pytest.mark.parametrize("width", [320, 375, 1400])
def test_nothing_scrolls_sideways_but_tables(visit: Open, width: int) -> None:
    page = visit(width=width)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#accuracy-chart .chart").hover(position={"x": 150, "y": 150})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_number_beside_a_chart_is_cut(visit_other: Open, make_record: Callable[..., Record]) -> None:
    page = visit_other(
        [make_record(sizes=(1,))]
    )  # all right, so that the scale goes by hundredths of a percent
    assert "100.00" in page.locator("#accuracy-chart .tick").all_text_contents()
    left = "(chart) => chart.querySelector('svg').getBoundingClientRect().left"
    ticks = "(chart) => [...chart.querySelectorAll('.tick')].map((tick) => tick.getBoundingClientRect().left)"
    chart = page.locator("#accuracy-chart")
    assert min(chart.evaluate(ticks)) >= chart.evaluate(left)


def test_everything_is_reached_by_the_tab_key(visit: Open) -> None:
    page = visit()
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {
        "skip",
        "theme",
        "classifier",
        "switch-0",
        "chart",
        "which",
        "phase",
        "canvas-box",
        "scroll",
    } <= reached
