"""The page as a reader uses it: pointer, keyboard, switches, tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from phasezero.results.record import Record, summarise
from samples import HOSTILE, PAGE_ANALYSIS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

OWN = "each method\N{RIGHT SINGLE QUOTATION MARK}s own"
MISSING = "\N{EN DASH}"
Open = Callable[..., Any]


def lines(page: Any, chart: str = "accuracy") -> int:
    found: int = page.locator(f"#{chart}-chart [data-series]").count()
    return found


def test_pointing_at_the_chart_shows_its_values(visit: Open) -> None:
    page = visit()
    assert lines(page) == 4
    chart = page.locator("#accuracy-chart .chart")
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] - 18, "y": 200})
    tip = page.locator("#accuracy-chart .tip")
    assert tip.is_visible()
    text = tip.inner_text()
    assert text.startswith("100 classes seen")
    assert "61.00 ± 1.00" in text  # LUCIR, seeds 0 to 2, after the last phase
    assert HOSTILE in text
    page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_a_touch_shows_values_that_stay(visit: Open) -> None:
    page = visit(width=375, has_touch=True)
    page.locator("#accuracy-chart .chart").tap(position={"x": 46, "y": 100})
    assert page.locator("#accuracy-chart .tip").inner_text().startswith("50 classes seen")
    page.locator("#canvas-box").tap(position={"x": 3, "y": 3})
    assert page.locator("#cell").inner_text().startswith("class 0 (class 0, phase 0): right for 60 of 100")


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
    drawn = page.locator("#accuracy-chart .chart > svg")
    before = drawn.get_attribute("width")
    page.set_viewport_size({"width": 700, "height": 900})  # draws the chart anew: one chart, not two
    page.locator(f"#accuracy-chart .chart > svg:not([width='{before}'])").wait_for()
    assert drawn.count() == 1


def test_switches_hide_lines_and_the_warning_about_them(visit: Open) -> None:
    page = visit()
    assert page.locator("#warnings").is_visible()
    assert "per_class:40" in page.locator("#warnings").inner_text()
    assert page.locator("#mixed").is_visible()
    assert "differ in memory, how the method classifies" in page.locator("#mixed").inner_text()
    page.get_by_label(HOSTILE, exact=True).uncheck()
    assert (lines(page), lines(page, "forgetting")) == (3, 3)
    assert page.locator("#mixed").inner_text().endswith("their runs differ in how the method classifies.")
    page.get_by_label("icarl/cifar100/b50s10", exact=True).uncheck()
    assert not page.locator("#mixed").is_visible()
    page.locator("#none").click()
    assert lines(page) == 0
    assert "No run is switched on" in page.locator("#accuracy-chart-readout").inner_text()
    page.locator("#all").click()
    assert lines(page) == 4


def rows(page: Any) -> list[list[str]]:
    found = page.locator("#results-rows tbody tr:has(td)").all()
    return [row.locator("th, td").all_inner_texts() for row in found]


def test_the_table_follows_classifier_and_sorting(visit: Open) -> None:
    page = visit()
    assert [row[0] for row in rows(page)][:3] == ["lucir", "lucir+cwd", "icarl/cifar100/b50s10"]
    lucir, _, icarl, _ = rows(page)
    assert lucir[1:5] == ["3", "71.00 ± 1.00", "66.27 ± 0.281", "+4.73"]  # the last digit is the note's
    # By its own, the nearest mean, which is a point below the head.
    assert (icarl[2], icarl[4]) == ("69.00", "+8.18")
    page.get_by_role("button", name="average").click()
    assert page.locator("#results-rows th[aria-sort]").get_attribute("aria-sort") == "descending"
    averages = [float(row[2].split()[0]) for row in rows(page)]
    assert averages[:2] == sorted(averages[:2], reverse=True)  # the others are sets of their own
    page.select_option("#classifier", "head")
    by_name = {row[0]: row for row in rows(page)}
    assert by_name["icarl"][2] == "70.00"
    assert by_name["icarl"][4] == MISSING  # published with nearest mean, so there is no gap to the head
    page.select_option("#classifier", "nearest_mean")
    by_name = {row[0]: row for row in rows(page)}
    assert (by_name["icarl"][2], by_name["icarl"][4]) == ("69.00", "+8.18")
    assert by_name["lucir+cwd"][2] == MISSING
    assert "Not measured with this classifier: lucir+cwd" in page.locator("#results-notes").inner_text()
    assert lines(page) == 2


def test_only_the_methods_own_classifiers_set_runs_apart(visit: Open) -> None:
    page = visit()
    page.get_by_label(HOSTILE, exact=True).uncheck()  # of another memory
    choice, heading = page.locator("#classifier"), page.locator("#results-rows .section")
    named = "how the method classifies"
    assert choice.locator("option").all_inner_texts() == [OWN, "head", "nearest mean of exemplars"]
    assert heading.all_inner_texts() == [
        "per_class:20 · head",
        "per_class:20 · nearest mean",
        "per_class:40 · head",
    ]
    assert f"{OWN}, as the headings say" in page.locator("#results-rows caption").inner_text()
    assert named in page.locator("#warnings").inner_text()
    assert named in page.locator("#mixed").inner_text()
    page.locator("#accuracy-chart summary").click()
    drawn = page.locator("#accuracy-chart tbody tr")
    assert "icarl/cifar100/b50s10 (nearest mean of exemplars)" in drawn.last.inner_text()
    assert drawn.last.locator("td").last.inner_text() == "59.00"
    page.select_option("#which", label="icarl/cifar100/b50s10, seed 0")
    assert "classifier: nearest mean of exemplars" in page.locator("#by-phase caption").inner_text()
    assert page.locator("#by-phase tbody tr").last.locator("td").first.inner_text() == "59.0"
    for name, last in (("head", "60.00"), ("nearest_mean", "59.00")):
        choice.select_option(name)
        assert heading.all_inner_texts() == ["per_class:20", "per_class:40"]
        assert page.locator("#switches legend").all_inner_texts() == ["per_class:20", "per_class:40"]
        assert not page.get_by_label(HOSTILE, exact=True).is_checked()
        assert "memory" in page.locator("#warnings").inner_text()
        assert named not in page.locator("#warnings").inner_text()
        assert not page.locator("#mixed").is_visible()
        assert drawn.last.locator("th").inner_text() == "icarl"
        assert drawn.last.locator("td").last.inner_text() == last
        assert page.locator("#by-phase tbody tr").last.locator("td").first.inner_text() == last[:4]
    choice.select_option("own")
    assert named in page.locator("#mixed").inner_text()


def test_a_warning_that_is_gone_has_no_link(visit_other: Open, make_record: Callable[..., Record]) -> None:
    page = visit_other([make_record(nearest_mean=True), make_record(method="icarl", nearest_mean=True)])
    assert page.locator(".switch label").all_inner_texts() == ["lucir", "icarl"]  # one end for both
    link = page.locator("#sections a[href='#warnings']")
    assert (link.count(), page.locator("#warnings").is_visible()) == (1, True)
    page.select_option("#classifier", "head")
    assert (link.count(), page.locator("#warnings").is_visible()) == (0, False)


def test_the_values_are_there_as_a_table(visit: Open) -> None:
    page = visit()
    page.locator("#accuracy-chart summary").click()
    table = page.locator("#accuracy-chart table")
    assert table.locator("thead th").all_inner_texts()[1:] == ["50", "60", "70", "80", "90", "100"]
    assert "81.00 ± 1.00" in table.inner_text()
    for one in page.locator("table").all():
        assert one.locator("caption").count() == 1
        assert one.locator("th:not([scope])").count() == 0


def test_confusion_follows_run_phase_and_keys(visit: Open) -> None:
    page = visit()
    assert page.locator("#phase-value").inner_text() == "5 of 5, 100 classes seen"
    # Seed 0: 60 of 100 right after the last phase, the rest called the next class.
    confused = page.locator("#confused")
    assert "4000 of 10000 test images are misnamed" in confused.inner_text()
    before = page.evaluate("document.getElementById('canvas').toDataURL()")
    page.locator("#canvas-box").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert (
        page.locator("#cell").inner_text()
        == "class 0 (class 0, phase 0) called class 1 (class 1, phase 0): 40 of 100 (40.0 %)"
    )
    page.locator("#phase").focus()
    page.keyboard.press("Home")
    playwright.expect(confused).to_contain_text("1000 of 5000")
    assert page.evaluate("document.getElementById('canvas').toDataURL()") != before
    page.select_option("#which", label=f"{HOSTILE}, seed 0")
    playwright.expect(confused).to_contain_text("3000 of 10000")
    assert HOSTILE in confused.inner_text()


def test_runs_side_by_side_cost_their_share(
    visit: Open, visit_other: Open, make_record: Callable[..., Record]
) -> None:
    alone = make_record()
    alone["timing"] = alone["timing"] | {"seconds_total": 240.0, "share_seconds": 80.0}
    assert "80.0 s (its share of 4 min, beside others)" in visit_other([alone]).locator("#facts").inner_text()
    page = visit()
    # Five of 15.6 s, and one that had 80 of 240 s.
    told = page.locator("#facts").inner_text()
    assert "3 min (side by side; start to end they add up to 5 min)" in told
    table = page.locator("#environment table")
    assert table.locator("thead th").all_inner_texts()[2:4] == ["time", "start to end"]
    times = [row.locator("td").all_inner_texts()[1:3] for row in table.locator("tbody tr").all()]
    assert times == [["15.6 s", "15.6 s"]] * 5 + [["80.0 s", "4 min"]]
    assert "side by side" not in page.locator("#time").inner_text()
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
    assert page.locator("#sections a").all_inner_texts() == [
        "Warnings",
        "Accuracy",
        "Results and the paper",
        "Forgetting",
        "Spectra",
        "One run in detail",
        "Machines and versions",
        "Classes",
        "Configurations",
    ]
    page.locator("#configuration-list summary").last.click()
    shown = json.loads(page.locator("#configuration-list pre").last.inner_text())
    assert shown["protocol"]["memory"] == "per_class:40"
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => Number(h.tagName[1]))")
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_spectra_of_many_groups_are_there_at_first(
    visit_other: Open, make_record: Callable[..., Record]
) -> None:
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


def test_what_a_run_does_not_say_of_its_machine_is_a_dash(
    visit_other: Open, make_record: Callable[..., Record]
) -> None:
    records = [make_record(), make_record(method="bic")]
    records[1]["environment"] = records[1]["environment"] | {"photos": "files"}
    table = visit_other(records).locator("#environment table")
    assert table.locator("thead th").last.inner_text() == "photos"
    assert [row.locator("td").last.inner_text() for row in table.locator("tbody tr").all()] == [
        MISSING,
        "files",
    ]


def test_a_run_of_one_phase_has_forgotten_nothing_yet(
    visit_other: Open, make_record: Callable[..., Record]
) -> None:
    record = make_record()
    record["phases"] = record["phases"][:1]
    record["summary"] = summarise(record["phases"])
    page = visit_other([record])
    assert (
        page.locator("#forgetting-chart-readout").inner_text()
        == "No run of two phases or more is switched on."
    )
    assert "50 classes at once" in page.locator("#facts").inner_text()
