"""Streams of packed runs: never the same stream twice, though torch hands out 32 in turn."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from phasezero.engine import streams


def test_no_two_runs_share_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.cuda.Stream as it behaves: 32 streams, then the first again (and others have asked before us)."""
    numbers = itertools.cycle(range(32))
    for _ in range(30):
        next(numbers)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(cuda_stream=next(numbers)))
    monkeypatch.setattr(streams, "_taken", set())
    device, streams_of = torch.device("cuda"), streams.streams_of
    streams_of.cache_clear()
    found = [stream.cuda_stream for number in range(streams.MOST_RUNS) for stream in streams_of(number, device)]
    assert len(found) == len(set(found)) == 3 * streams.MOST_RUNS
    assert streams_of(3, device) is streams_of(3, device)
    assert streams.current_streams(device) is streams_of(0, device)  # of whoever chose none
    with pytest.raises(ValueError, match="at most 10 runs"):
        streams_of(streams.MOST_RUNS, device)
    streams_of.cache_clear()
