"""Stop runs at the user's request: the first Ctrl-C or SIGTERM saves the state of training, the second exits at once.

Within a block of `noticing` a request is only noted, and whoever trains there asks `requested()` after each step.
Elsewhere a request raises KeyboardInterrupt, as Ctrl-C does in Python.
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
_lock = threading.Lock()
_blocks = {"noticing": 0, "working": 0}
_last = [signal.SIGINT]
_is_worker = False


class StoppedError(KeyboardInterrupt):
    """Raised where training stops because of a request, after its state was saved."""


def exit_code() -> int:
    """Return the exit code of a process that the last signal stopped, by the convention of shells."""
    return 128 + _last[0]


def requested() -> bool:
    """Tell whether a stop was requested."""
    return _request.is_set()


@contextlib.contextmanager
def noticing(name: str = "noticing") -> Iterator[None]:
    """Note requests within the block instead of raising KeyboardInterrupt."""
    with _lock:
        _blocks[name] += 1
    try:
        yield
    finally:
        with _lock:
            _blocks[name] -= 1


def working() -> contextlib.AbstractContextManager[None]:
    """Mark a worker process as busy: an idle worker ends at once."""
    return noticing("working")


@contextlib.contextmanager
def graceful(message: str = "") -> Iterator[None]:
    """Handle SIGINT and SIGTERM within the block, in a main thread; print the message when a request is noted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = install(message)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _request.clear()


def leave_if_requested() -> None:
    """End a worker process that was told to stop."""
    if _is_worker and requested():
        os._exit(exit_code())


def install(message: str | None = None) -> dict[signal.Signals, signal._HANDLER]:
    """Install the handler and return those before; without a message in a worker process, whose parent is in charge."""

    global _is_worker
    _is_worker = message is None

    def handle(number: int, frame: FrameType | None) -> None:
        _last[0] = signal.Signals(number)
        if message is None and not _blocks["working"]:
            os._exit(128 + number)
        if _request.is_set():
            if message is not None:
                os._exit(128 + number)
            return  # the parent repeats itself
        _request.set()
        if not _blocks["noticing"]:
            raise KeyboardInterrupt
        if message:
            print(message, file=sys.stderr, flush=True)

    return {number: signal.signal(number, handle) for number in SIGNALS}
