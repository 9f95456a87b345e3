"""The switches that runs of one process share."""

from __future__ import annotations

import threading

import torch

from phasezero.config import Engine
from phasezero.engine.device import Device
from phasezero.engine.step import algorithm_search


def test_a_run_that_begins_a_phase_leaves_anothers_search_on() -> None:
    """As packed runs do: one searches for algorithms while another enters and leaves its settings."""
    device = Device(torch.device("cpu"), "fp16", "captured", torch.get_num_threads())
    before = torch.backends.cudnn.benchmark

    def begin_a_phase() -> None:
        with device.settings():
            pass

    with device.settings():
        assert not torch.backends.cudnn.benchmark
        with algorithm_search(True):
            other = threading.Thread(target=begin_a_phase)
            other.start()
            other.join()
            assert torch.backends.cudnn.benchmark
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark == before


def test_the_last_to_leave_puts_everything_back() -> None:
    device = Device.choose(Engine(device="cpu", threads=1))
    before = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    first, second = device.settings(), device.settings()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_num_threads() == 1
    second.__exit__(None, None, None)
    assert (torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32) == before
