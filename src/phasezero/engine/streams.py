"""CUDA streams for runs that share a GPU from the threads of one process: each run has streams of its own.

torch hands out 32 streams in turn, so that two requests may give the same one. Two runs on one stream would put
each other's work into their captured steps; and cuBLAS keeps one workspace a stream, which steps captured on the
same stream would write to at once.
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import torch

CAPTURE_LOCK = threading.RLock()
"""Held during a capture, and during all work of packed runs that is not replayed: a search for algorithms, for
example, waits for the whole device, which breaks any capture under way on it."""

MOST_RUNS = 10  # three streams each, of the 32

_taken: set[int] = set()
_here = threading.local()


class Streams(NamedTuple):
    run: torch.cuda.Stream
    """Where the run's steps are replayed, when it is one of several."""
    capture: torch.cuda.Stream
    teacher: torch.cuda.Stream
    """The teacher's forward pass, beside the captured work."""


@functools.cache
def streams_of(number: int, device: torch.device) -> Streams:
    """Return the streams of the run with this number; no stream is handed out twice."""
    if number >= MOST_RUNS:
        raise ValueError(f"at most {MOST_RUNS} runs can share a GPU")
    found: list[torch.cuda.Stream] = []
    while len(found) < 3:
        stream = torch.cuda.Stream(device)
        if stream.cuda_stream not in _taken:
            _taken.add(stream.cuda_stream)
            found.append(stream)
    return Streams(*found)


def use_streams(number: int, device: torch.device) -> None:
    """Let this thread compute on the streams of that number from now on."""
    with CAPTURE_LOCK:
        _here.streams = streams_of(number, device)
    torch.cuda.set_stream(_here.streams.run)


def current_streams(device: torch.device) -> Streams:
    """Return this thread's streams: those of run 0 where `use_streams` chose none."""
    found: Streams = getattr(_here, "streams", None) or streams_of(0, device)
    return found
