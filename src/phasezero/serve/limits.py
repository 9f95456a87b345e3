"""Limits of a server: sizes, rates, memory, and the error that a client sees when it exceeds them."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from phasezero.errors import UserError


class Problem(UserError):  # noqa: N818
    """An error for the client: a status and a message."""

    def __init__(self, status: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def busy(message: str, seconds: int = 1) -> Problem:
    """Return the error for a server that is busy, with the time after which to try again."""
    return Problem(503, message, Retry_After=str(seconds))


@dataclass(frozen=True)
class Limits:
    """What a server accepts. Bytes are those of uploaded files before they are decoded."""

    file_bytes: int = 20_000_000
    predict_files: int = 32
    predict_bytes: int = 64_000_000
    learn_files: int = 500
    learn_bytes: int = 200_000_000
    held_bytes: int = 400_000_000
    """Of all requests together."""
    waiting_images: int = 256
    """Images that wait for a prediction."""
    requests: int = 128
    """Requests at the same time."""
    body_seconds: float = 120.0
    """The time to send a request."""
    rate: float = 50.0
    """Requests per second of a client; 0 means any number."""
    burst: int = 200
    """Requests that a client may send at once."""


class RateLimit:
    """A token bucket per client; the address of an IPv6 client is its network of 64 bits."""

    CLIENTS = 10_000

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.burst, self.clock = rate, burst, clock
        self._buckets = OrderedDict[str, tuple[float, float]]()

    def wait(self, address: str) -> float:
        """Take a token; return 0, or the seconds until there is a token."""
        if not self.rate:
            return 0.0
        client, now = _network(address), self.clock()
        tokens, before = self._buckets.pop(client, (float(self.burst), now))
        tokens = min(self.burst, tokens + (now - before) * self.rate)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - allowed, now)
        if len(self._buckets) > self.CLIENTS:
            self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - tokens) / self.rate


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else address


class Memory:
    """Count the bytes that requests hold, and refuse more than a limit."""

    def __init__(self, limit: int) -> None:
        self.limit, self.held = limit, 0

    @contextmanager
    def hold(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts bytes; at the end of the block they are free again."""
        own = 0

        def add(count: int) -> None:
            nonlocal own
            if self.held + count > self.limit:
                raise busy("the server holds too many uploads; try again later")
            self.held += count
            own += count

        try:
            yield add
        finally:
            self.held -= own
