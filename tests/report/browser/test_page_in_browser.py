"""The page as a reader uses it: pointer, keyboard, switches, tables, themes, widths from a phone's on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from samples import HOSTILE, PAGE_ANALYSIS, make_record

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

OWN = "each method\N{RIGHT SINGLE QUOTATION MARK}s own"
MISSING = "\N{EN DASH}"
Open = Callable[..., Any]


def lines(page: Any, chart: str = "accuracy") -> int:
    return int(page.locator(f"#{chart}-chart [data-series]").count())


def test_pointing_at_the_chart_shows_its_values(visit: Open) -> None:
    page = visit()
    assert lines(page) == 4
    chart = page.locator("#accuracy-chart .chart")
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] - 18, "y": 200})
    tip = page.locator("#accuracy-chart .tip")
    assert tip.inner_text().startswith("100 classes seen")
    assert "61.00 ± 1.00" in tip.inner_text()  # LUCIR, seeds 0 to 2, after the last phase
    assert HOSTILE in tip.inner_text()
    page.mouse.move(5, 5)
    assert not tip.is_visible()
    page = visit(width=375, has_touch=True)  # a touch shows values that stay
    page.locator("#accuracy-chart .chart").tap(position={"x": 46, "y": 100})
    assert page.locator("#accuracy-chart .tip").inner_text().startswith("50 classes seen")
    page.locator("#canvas-box").tap(position={"x": 3, "y": 3})
    assert page.locator("#cell").inner_text().startswith("class 0 (class 0, phase 0): 60 of 100 correct")


def test_arrow_keys_read_the_chart(visit: Open) -> None:
    page = visit()
    page.click("button[aria-label='only these: per_class:20 · head']")
    page.locator("#accuracy-chart .chart").focus()
    readout = page.locator("#accuracy-chart-readout")
    assert readout.get_attribute("aria-live") == "polite"
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "End"):
        page.keyboard.press(key)
        said.append(readout.inner_text())
    assert said[:2] == ["lucir, 50 classes seen: 81.00 ± 1.00", "lucir, 60 classes seen: 77.00 ± 1.00"]
    assert said[2] == "lucir+cwd, 60 classes seen: 76.00"
    assert said[3].endswith("100 classes seen: 60.00")


def test_switches_hide_lines_and_the_warning_about_them(visit: Open) -> None:
    page = visit()
    assert "per_class:40" in page.locator("#warnings").inner_text()
    assert "differ in memory, how the method classifies" in page.locator("#mixed").inner_text()
    page.get_by_label(HOSTILE, exact=True).uncheck()
    assert (lines(page), lines(page, "forgetting")) == (3, 3)
    assert page.locator("#mixed").inner_text().endswith("their runs differ in how the method classifies.")
    page.get_by_label("icarl/cifar100/b50s10", exact=True).uncheck()
    assert not page.locator("#mixed").is_visible()
    page.locator("#none").click()
    assert lines(page) == 0
    assert "No shown run" in page.locator("#accuracy-chart-readout").inner_text()
    page.locator("#all").click()
    assert lines(page) == 4


def rows(page: Any) -> dict[str, list[str]]:
    found = [row.locator("th, td").all_inner_texts() for row in page.locator("#results-rows tbody tr:has(td)").all()]
    return {row[0]: row for row in found}


def test_the_table_follows_classifier_and_sorting(visit: Open) -> None:
    page = visit()
    lucir, icarl = rows(page)["lucir"], rows(page)["icarl/cifar100/b50s10"]
    assert lucir[1:5] == ["3", "71.00 ± 1.00", "66.27 ± 0.281", "+4.73"]  # the last digit is the note's
    # By its own, the nearest mean, which is a point below the head.
    assert (icarl[2], icarl[4]) == ("69.00", "+8.18")
    page.get_by_role("button", name="average").click()
    assert page.locator("#results-rows th[aria-sort]").get_attribute("aria-sort") == "descending"
    averages = [float(row[2].split()[0]) for row in rows(page).values()]
    assert averages[:2] == sorted(averages[:2], reverse=True)  # the others are sets of their own
    page.select_option("#classifier", "head")
    # Published with nearest mean, so there is no gap to the head.
    assert (rows(page)["icarl"][2], rows(page)["icarl"][4]) == ("70.00", MISSING)
    page.select_option("#classifier", "nearest_mean")
    assert (rows(page)["icarl"][2], rows(page)["icarl"][4]) == ("69.00", "+8.18")
    assert rows(page)["lucir+cwd"][2] == MISSING
    assert "Not measured with this classifier: lucir+cwd" in page.locator("#results-notes").inner_text()
    assert lines(page) == 2


def test_only_the_methods_own_classifiers_set_runs_apart(visit: Open) -> None:
    page = visit()
    page.get_by_label(HOSTILE, exact=True).uncheck()  # of another memory
    choice, heading = page.locator("#classifier"), page.locator("#results-rows .section")
    warnings, mixed = page.locator("#warnings"), page.locator("#mixed")
    named = "how the method classifies"
    assert choice.locator("option").all_inner_texts() == [OWN, "head", "nearest mean of exemplars"]
    assert heading.all_inner_texts() == ["per_class:20 · head", "per_class:20 · nearest mean", "per_class:40 · head"]
    assert f"{OWN}, as the headings say" in page.locator("#results-rows caption").inner_text()
    assert all(named in one.inner_text() for one in (warnings, mixed))
    page.locator("#accuracy-chart summary").click()  # the values as a table
    drawn = page.locator("#accuracy-chart tbody tr").last
    assert "icarl/cifar100/b50s10 (nearest mean of exemplars)" in drawn.inner_text()
    page.select_option("#which", label="icarl/cifar100/b50s10, seed 0")
    assert "classifier: nearest mean of exemplars" in page.locator("#by-phase caption").inner_text()
    for name, last in (("head", "60.00"), ("nearest_mean", "59.00")):
        choice.select_option(name)
        assert heading.all_inner_texts() == ["per_class:20", "per_class:40"]
        assert not page.get_by_label(HOSTILE, exact=True).is_checked()
        assert named not in warnings.inner_text()  # which are about the memory now
        assert not mixed.is_visible()
        assert drawn.locator("th").inner_text() == "icarl"
        assert drawn.locator("td").last.inner_text() == last
        assert page.locator("#by-phase tbody tr").last.locator("td").first.inner_text() == last[:4]
    choice.select_option("own")
    assert named in mixed.inner_text()


def test_confusion_follows_run_phase_and_keys(visit: Open) -> None:
    page = visit()
    assert page.locator("#phase-value").inner_text() == "5 of 5, 100 classes seen"
    # Seed 0: 60 of 100 correct after the last phase, the rest predicted as the next class.
    confused = page.locator("#confused")
    assert "4000 of 10000 test images are misclassified" in confused.inner_text()
    before = page.evaluate("document.getElementById('canvas').toDataURL()")
    page.locator("#canvas-box").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    told = "class 0 (class 0, phase 0) predicted as class 1 (class 1, phase 0): 40 of 100 (40.0 %)"
    assert page.locator("#cell").inner_text() == told
    page.locator("#phase").focus()
    page.keyboard.press("Home")
    playwright.expect(confused).to_contain_text("1000 of 5000")
    assert page.evaluate("document.getElementById('canvas').toDataURL()") != before
    page.select_option("#which", label=f"{HOSTILE}, seed 0")
    playwright.expect(confused).to_contain_text("3000 of 10000")
    assert HOSTILE in confused.inner_text()


def test_runs_side_by_side_cost_their_share(visit: Open) -> None:
    page = visit()  # five runs of 15.6 s, and one that had 80 of 240 s
    assert "3 min (in parallel; times from start to end add up to 5 min)" in page.locator("#facts").inner_text()
    times = [row.locator("td").all_inner_texts()[1:3] for row in page.locator("#environment table tbody tr").all()]
    assert times == [["15.6 s", "15.6 s"]] * 5 + [["80.0 s", "4 min"]]
    page.select_option("#which", label=f"{HOSTILE}, seed 0")
    assert "of 4 min from start to end, 80.0 s were its share" in page.locator("#time").inner_text()


def test_sections_that_have_something_to_show(visit: Open) -> None:
    page = visit()
    assert lines(page, "spectra") == 1
    page.select_option("#spectra-split", "test")
    page.locator("#spectra-chart .chart").focus()
    page.keyboard.press("End")
    told = page.locator("#spectra-chart-readout").inner_text()
    assert told == "lucir/cifar100/b50s10 (1 of 3 runs), 4 largest directions: 70.00"
    links = page.locator("#sections a").all_inner_texts()
    assert links[:5] == ["Warnings", "Accuracy", "Results and the paper", "Forgetting", "Spectra"]
    assert links[5:] == ["One run in detail", "Machines and versions", "Classes", "Configurations"]
    page.locator("#configuration-list summary").last.click()
    shown = json.loads(page.locator("#configuration-list pre").last.inner_text())
    assert shown["protocol"]["memory"] == "per_class:40"


def test_spectra_of_many_groups_are_there_at_first(visit_other: Open) -> None:
    records = [make_record(name=f"run {i}", data="glyphs" if i < 9 else "cifar100") for i in range(12)]
    page = visit_other(records, [[]] * 10 + [[PAGE_ANALYSIS], [PAGE_ANALYSIS]])
    assert (lines(page), lines(page, "spectra")) == (3, 2)
    assert not page.locator("#spectra-off").is_visible()
    page.locator("#none").click()
    assert not page.locator("#spectra-chart").is_visible()
    told = page.locator("#spectra-off").inner_text()
    assert told.startswith("The runs analysed after this phase are switched off: run 10, run 11.")
    page.get_by_role("button", name="Switch them on").click()
    assert (lines(page), lines(page, "spectra")) == (2, 2)
    assert page.get_by_label("run 11", exact=True).is_checked()
    assert page.evaluate("document.activeElement.closest('#spectra-chart') !== null")


@pytest.mark.parametrize(("width", "whole"), [(1280, True), (380, False)])
def test_no_number_of_the_results_is_cut(visit_other: Open, width: int, whole: bool) -> None:
    records = [make_record(method=method, seed=seed) for method in ("lucir", "podnet", "bic") for seed in (0, 1)]
    page = visit_other([*records, make_record(name="one/with/a/rather/long/name/cifar100/b50s10")], width=width)
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
        box.evaluate("(box) => box.scrollTo(box.scrollWidth, 0)")
        playwright.expect(more).to_be_hidden()


def test_dark_by_preference_and_by_switch(visit: Open) -> None:
    shade, cells = "getComputedStyle(document.body).backgroundColor", "document.getElementById('canvas').toDataURL()"
    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    white, black, painted = light.evaluate(shade), dark.evaluate(shade), light.evaluate(cells)
    assert white == "rgb(255, 255, 255)" != black
    light.select_option("#theme", "dark")
    assert light.evaluate(shade) == black
    assert light.evaluate(cells) != painted
    dark.select_option("#theme", "light")
    assert dark.evaluate(shade) == white


@pytest.mark.parametrize("width", [320, 375, 1400])
def test_nothing_scrolls_sideways_but_tables(visit: Open, width: int) -> None:
    page = visit(width=width)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#accuracy-chart .chart").hover(position={"x": 150, "y": 150})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_is_reached_by_the_tab_key(visit: Open) -> None:
    page, reached = visit(), set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"skip", "theme", "classifier", "switch-0", "chart", "which", "phase", "canvas-box", "scroll"} <= reached
