"""Streams for runs that share a GPU from the threads of one process: each run has its own, shared with nobody.

torch hands out 32 streams in turn, so that two requests may give the same one. Two runs on one stream would put
each other's work into their captured steps; and cuBLAS keeps one workspace a stream, which steps captured on the
same stream would write to at once.
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import torch

DEVICE_CALM = threading.RLock()
"""Held by whoever captures, and by all work of packed runs that is not replayed: a search for algorithms, say,
waits for the whole device, which breaks any capture under way on it."""

MOST_LANES = 10  # three streams each, of the 32

_taken: set[int] = set()
_here = threading.local()


class Lane(NamedTuple):
    run: torch.cuda.Stream
    """Where the run's steps are replayed, when it is one of several."""
    capture: torch.cuda.Stream
    aside: torch.cuda.Stream
    """Beside the captured work: the teacher's forward pass."""


@functools.cache
def lane(number: int, device: torch.device) -> Lane:
    if number >= MOST_LANES:
        raise ValueError(f"at most {MOST_LANES} runs can share a GPU")
    return Lane(_stream(device), _stream(device), _stream(device))


def _stream(device: torch.device) -> torch.cuda.Stream:
    """One that was not handed out before."""
    while (stream := torch.cuda.Stream(device)).cuda_stream in _taken:
        pass
    _taken.add(stream.cuda_stream)
    return stream


def enter_lane(number: int, device: torch.device) -> None:
    """What this thread computes from now on is on that lane."""
    with DEVICE_CALM:
        _here.lane = lane(number, device)
    torch.cuda.set_stream(_here.lane.run)


def current_lane(device: torch.device) -> Lane:
    """This thread's lane; the first, where nothing else runs."""
    found: Lane = getattr(_here, "lane", None) or lane(0, device)
    return found
