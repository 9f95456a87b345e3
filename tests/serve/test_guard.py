"""Who may ask a server, how often and how much at once; and what it tells browsers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from starlette.testclient import TestClient

from phasezero.serve.limits import Memory, Problem, RateLimit
from phasezero.serve.routes import ROUTES
from phasezero.serve.server import address
from samples import COLOURS, make_photo
from uploads import error, files, red

Serve = Callable[..., TestClient]


def test_a_token_is_needed(serve: Serve) -> None:
    client = serve(host="0.0.0.0", token="s3cret")
    for route in ROUTES:
        path = route.path.replace("{index}", "0").replace("{n}", "0")
        for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic s3cret"}):
            response = client.request(route.method, path, headers=given)
            if route.open:
                assert response.status_code == 200
            else:
                assert "token" in error(response, 401)
                assert response.headers["www-authenticate"] == "Bearer"
    assert client.get("/classes", headers={"authorization": "bearer s3cret"}).status_code == 200
    assert client.get("/classes?token=s3cret").status_code == 401
    assert address("0.0.0.0", 80, "a b#").endswith("/#token=a%20b%23")


def test_other_hosts_and_other_web_sites_are_refused(client: TestClient, serve: Serve) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example:8000", "", "[", "0.0.0.0"):
        assert "localhost" in error(client.get("/classes", headers={"host": host}), 403)
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"):
        assert client.get("/classes", headers={"host": host}).status_code == 200
    for origin in ("https://evil.example", "null", "http://127.0.0.1:9"):
        error(client.post("/learn", data={"name": "a"}, files=files(red()), headers={"origin": origin}), 403)
    error(client.post("/undo", headers={"sec-fetch-site": "cross-site"}), 403)
    own = {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}
    assert client.post("/predict", files=files(red()), headers=own).status_code == 200
    other = serve(host="0.0.0.0", token="a")
    named = {"host": "photos.example", "authorization": "Bearer a", "origin": "https://photos.example"}
    assert other.get("/classes", headers=named).status_code == 200


def test_every_response_has_the_security_headers(serve: Serve) -> None:
    client = serve(token="a")
    for path in ("/", "/page.css", "/classes", "/nothing", "/health"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_a_fast_client_is_slowed_down(serve: Serve) -> None:
    client = serve(rate=0.5, burst=3)
    assert [client.get("/health").status_code for _ in range(3)] == [200] * 3
    response = client.get("/health")
    assert "too many requests" in error(response, 429)
    assert response.headers["retry-after"] == "2"


def test_tokens_of_a_client_come_back() -> None:
    now = [0.0]
    rates = RateLimit(2.0, 2, lambda: now[0])
    assert [rates.wait("10.0.0.1") for _ in range(3)] == [0, 0, 0.5]
    assert rates.wait("10.0.0.2") == 0
    now[0] = 0.5
    assert [rates.wait("10.0.0.1") for _ in range(2)] == [0, 0.5]
    assert [rates.wait(f"2001:db8::{at}") for at in range(3)] == [0, 0, 0.5]  # a network is a client
    assert all(rates.wait(str(at)) == 0 for at in range(RateLimit.CLIENTS + 5))
    assert len(rates._buckets) == RateLimit.CLIENTS
    assert RateLimit(0, 1).wait("a") == RateLimit(0, 1).wait("a") == 0


def test_a_full_server_is_busy(serve: Serve) -> None:
    client = serve(waiting_images=1, held_bytes=6000)
    small = make_photo(COLOURS["red"], 7, 16)
    response = client.post("/predict", files=files(small, small))
    assert "wait for a prediction" in error(response, 503)
    assert response.headers["retry-after"] == "1"
    assert "holds too many" in error(client.post("/predict", files=files(bytes(6001))), 503)
    assert client.post("/predict", files=files(small)).status_code == 200
    assert "same time" in error(serve(requests=0).get("/health"), 503)
    memory = Memory(10)
    with memory.hold() as hold:
        hold(9)
        with pytest.raises(Problem):
            hold(2)
    assert memory.held == 0


def test_an_upload_that_stops_is_given_up(serve: Serve) -> None:
    client = serve(body_seconds=0.1)

    async def stall() -> int:
        scope = {
            "type": "http", "method": "POST", "path": "/predict", "raw_path": b"/predict", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"image/png")], "http_version": "1.1",
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "scheme": "http", "root_path": "",
        }  # fmt: skip
        sent: list[Any] = []

        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message)

        await client.app(scope, receive, send)
        return int(sent[0]["status"])

    with ThreadPoolExecutor() as thread:  # Playwright, if another test opened a browser, runs a loop in this thread
        assert thread.submit(asyncio.run, stall()).result() == 408
