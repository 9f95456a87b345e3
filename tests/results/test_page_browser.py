"""The page in a browser, as a reader uses it: pointer, keyboard, switches, themes, a phone's width.

Wants Chromium and playwright (`pip install '.[browser]'`); skipped where either is missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from phasezero.results.page import write_page
from phasezero.results.record import Record

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

LONG = "x" * 300
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
OWN = "each method\N{RIGHT SINGLE QUOTATION MARK}s own"
MISSING = "\N{EN DASH}"
Open = Callable[..., Any]
ANALYSIS: Any = {  # as much of one as the page reads
    "phase": 0,
    "k": [1, 2, 4],
    "train": {"raw": {"alpha_mean": [0.2, 0.4, 0.8]}},
    "test": {"raw": {"alpha_mean": [0.1, 0.3, 0.7]}},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # Without its sandbox, which does not start for root (in containers); it opens only our own file.
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def path(make_record: Callable[..., Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [
        *(make_record(seed=seed, nearest_mean=True) for seed in range(3)),
        make_record(initial=["cwd:0.5"]),
        make_record(method="icarl", nearest_mean=True),
        make_record(name=HOSTILE, per_class=40, drop=2),
    ]
    records[-1]["timing"] = records[-1]["timing"] | {"seconds_total": 240.0, "share_seconds": 80.0}
    records[-1]["data"]["class_names"] = [f"{HOSTILE} {label}" for label in range(100)]
    where = tmp_path_factory.mktemp("page") / "report.html"
    write_page(records, where, [[ANALYSIS]], title="The report")
    return where


@pytest.fixture
def visit(browser: Any, path: Path) -> Iterator[Open]:
    """Opens the page; in the end nothing may have gone wrong in it, and nothing have been asked of the network."""
    complaints: list[str] = []
    contexts = []

    def open_page(width: int = 1400, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request", lambda request: complaints.append(request.url) if "report" not in request.url else None
        )
        page.goto(path.as_uri())
        page.wait_for_selector("#confused table")
        return page

    yield open_page
    for context in contexts:
        assert all(page.evaluate("window.broken") is None for page in context.pages)
        context.close()
    assert complaints == []


@pytest.fixture
def visit_other(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page of other records."""
    pages = []

    def open_page(records: list[Record], analyses: Any = (), width: int = 1400) -> Any:
        write_page(records, tmp_path / "other.html", analyses)
        pages.append(browser.new_page(viewport={"width": width, "height": 900}))
        pages[-1].goto((tmp_path / "other.html").as_uri())
        pages[-1].wait_for_selector("#confused table")
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


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


def test_runs_side_by_side_cost_their_share(visit: Open) -> None:
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
    page = visit_other(records, [[]] * 10 + [[ANALYSIS], [ANALYSIS]])
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
