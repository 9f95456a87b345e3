"""The report's page in a browser.

Wants Chromium and playwright (`pip install '.[browser]'`); its tests are skipped where either is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

from phasezero.records.run import Record
from phasezero.report.page import write_page
from samples import HOSTILE, PAGE_ANALYSIS, make_record

Open = Callable[..., Any]


def many_records() -> list[Record]:
    """Return 125 records of several data sets, methods, strategies and protocols, with up to three seeds each."""
    small = {"glyphs": [(10, *[5] * 4), (10, *[10] * 2)], "cifar100": [(20, *[10] * 3), (20, *[5] * 6)]}
    methods = ("lucir", "podnet", "bic", "icarl", "lwf", "finetune")
    kinds = product(range(3), small.items(), methods, ([], ["cwd"]))
    plans = ((seed, data, method, initial, sizes) for seed, (data, lists), method, initial in kinds for sizes in lists)
    return [
        make_record(
            method=method, initial=initial, data=data, sizes=sizes, seed=seed, nearest_mean=True, per_class=5, drop=2
        )
        for seed, data, method, initial, sizes in islice(plans, 125)
    ]


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


@pytest.fixture(scope="package")
def many_runs() -> list[Record]:
    return many_records()


@pytest.fixture
def labels(many_runs: list[Record]) -> set[str]:
    return {record["name"] for record in many_runs}


@pytest.fixture(scope="package")
def many(tmp_path_factory: pytest.TempPathFactory, many_runs: list[Record]) -> Path:
    where = tmp_path_factory.mktemp("many") / "report.html"
    write_page(many_runs, where)
    return where


@pytest.fixture(scope="package")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("single") / "report.html"
    write_page([make_record(method="podnet", sizes=(5, 3))], where)
    return where


@pytest.fixture
def visit(browser: Any, path: Path) -> Iterator[Open]:
    """Open a page; at the end there must be no errors and no network requests."""
    complaints: list[str] = []
    contexts = []

    def open_page(width: int = 1400, file: Path = path, fragment: str = "", **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        local = ("file:", "blob:null/")
        page.on("request", lambda request: None if request.url.startswith(local) else complaints.append(request.url))
        page.goto(f"{file.as_uri()}#{fragment}" if fragment else file.as_uri())
        page.wait_for_selector("#accuracy-chart svg", state="attached")
        return page

    yield open_page
    for context in contexts:
        assert all(page.evaluate("window.broken") is None for page in context.pages)
        context.close()
    assert complaints == []


@pytest.fixture
def visit_other(visit: Open, tmp_path: Path) -> Open:
    """Open a page of other records."""

    def open_page(records: list[Record], analyses: Any = (), width: int = 1400, fragment: str = "") -> Any:
        write_page(records, tmp_path / "other.html", analyses)
        return visit(width=width, file=tmp_path / "other.html", fragment=fragment)

    return open_page
