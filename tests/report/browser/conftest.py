"""The report's page in a browser.

Wants Chromium and playwright (`pip install '.[browser]'`); its tests are skipped where either is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phasezero.records.run import Record
from phasezero.report.page import write_page
from samples import HOSTILE, PAGE_ANALYSIS, make_record

Open = Callable[..., Any]


@pytest.fixture(scope="package")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [
        *(make_record(seed=seed, nearest_mean=True) for seed in range(3)),
        make_record(initial=["cwd:0.5"]),
        make_record(method="icarl", nearest_mean=True),
        make_record(name=HOSTILE, per_class=40, drop=2),
    ]
    records[-1]["timing"] |= {"seconds_total": 240.0, "share_seconds": 80.0}
    records[-1]["data"]["class_names"] = [f"{HOSTILE} {label}" for label in range(100)]
    where = tmp_path_factory.mktemp("page") / "report.html"
    write_page(records, where, [[PAGE_ANALYSIS]], title="The report")
    return where


@pytest.fixture
def visit(browser: Any, path: Path) -> Iterator[Open]:
    """Open the page; at the end there must be no errors and no network requests."""
    complaints: list[str] = []
    contexts = []

    def open_page(width: int = 1400, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.append(request.url) if "report" not in request.url else None)
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
    """Open a page of other records."""
    pages = []

    def open_page(records: list[Record], analyses: Any = (), width: int = 1400) -> Any:
        write_page(records, tmp_path / "other.html", analyses)
        pages.append(browser.new_page(viewport={"width": width, "height": 900}))
        pages[-1].goto((tmp_path / "other.html").as_uri())
        pages[-1].wait_for_selector("#confused :is(table, p)")  # of a run without a mistake there is no table
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()
