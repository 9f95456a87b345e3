"""The switches that runs of one process share, and what devices are called."""

from __future__ import annotations

import threading

import pytest
import torch

from phasezero.config import Engine
from phasezero.engine.device import Device
from phasezero.engine.step import algorithm_search
from phasezero.errors import UserError


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


def test_the_last_to_leave_restores_everything() -> None:
    def switches() -> tuple[object, ...]:
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        return torch.get_num_threads(), cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32

    before = switches()
    first, second = (Device.choose(Engine(device="cpu", threads=threads)).settings() for threads in (3, 5))
    first.__enter__()
    second.__enter__()
    assert switches() == (3, True, False, False)  # float32, eager
    first.__exit__(None, None, None)
    assert switches() == (3, True, False, False)
    second.__exit__(None, None, None)
    assert switches() == before


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "mps", "meta", "", "cuda"])
def test_a_device_that_cannot_be_used_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"engine.device: .*; use "):
        Device.choose(Engine(device=name))
