"""Stop a run at the user's request: the first Ctrl-C or SIGTERM saves the state of training, the second exits at once.

Within a block of `noticing` a request is only noted, and whoever trains there asks `requested()` after each step.
Elsewhere the request raises KeyboardInterrupt, as Python does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_request = threading.Event()
_noticing = 0
_lock = threading.Lock()


class StoppedError(KeyboardInterrupt):
    """Raised where training stops because of a request, after its state was saved."""


def requested() -> bool:
    """Tell whether a stop was requested."""
    return _request.is_set()


@contextlib.contextmanager
def noticing() -> Iterator[None]:
    """Note requests within the block instead of raising KeyboardInterrupt."""
    global _noticing
    with _lock:
        _noticing += 1
    try:
        yield
    finally:
        with _lock:
            _noticing -= 1


@contextlib.contextmanager
def graceful(message: str = "") -> Iterator[None]:
    """Handle SIGINT and SIGTERM within the block, in a main thread; print the message when a request is noted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if _request.is_set():
            os._exit(128 + number)
        if not _noticing:
            signal.signal(number, signal.SIG_DFL)
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        _request.set()
        if message:
            print(message, file=sys.stderr, flush=True)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _request.clear()
