"""What the tests of the server send, and what they expect of errors."""

from __future__ import annotations

from typing import Any

from samples import COLOURS, make_photo

Files = list[tuple[str, tuple[str, bytes, str]]]


def red(seed: int = 90) -> bytes:
    return make_photo(COLOURS["red"], seed)


def files(*photos: bytes) -> Files:
    return [("image", (f"{at}.jpg", photo, "image/jpeg")) for at, photo in enumerate(photos)]


def error(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.json().keys() == {"status", "error"}
    assert response.json()["status"] == status
    return str(response.json()["error"])
