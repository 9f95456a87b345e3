"""Streams of packed runs: never the same one twice, though torch hands out 32 in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from phasezero.engine import lanes


@pytest.fixture
def round_robin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch.cuda.Stream as it behaves: 32 streams, then the first again (and others have asked before us)."""
    numbers = itertools.cycle(range(32))
    for _ in range(30):
        next(numbers)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(cuda_stream=next(numbers)))
    monkeypatch.setattr(lanes, "_taken", set())
    lanes.lane.cache_clear()
    yield
    lanes.lane.cache_clear()


@pytest.mark.usefixtures("round_robin")
def test_no_two_lanes_share_a_stream() -> None:
    device = torch.device("cuda")
    streams = [
        stream.cuda_stream for number in range(lanes.MOST_LANES) for stream in lanes.lane(number, device)
    ]
    assert len(streams) == len(set(streams)) == 3 * lanes.MOST_LANES
    assert lanes.lane(3, device) is lanes.lane(3, device)
    with pytest.raises(ValueError, match="at most 10 runs"):
        lanes.lane(lanes.MOST_LANES, device)


@pytest.mark.usefixtures("round_robin")
def test_whoever_entered_no_lane_is_on_the_first() -> None:
    device = torch.device("cuda")
    assert lanes.current_lane(device) is lanes.lane(0, device)
