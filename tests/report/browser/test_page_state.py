"""Search, filters and shared links, with a page of 125 runs; downloads; numbers and looks as Python has them."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from PIL import Image

from phasezero.identity import group_by_identity
from phasezero.records.run import Record
from phasezero.report.looks import looks_among
from phasezero.report.tables import conditions
from phasezero.validation import no_formula
from samples import HOSTILE, make_record

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

Open = Callable[..., Any]


def groups(page: Any) -> list[str]:
    return sorted(page.evaluate("view.matching.map((group) => group.label)"))


def state(page: Any) -> dict[str, list[str]]:
    page.wait_for_timeout(250)  # the address follows a moment later
    return parse_qs(page.evaluate("location.hash.slice(1)"))


def test_search_and_filters_apply_to_charts_and_tables(visit: Open, many: Path, labels: set[str]) -> None:
    page = visit(file=many, fragment="open=results.setup.cost")
    assert groups(page) == sorted(labels)
    assert page.locator("#matches").inner_text() == f"{len(labels)} groups"
    assert page.locator("#setup-rows tbody tr").count() == 125
    page.fill("#q", "LUCIR b10s5")  # every word, in any case
    wanted = sorted(label for label in labels if "lucir" in label and "b10s5" in label)
    assert 0 < len(wanted) == page.locator("#accuracy-chart [data-series]").count()
    assert groups(page) == wanted
    assert page.locator("#results-rows tbody tr:has(td)").count() == len(wanted)
    assert page.locator("#cost-chart [data-series]").count() == len(wanted)
    assert page.locator("#headline-rows thead th").all_inner_texts() == ["method", "S=5"]
    page.click("#clear")
    assert groups(page) == sorted(labels)
    assert page.evaluate("document.activeElement.id") == "q"
    for name, value, part in (
        ("data", "glyphs", "/glyphs/"),
        ("strategy", "cwd", "+cwd"),
        ("S", "5", "s5"),
        ("method", "podnet", "podnet"),
    ):
        page.select_option(f"#{name}", value)
        labels = {label for label in labels if part in label}
        assert groups(page) == sorted(labels)
    assert len(labels) == 1
    page.fill("#q", "nothing is called this")
    assert page.locator("#matches").inner_text() == "No run matches"
    assert page.locator("#accuracy-chart [data-series]").count() == 0


def test_a_seed_shows_that_run(visit: Open) -> None:
    page = visit(fragment="open=results.setup")
    first = page.locator("#results-rows tbody tr:has(td)").first
    assert first.locator("td").all_inner_texts()[:2] == ["3", "71.00 ± 1.00"]
    page.select_option("#seed", "2")
    assert groups(page) == ["lucir/cifar100/b50s10"]
    assert first.locator("td").all_inner_texts()[:2] == ["1", "72.00"]
    assert page.locator("#setup-rows tbody tr").count() == 1
    page.locator("#accuracy-chart .chart").focus()
    page.keyboard.press("End")
    assert page.locator("#accuracy-chart-readout").inner_text().endswith("100 classes seen: 62.00")


def test_with_many_runs_the_largest_comparable_set_is_drawn(visit: Open, many: Path, many_runs: list[Record]) -> None:
    page = visit(file=many)
    sets = Counter(json.dumps(conditions(group)) for group in group_by_identity(many_runs))
    largest = max(sets.values())
    assert 2 < page.locator("#accuracy-chart [data-series]").count() == largest <= 12
    assert page.locator("#mixed").is_hidden()
    assert re.match(
        r"(cifar100|glyphs) · B=\d+ S=\d+, \d+ phases · per_class:5 · ", page.locator("#drawn").inner_text()
    )
    assert page.locator("#switches").inner_html() == ""  # built when it is opened
    assert page.evaluate("document.documentElement.scrollHeight") < 2500


def test_a_link_restores_the_view(visit: Open, many: Path) -> None:
    page = visit(file=many)
    page.fill("#q", "cifar100")
    page.select_option("#S", "10")
    page.select_option("#by", "nearest_mean")
    page.click("#chooser-summary")
    for name in ("podnet", "bic+cwd"):
        page.get_by_label(name, exact=True).uncheck()
    page.click("#run > summary")
    page.select_option("#which", label="lucir+cwd/cifar100/b20s10, seed 1")
    page.locator("#phase").focus()
    page.keyboard.press("ArrowLeft")
    playwright.expect(page.locator("#phase-value")).to_have_text("2 of 3, 40 classes seen")
    link = state(page)
    assert {name: link[name] for name in ("q", "S", "by", "phase", "open")} == {
        "q": ["cifar100"],
        "S": ["10"],
        "by": ["nearest_mean"],
        "phase": ["2"],
        "open": ["run"],
    }
    other = visit(file=many, fragment=page.evaluate("location.hash.slice(1)"))
    playwright.expect(other.locator("#phase-value")).to_have_text("2 of 3, 40 classes seen")
    shown = "view.lines.map((line) => line.label)"
    assert other.evaluate(shown) == page.evaluate(shown)
    assert len(page.evaluate(shown)) == 10
    for field in ("q", "S", "by", "which"):
        assert other.input_value(f"#{field}") == page.input_value(f"#{field}")
    assert other.locator("#chooser-summary").inner_text() == page.locator("#chooser-summary").inner_text()


def test_a_new_address_changes_the_view(visit: Open, many: Path) -> None:
    page = visit(file=many, fragment="method=lucir")
    assert page.input_value("#method") == "lucir"
    page.evaluate("location.hash = 'method=bic&open=results'")
    playwright.expect(page.locator("#method")).to_have_value("bic")
    playwright.expect(page.locator("#results-rows")).to_be_visible()
    page.evaluate("location.hash = 'forgetting'")  # the name of a section keeps the filters
    playwright.expect(page.locator("#forgetting-chart svg")).to_be_in_viewport()
    assert state(page) == {"method": ["bic"], "open": ["results.forgetting"]}


@pytest.mark.parametrize(
    "fragment",
    [
        "method=nobody&S=7&seed=-1&by=magic&shown=zz.&run=1.2&phase=99&open=nothing.there&rows=some&after=x&split=y",
        "%E0%A4%A&=&q",
        "constructor=1&__proto__=2&toString=3&shown",
        "phase=1e9&paper=maybe&open=%00",
        "not-a-section",
    ],
)
def test_a_damaged_link_opens_the_page_as_it_is(visit: Open, fragment: str) -> None:
    page = visit(fragment=fragment)
    plain = visit()
    kept = "JSON.stringify([state, view.lines.map((line) => line.label)])"
    assert page.evaluate(kept) == plain.evaluate(kept)


def test_names_in_a_link_stay_text(visit: Open) -> None:
    page = visit(fragment=f"q={HOSTILE}")
    assert page.input_value("#q") == HOSTILE
    assert groups(page) == [HOSTILE]
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def download(page: Any, name: str) -> tuple[str, bytes]:
    with page.expect_download() as started:
        page.get_by_role("button", name=f"Download {name}", exact=False).first.click()
    saved = started.value
    return saved.suggested_filename, Path(saved.path()).read_bytes()


def rows_of(text: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text.decode())))


def test_a_chart_is_saved_as_numbers_and_as_pictures(visit: Open) -> None:
    page = visit(color_scheme="dark", accept_downloads=True)
    name, numbers = download(page, "CSV: Accuracy")
    assert name == "phasezero-accuracy.csv"
    header, lucir, *_ = rows_of(numbers)
    assert header[:5] == ["run", "50", "50 std", "60", "60 std"]
    assert lucir[:5] == ["lucir/cifar100/b50s10", "81", "1", "77", "1"]
    name, drawing = download(page, "SVG: Accuracy")
    assert name == "phasezero-accuracy.svg"
    root = ElementTree.fromstring(drawing)
    texts = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "Number of classes seen" in texts  # its axes, and below them the names of its lines
    assert any(text.startswith("icarl") for text in texts)
    assert b"class=" not in drawing
    colours = {path.get("stroke") for path in root.iter("{http://www.w3.org/2000/svg}path")}
    assert "rgb(211, 111, 159)" in colours  # iCaRL's on white, also of a dark page
    name, picture = download(page, "PNG: Accuracy")
    assert name == "phasezero-accuracy.png"
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    assert image.width == 2 * round(float(root.get("width") or 0))
    assert image.getpixel((0, 0)) == (255, 255, 255)
    found = {colour for _, colour in image.getcolors(1 << 20) or []}
    assert (211, 111, 159) in found


def test_tables_and_the_matrix_are_saved(visit: Open) -> None:
    page = visit(accept_downloads=True, fragment="open=results.run")
    name, numbers = download(page, "CSV: cifar100, B=50")
    header, *found = rows_of(numbers)
    assert name == "phasezero-headline-rows.csv"
    assert header == ["method", "S=10", "S=10 std", "S=10 n", "S=10 paper", "S=10 paper std", "S=10 gap"]
    assert next(row for row in found if row[0] == "lucir")[:6] == ["lucir", "71", "1", "3", "66.27", "0.28"]
    _, numbers = download(page, "CSV: Accuracy in percent, classifier")
    assert rows_of(numbers)[0][:5] == ["set", "run", "n", "average", "average std"]
    page.wait_for_selector("#confused table")
    name, numbers = download(page, "CSV: confusion matrix")
    assert name == "phasezero-confusion-lucir-cifar100-b50s10-seed-0-phase-5.csv"
    matrix = rows_of(numbers)
    assert len(matrix) == 101
    assert matrix[1][:3] == ["class 0", "60", "40"]
    name, picture = download(page, "PNG: confusion matrix")
    image = Image.open(io.BytesIO(picture))
    assert (name.removesuffix(".png"), image.format) == (
        "phasezero-confusion-lucir-cifar100-b50s10-seed-0-phase-5",
        "PNG",
    )
    assert image.width >= 1400


def test_a_file_has_no_formulas(visit_other: Open) -> None:
    names = ['=HYPERLINK("x")', "+1+1", "-2", "@sum, of", '"quoted"', "two\nlines", "-1e5", "=1", "+.5", "-", "\tx"]
    record = make_record(sizes=(len(names), 2))
    record["data"]["class_names"] = [*names, "one", "two"]
    page = visit_other([record])
    page.wait_for_selector("#confused :is(table, p)")
    _, numbers = download(page, "CSV: confusion matrix")
    written = [row[0] for row in rows_of(numbers)[1 : 1 + len(names)]]
    assert written == [no_formula(name.replace("\n", " ")) for name in names]
    assert written[0].startswith("'=")


def test_class_names_are_written_where_they_fit(visit_other: Open) -> None:
    few = visit_other([make_record(sizes=(4, 3))])
    few.evaluate("""() => {
        window.written = [];
        const draw = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
            window.written.push(text);
            return draw.call(this, text, ...at);
        };
        dispatchEvent(new Event("repaint"));
    }""")
    written = few.evaluate("window.written")
    assert {"True class", "Predicted class", "100 %", "0 %", *(f"class {label}" for label in range(7))} <= set(written)
    assert written.count("class 6") == 2  # on both axes


def test_numbers_are_rounded_as_python_rounds_them(visit: Open, single: Path) -> None:
    draw = random.Random(0)
    values = [sign * whole / 16 for whole in range(0, 500) for sign in (1, -1)]  # with many ties
    values += [83.125, 83.375, 0.125, 2.675, 1.005, 0.045, 0.5, 1.5, 2.5, 1e-7, 5e-324, 99.995, 99.999, -0.0, -0.001]
    values += [1e21, 1.5e22, -1e300, 123456789.125, 2**52 + 0.5, 4503599627370497.5, float(2**53)]
    values += [draw.uniform(-100, 100) for _ in range(500)] + [draw.randrange(10**6) / 1000 for _ in range(500)]
    page = visit(file=single)
    for digits in (0, 1, 2, 3, 4):
        found = page.evaluate("([values, digits]) => values.map((value) => decimal(value, digits))", [values, digits])
        assert found == [f"{value:.{digits}f}" for value in values]
    found = page.evaluate("(values) => values.map((value) => signed(value))", values)
    assert found == [f"{value:+.2f}".replace("-", "\N{MINUS SIGN}") for value in values]


def test_lines_are_those_of_the_figures(visit: Open, single: Path) -> None:
    models: list[tuple[str, list[str]]] = [
        ("lucir", []),
        ("lucir", ["cwd"]),
        ("lucir", ["cwd"]),
        ("podnet", []),
        ("lucir", ["cwd"]),
        ("stranger", ["sparkle"]),
        *(("ridge", []),) * 9,
    ]
    wanted = [{**asdict(look), "dash": list(look.dash)} for look in looks_among(models)]
    bases = [{**asdict(looks_among([model])[0]), "dash": list(looks_among([model])[0].dash)} for model in models]
    page = visit(file=single)
    found = page.evaluate("(looks) => [...looksAmong(looks.map((look) => ({ look }))).values()]", bases)
    assert found == wanted
    assert page.evaluate("(looks) => looks.every((look) => look.marker in MARKERS)", wanted)
