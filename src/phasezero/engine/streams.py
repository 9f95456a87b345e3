"""CUDA streams for runs that share a GPU from the threads of one process: each run has its own streams.

torch hands out 32 streams in turn, so two requests may return the same stream. Two runs on one stream would capture
each other's work in their steps. And cuBLAS keeps one workspace per stream, which steps captured on the same stream
would write to at the same time.
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import torch

CAPTURE_LOCK = threading.RLock()
"""The capture lock, held during a capture and during all work of packed runs that is not replayed. A search for
algorithms, for example, waits for the whole device, which breaks any capture in progress."""

MOST_RUNS = 10  # three streams each, of the 32

_taken: set[int] = set()
_here = threading.local()


class Streams(NamedTuple):
    run: torch.cuda.Stream
    """The stream that replays the run's steps, if several runs share the GPU."""
    capture: torch.cuda.Stream
    teacher: torch.cuda.Stream
    """The stream of the teacher's forward pass, parallel to the captured work."""


@functools.cache
def streams_of(number: int, device: torch.device) -> Streams:
    """Return the streams of the run with this number; no two runs share a stream."""
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
    """Let this thread use the streams of the run with this number from now on."""
    with CAPTURE_LOCK:
        _here.streams = streams_of(number, device)
    torch.cuda.set_stream(_here.streams.run)


def current_streams(device: torch.device) -> Streams:
    """Return this thread's streams: those of run 0 unless `use_streams` chose others."""
    found: Streams = getattr(_here, "streams", None) or streams_of(0, device)
    return found
