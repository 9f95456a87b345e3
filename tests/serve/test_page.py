"""The page as a visitor uses it: name photos, teach a class, try it, undo it, with pointer and keyboard."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

import uvicorn

from phasezero.serve.app import create_app
from phasezero.serve.limits import Limits
from phasezero.serve.state import Model
from samples import COLOURS, HOSTILE, make_photo

Open = Callable[..., Any]
File = dict[str, Any]


def photos(name: str, *seeds: int) -> list[File]:
    return [
        {"name": f"{seed}.jpg", "mimeType": "image/jpeg", "buffer": make_photo(COLOURS[name], seed)} for seed in seeds
    ]


@pytest.fixture
def visit(browser: Any, folder: Path) -> Iterator[Open]:
    """Open the page of a served model; at the end there must be no errors and no requests to other servers."""
    complaints: list[str] = []
    closing: list[Callable[[], None]] = []

    def open_page(
        width: int = 1280, token: str | None = None, fragment: str = "", limits: Limits | None = None, **options: Any
    ) -> Any:
        listening = socket.create_server(("127.0.0.1", 0))
        home = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        app = create_app(Model(folder, device="cpu", limits=limits), token=token)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=1))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join()
            listening.close()

        closing.append(stop)
        while not server.started:
            time.sleep(0.01)
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        closing.append(context.close)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda one: complaints.append(one.url) if not one.url.startswith((home, f"blob:{home}", "data:")) else None,
        )
        page.goto(home + fragment)
        return page

    open_page.complaints = complaints  # type: ignore[attr-defined]
    yield open_page
    for close in reversed(closing):
        close()
    assert complaints == []


def teach(page: Any, name: str, files: list[File]) -> str:
    page.fill("#name", name)
    page.set_input_files("#teach-files", files)
    page.click("#teach-button")
    page.wait_for_selector("#teach-result")
    return str(page.locator("#teach-result").inner_text())


def named(page: Any, files: list[File]) -> list[str]:
    before = page.locator(".said").count()
    page.set_input_files("#try-files", files)
    count(page, ".said", before + len(files))
    return [str(text) for text in page.locator(".said").all_inner_texts()]


def count(page: Any, selector: str, wanted: int) -> None:
    """Wait for a number of elements. The page's policy forbids Playwright's own `wait_for_function`."""
    playwright.expect(page.locator(selector)).to_have_count(wanted, timeout=15_000)


def fits(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_a_visitor_tries_teaches_tries_again_and_undoes(visit: Open, width: int, scheme: str) -> None:
    page = visit(width, color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_selector(".phase")
    assert page.locator("#summary").inner_text().startswith("2 classes · 1 phase")
    assert page.locator("#undo").is_hidden()
    assert named(page, photos("red", 80) + photos("blue", 81)) == ["blue", "red"]  # the newest first
    assert page.locator(".answer").first.locator(".bars li").first.inner_text().startswith("blue")
    assert page.locator(".similar img").count() == 8
    assert page.evaluate("Promise.all([...document.querySelectorAll('.similar img')].map((one) => one.decode()))")
    assert fits(page)

    assert page.locator("#teach-button").is_disabled()
    assert "Learned green with 3 photos" in teach(page, "green", photos("green", 1, 2, 3))
    assert page.locator(".phase").first.inner_text().startswith("Phase 1")
    assert "green" in page.locator(".phase").first.inner_text()
    assert page.locator("#name").input_value() == ""
    assert named(page, photos("green", 82))[0] == "green"
    assert fits(page)

    assert page.locator("#undo").inner_text() == "Undo: green"
    page.click("#undo")
    count(page, ".phase", 1)
    playwright.expect(page.locator("#teach-result")).to_have_text("Back to 2 classes.")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


def test_everything_can_be_done_with_the_keyboard(visit: Open) -> None:
    page = visit()
    page.wait_for_selector(".phase")
    order = []
    for _ in range(8):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label')"))
    assert order[1:4] == ["try-files", "name", "teach-files"]
    assert "Add photos of blue" in order
    page.locator("[aria-label='Add photos of blue']").press("Enter")
    assert page.locator("#name").input_value() == "blue"
    assert page.evaluate("document.activeElement.id") == "teach-files"
    page.set_input_files("#teach-files", photos("blue", 60, 61))
    page.locator("[aria-label='Remove 60.jpg']").press("Enter")
    assert page.locator("#lesson li").count() == 1
    page.locator("#name").press("Enter")
    page.wait_for_selector("#teach-result")
    assert "Extended blue with 1 photo in" in page.locator("#teach-result").inner_text()


def test_photos_are_dropped_and_pasted(visit: Open) -> None:
    page = visit()
    page.wait_for_selector(".phase")
    send = """async ([kind, where, bytes, type]) => {
        const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], "photo.jpg", { type }));
        const options = { bubbles: true, cancelable: true };
        document.querySelector(where).dispatchEvent(kind === "drop"
            ? new DragEvent("drop", { ...options, dataTransfer: data })
            : new ClipboardEvent("paste", { ...options, clipboardData: data }));
    }"""
    red = list(make_photo(COLOURS["red"], 83))
    page.evaluate(send, ["drop", "#try-drop", red, "image/jpeg"])
    page.evaluate(send, ["paste", "body", red, "image/jpeg"])
    count(page, ".said", 2)
    page.evaluate(send, ["drop", "#teach-drop", red, "image/jpeg"])
    page.locator("#name").focus()
    page.evaluate(send, ["paste", "#name", red, "image/jpeg"])
    assert page.locator("#lesson li").count() == 2
    page.evaluate(send, ["drop", "#try-drop", red, "text/plain"])
    assert "1 file left out" in page.locator("#try-status").inner_text()
    page.evaluate(send, ["drop", "footer", red, "image/jpeg"])  # beside the zones, nothing happens
    assert page.locator(".answer").count() == 2


def test_names_and_files_of_others_are_text(visit: Open) -> None:
    page = visit(360)
    page.wait_for_selector(".phase")
    own = [photo | {"name": f"{HOSTILE}.jpg".replace("/", "")} for photo in photos("grey", 1, 2)]
    assert HOSTILE in teach(page, HOSTILE, own)
    assert named(page, photos("grey", 84))[0] == HOSTILE
    assert fits(page)
    assert page.evaluate("window.broken") is None


def test_what_is_too_large_is_not_sent(visit: Open) -> None:
    page = visit(limits=Limits(file_bytes=20_000, learn_files=2, learn_bytes=8000))
    page.wait_for_selector(".phase")
    page.set_input_files("#try-files", [photo | {"buffer": bytes(20_001)} for photo in photos("red", 1)])
    assert "1 file left out" in page.locator("#try-status").inner_text()
    page.set_input_files("#teach-files", photos("grey", 1, 2, 3))
    assert "Some photos were left out" in page.locator("#teach-result").inner_text()
    assert 1 <= page.locator("#lesson li").count() <= 2
    page.fill("#name", "grey")
    page.click("#teach-button")
    count(page, ".phase", 2)


def test_mistakes_are_told(visit: Open) -> None:
    page = visit()
    page.wait_for_selector(".phase")
    broken = {"name": "a.jpg", "mimeType": "image/jpeg", "buffer": b"no image"}
    page.set_input_files("#try-files", [broken])
    page.wait_for_selector(".answer .bad")
    assert "cannot be read" in page.locator(".answer .bad").inner_text()
    assert "Image 2 cannot be read" in teach(page, "new", [*photos("grey", 1), broken])
    assert page.locator("#lesson li").count() == 2  # kept, to be corrected
    assert all("400" in text for text in visit.complaints)  # type: ignore[attr-defined]
    visit.complaints.clear()  # type: ignore[attr-defined]


def test_a_token_comes_in_the_fragment_or_is_asked_for(visit: Open) -> None:
    page = visit(token="s3 cret", fragment="#token=s3%20cret")
    page.wait_for_selector(".phase")
    assert "token" not in page.url
    assert named(page, photos("red", 85)) == ["red"]
    page.reload()
    page.wait_for_selector(".phase")
    page = visit(360, token="other")
    page.wait_for_selector("#token-form")
    page.fill("#token", "other")
    page.keyboard.press("Enter")
    page.wait_for_selector(".phase")
    assert page.locator("#token-form").is_hidden()
    assert all("401" in text for text in visit.complaints)  # type: ignore[attr-defined]
    visit.complaints.clear()  # type: ignore[attr-defined]
