"""The page as a reader uses it: pointer, keyboard, switches, tables, themes, widths from a phone's on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from samples import HOSTILE, PAGE_ANALYSIS, make_record

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

OWN = "each method\N{RIGHT SINGLE QUOTATION MARK}s own"
MISSING = "\N{EN DASH}"
ALL = "open=results.old-new.forgetting.cost.spectra.run.setup.classes.configurations"
Open = Callable[..., Any]


def lines(page: Any, chart: str = "accuracy") -> int:
    return int(page.locator(f"#{chart}-chart [data-series]").count())


def rows(page: Any, table: str = "results") -> dict[str, list[str]]:
    found = [row.locator("th, td").all_inner_texts() for row in page.locator(f"#{table}-rows tbody tr:has(td)").all()]
    return {row[0]: row for row in found}


def test_it_opens_with_the_methods_beside_the_paper(visit: Open) -> None:
    page = visit()
    found = rows(page, "headline")
    assert page.locator("#headline-rows thead th").all_inner_texts() == ["method", "S=10"]
    assert found["lucir"][1] == "71.00 ± 1.00 n=3\npaper 66.27 +4.73"
    assert found["lucir+cwd"][1] == "70.00\npaper 67.26 +2.74"
    assert found["icarl"][1] == "69.00\npaper 60.82 +8.18"
    assert found[HOSTILE][1] == "75.00"  # not of the paper
    assert "These runs differ in memory." in page.locator("#headline-notes").inner_text()
    page.select_option("#by", "head")
    assert rows(page, "headline")["icarl"][1] == "70.00\npaper 60.82"  # published with nearest mean: no gap


def test_warnings_are_a_line_until_they_are_opened(visit: Open) -> None:
    page = visit()
    summary = page.locator("#warnings-summary")
    assert summary.inner_text() == "2 warnings: not everything here is comparable"
    assert page.locator("#warnings").bounding_box()["height"] < 60
    summary.click()
    assert "per_class:40" in page.locator("#warning-list").inner_text()


def test_pointing_at_the_chart_shows_its_values(visit: Open) -> None:
    page = visit(fragment="open=run")
    assert lines(page) == 4
    chart = page.locator("#accuracy-chart .chart")
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] - 18, "y": 150})
    tip = page.locator("#accuracy-chart .tip")
    assert tip.inner_text().startswith("100 classes seen")
    assert "61.00 ± 1.00" in tip.inner_text()  # LUCIR, seeds 0 to 2, after the last phase
    assert HOSTILE in tip.inner_text()
    page.mouse.move(5, 5)
    assert not tip.is_visible()
    page = visit(width=375, has_touch=True, fragment="open=run")  # a touch shows values that stay
    page.locator("#accuracy-chart .chart").tap(position={"x": 46, "y": 100})
    assert page.locator("#accuracy-chart .tip").inner_text().startswith("50 classes seen")
    page.wait_for_selector("#confused table")
    page.locator("#canvas-box").tap(position={"x": 50, "y": 8})
    assert page.locator("#cell").inner_text().startswith("class 0 (class 0, phase 0): 60 of 100 correct")


def test_arrow_keys_read_the_chart(visit: Open) -> None:
    page = visit()
    page.click("#chooser-summary")
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
    page = visit(fragment="open=forgetting")
    assert "differ in memory, how the method classifies" in page.locator("#mixed").inner_text()
    page.click("#chooser-summary")
    page.get_by_label(HOSTILE, exact=True).uncheck()
    assert (lines(page), lines(page, "forgetting")) == (3, 3)
    assert page.locator("#mixed").inner_text().endswith("their runs differ in how the method classifies.")
    assert page.evaluate("document.activeElement.type") == "checkbox"  # the keyboard stays where it was
    page.get_by_label("icarl/cifar100/b50s10", exact=True).uncheck()
    assert not page.locator("#mixed").is_visible()
    page.locator("#none").click()
    assert lines(page) == 0
    assert "No shown run" in page.locator("#accuracy-chart-readout").inner_text()
    page.locator("#all").click()
    assert lines(page) == 4


def test_the_table_follows_classifier_and_sorting(visit: Open) -> None:
    page = visit(fragment="open=results")
    lucir, icarl = rows(page)["lucir"], rows(page)["icarl/cifar100/b50s10"]
    assert lucir[1:5] == ["3", "71.00 ± 1.00", "66.27 ± 0.28", "+4.73"]
    # By its own, the nearest mean, which is a point below the head.
    assert (icarl[2], icarl[4]) == ("69.00", "+8.18")
    page.locator("#results-rows").get_by_role("button", name="average", exact=True).click()
    assert page.locator("#results-rows th[aria-sort]").get_attribute("aria-sort") == "descending"
    averages = [float(row[2].split()[0]) for row in rows(page).values()]
    assert averages[:2] == sorted(averages[:2], reverse=True)  # the others are sets of their own
    page.select_option("#by", "head")
    # Published with nearest mean, so there is no gap to the head.
    assert (rows(page)["icarl"][2], rows(page)["icarl"][4]) == ("70.00", MISSING)
    page.select_option("#by", "nearest_mean")
    assert (rows(page)["icarl"][2], rows(page)["icarl"][4]) == ("69.00", "+8.18")
    assert rows(page)["lucir+cwd"][2] == MISSING
    assert "Not measured with this classifier: lucir+cwd" in page.locator("#results-notes").inner_text()
    assert lines(page) == 2


def test_only_the_methods_own_classifiers_set_runs_apart(visit: Open) -> None:
    page = visit(fragment="open=results.run")
    page.click("#chooser-summary")
    page.get_by_label(HOSTILE, exact=True).uncheck()  # of another memory
    page.click("#warnings-summary")
    choice, heading = page.locator("#by"), page.locator("#results-rows .section")
    warnings, mixed = page.locator("#warnings"), page.locator("#mixed")
    named = "how the method classifies"
    assert choice.locator("option").all_inner_texts() == [OWN, "head", "nearest mean of exemplars"]
    assert heading.all_inner_texts() == ["per_class:20 · head", "per_class:20 · nearest mean", "per_class:40 · head"]
    assert f"{OWN}, as the headings say" in page.locator("#results-rows caption").inner_text()
    assert all(named in one.inner_text() for one in (warnings, mixed))
    page.locator("#accuracy-chart summary").click()  # the values as a table
    drawn = page.locator("#accuracy-chart tbody tr").last
    assert "icarl (nearest mean of exemplars)" in drawn.inner_text()
    page.select_option("#which", label="icarl/cifar100/b50s10, seed 0")
    assert "classifier: nearest mean of exemplars" in page.locator("#by-phase caption").inner_text()
    for name, last in (("head", "60.00"), ("nearest_mean", "59.00")):
        choice.select_option(name)
        assert heading.all_inner_texts() == ["per_class:20", "per_class:40"]
        assert not page.get_by_label(HOSTILE, exact=True).is_checked()
        assert named not in warnings.inner_text()  # which are about the memory now
        assert not mixed.is_visible()
        playwright.expect(drawn.locator("th")).to_have_text("icarl")
        assert drawn.locator("td").last.inner_text() == last
        assert page.locator("#by-phase tbody tr").last.locator("td").first.inner_text() == last[:4]
    choice.select_option("own")
    assert named in mixed.inner_text()


def test_confusion_follows_run_phase_and_keys(visit: Open) -> None:
    page = visit(fragment="open=run")
    confused = page.locator("#confused")
    # Seed 0: 60 of 100 correct after the last phase, the rest predicted as the next class.
    playwright.expect(confused).to_contain_text("4000 of 10000 test images are misclassified")
    assert page.locator("#phase-value").inner_text() == "5 of 5, 100 classes seen"
    before = page.evaluate("document.getElementById('canvas').toDataURL()")
    page.locator("#canvas-box").focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    told = "class 0 (class 0, phase 0) predicted as class 1 (class 1, phase 0): 40 of 100 (40.0 %)"
    assert page.locator("#cell").inner_text() == told
    page.locator("#phase").focus()
    page.keyboard.press("Home")
    playwright.expect(confused).to_contain_text("1000 of 5000")
    assert page.evaluate("document.activeElement.id") == "phase"
    assert page.evaluate("document.getElementById('canvas').toDataURL()") != before
    page.select_option("#which", label=f"{HOSTILE}, seed 0")
    playwright.expect(confused).to_contain_text("3000 of 10000")
    assert HOSTILE in confused.inner_text()


def test_forgotten_classes_and_what_they_are_taken_for(visit_other: Open) -> None:
    record = make_record(sizes=(3, 2), drop=30)  # 80 right, then 50
    record["phases"][1]["confusion"] = {  # class 1: 10 right, 90 called class 2 or 4; the others keep what they had
        "true": [0, 1, 1, 1, 2, 3, 4],
        "predicted": [0, 1, 2, 4, 2, 3, 4],
        "count": [100, 10, 60, 30, 100, 100, 100],
    }
    page = visit_other([record])
    playwright.expect(page.locator("#forgotten tbody tr")).to_have_count(1)
    cells = page.locator("#forgotten tbody tr").locator("th, td").all_inner_texts()
    assert cells == ["class 1", "0", "80.0", "10.0", "70.0", "class 2 (60.0 %), class 4 (30.0 %)"]
    assert "1 of 5 classes are recognized less often" in page.locator("#forgotten").inner_text()


def test_runs_side_by_side_cost_their_share(visit: Open) -> None:
    page = visit(fragment="open=run.setup")  # five runs of 15.6 s, and a run that had 80 of 240 s
    assert "machine time\n3 min" in page.locator("#facts").inner_text()
    assert page.locator("#shared-time").inner_text().endswith("of all runs from start to end add up to 5 min.")
    times = [row.locator("td").all_inner_texts()[1:3] for row in page.locator("#environment table tbody tr").all()]
    assert times == [["15.6 s", "15.6 s"]] * 5 + [["80.0 s", "4 min"]]
    page.select_option("#which", label=f"{HOSTILE}, seed 0")
    assert "took 4 min from start to end" in page.locator("#time").inner_text()
    assert "share of the machine\N{RIGHT SINGLE QUOTATION MARK}s time is 80.0 s" in page.locator("#time").inner_text()


def test_old_and_new_classes_and_seconds(visit: Open) -> None:
    page = visit(fragment="open=old-new.cost")
    for chart, said in (("old", "phase 1: 77.00 ± 1.00"), ("new", "phase 1: 77.00 ± 1.00"), ("cost", "15.6 s")):
        page.locator(f"#{chart}-chart .chart").focus()
        page.keyboard.press("ArrowRight")
        assert said in page.locator(f"#{chart}-chart-readout").inner_text()
    # Points have no lines, so a strategy shows in the marker: LUCIR's is full, that of LUCIR with CwD hollow.
    hollow = page.locator("#cost-chart [data-series] .hollow")
    assert (hollow.count(), bool(hollow.first.get_attribute("stroke-dasharray"))) == (1, True)
    for _ in range(4):
        page.keyboard.press("ArrowUp")
    read = set()
    for _ in range(4):  # a scatter plot is read from point to point
        read.add(page.locator("#cost-chart-readout").inner_text().partition(",")[0])
        page.keyboard.press("ArrowDown")
    assert len(read) == 4


def test_sections_that_have_something_to_show(visit: Open, single: Path) -> None:
    page = visit(fragment="open=spectra.configurations")
    assert lines(page, "spectra") == 1
    page.select_option("#split", "test")
    page.locator("#spectra-chart .chart").focus()
    page.keyboard.press("End")
    told = page.locator("#spectra-chart-readout").inner_text()
    assert told == "lucir (1 of 3 runs), 4 largest directions: 70.00"
    links = page.locator("#sections a").all_inner_texts()
    assert links[:5] == ["All results", "Old and new classes", "Forgetting", "Accuracy against seconds", "Spectra"]
    assert links[5:] == ["One run in detail", "Machines and versions", "Classes", "Configurations"]
    page.locator("#configuration-list > details > summary").last.click()
    shown = json.loads(page.locator("#configuration-list pre").last.inner_text())
    assert shown["protocol"]["memory"] == "per_class:40"
    assert "Spectra" not in visit(file=single).locator("#sections").inner_text()


def test_spectra_show_runs_that_were_analysed(visit_other: Open) -> None:
    records = [make_record(name=f"run {i}", data="glyphs" if i < 13 else "cifar100") for i in range(15)]
    page = visit_other(records, [[]] * 13 + [[PAGE_ANALYSIS], [PAGE_ANALYSIS]], fragment="open=spectra")
    assert (lines(page), lines(page, "spectra")) == (12, 2)  # none of those drawn was analysed
    assert page.locator("#spectra-note").inner_text().startswith("None of the lines above was analysed")
    page.select_option("#data", "cifar100")
    assert (lines(page), lines(page, "spectra")) == (2, 2)
    assert page.locator("#spectra-note").inner_text() == ""


@pytest.mark.parametrize(("width", "whole"), [(1280, True), (380, False)])
def test_nothing_in_the_tables_is_cut(visit_other: Open, width: int, whole: bool) -> None:
    records = [make_record(method=method, seed=seed) for method in ("lucir", "podnet", "bic") for seed in (0, 1)]
    records.append(make_record(name="one/with/a/rather/long/name/cifar100/b50s10"))
    for index, record in enumerate(records):
        record["environment"] |= {"platform": f"Linux-6.18.44-a-long-name-{index}", "threads": index}
    page = visit_other(records, width=width, fragment="open=results.setup")
    cut = """(box) => {
        const right = box.getBoundingClientRect().right;
        return [...box.querySelectorAll("thead th, tbody td")].map((cell) => cell.getBoundingClientRect())
            .filter((cell) => cell.left < right - 1 && cell.right > right + 1).length;
    }"""
    for table in ("results", "setup"):
        box = page.locator(f".scroll:has(#{table}-rows)")
        assert box.evaluate("(box) => box.scrollWidth <= box.clientWidth") == whole
        assert box.evaluate(cut) == 0
        more = page.locator(f"div:has(> .scroll > #{table}-rows) > .more")
        assert more.is_visible() != whole
        if not whole:
            box.evaluate("(box) => box.scrollTo(box.scrollWidth, 0)")
            playwright.expect(more).to_be_hidden()


def test_dark_by_preference_and_by_switch(visit: Open, single: Path) -> None:
    shade, cells = "getComputedStyle(document.body).backgroundColor", "document.getElementById('canvas').toDataURL()"
    light, dark = (visit(color_scheme=scheme, file=single) for scheme in ("light", "dark"))
    light.wait_for_selector("#confused table")
    white, black, painted = light.evaluate(shade), dark.evaluate(shade), light.evaluate(cells)
    assert white == "rgb(255, 255, 255)" != black
    line = "getComputedStyle(document.querySelector('#accuracy-chart .curve')).stroke"
    assert (light.evaluate(line), dark.evaluate(line)) == ("rgb(0, 137, 93)", "rgb(31, 199, 149)")  # PODNet's
    light.select_option("#theme", "dark")
    assert light.evaluate(shade) == black
    assert light.evaluate(cells) != painted
    dark.select_option("#theme", "light")
    assert dark.evaluate(shade) == white


@pytest.mark.parametrize("width", [320, 390, 1400])
@pytest.mark.parametrize("file", ["path", "many", "single"])
def test_nothing_scrolls_sideways_but_tables(
    visit: Open, request: pytest.FixtureRequest, file: str, width: int
) -> None:
    page = visit(width=width, file=request.getfixturevalue(file), fragment=ALL if file != "many" else "open=results")
    if file != "many":  # everything that can be opened, with names of all kinds
        page.evaluate("document.querySelectorAll('details:not([open])').forEach((one) => { one.open = true; })")
        page.wait_for_selector("#class-lists li, #configuration-list pre")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#accuracy-chart .chart").hover(position={"x": 150, "y": 150})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_is_reached_by_the_tab_key(visit: Open) -> None:
    page, reached = visit(fragment="open=run"), set()
    page.wait_for_selector("#confused table")
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"skip", "theme", "q", "method", "by", "chooser-summary", "chart", "which", "phase", "canvas-box"} <= reached
    assert "scroll" in reached


def test_sections_open_by_keyboard_and_print_if_open(visit: Open) -> None:
    page = visit()
    page.locator("#forgetting > summary").focus()
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#forgetting-chart svg")).to_be_visible()
    assert page.locator("#results-table").inner_html() == ""  # built when it is opened
    page.locator("#sections a", has_text="All results").focus()
    page.keyboard.press("Enter")
    playwright.expect(page.locator("#results-rows")).to_be_in_viewport()
    assert page.evaluate("document.activeElement.parentElement.id") == "results"
    page.emulate_media(media="print")
    assert page.locator("#forgetting-chart svg").is_visible()
    assert page.locator("#results-rows").is_visible()
    assert not page.locator("#setup").is_visible()
    assert not page.locator("#bar").is_visible()
