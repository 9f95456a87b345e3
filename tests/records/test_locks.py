"""Locks between threads and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from phasezero import UserError
from phasezero.records.locks import locked

HOLD = """
import sys, time
from pathlib import Path
from phasezero.records.locks import locked
with locked(Path(sys.argv[1]), "writes this run"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "folder" / ".lock"


def test_the_holder_is_named_and_a_killed_holder_holds_nothing(lock: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=rf"another process writes this run \(process {holder.pid} on "):  # noqa: SIM117
        with locked(lock, "writes this run", wait=0):
            pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert lock.exists()
    with locked(lock, "writes this run", wait=0):
        assert f"process {os.getpid()} " in lock.read_text()
    assert not lock.exists()


def test_waiting_is_announced_once(lock: Path) -> None:
    said, order, taken = list[str](), list[int](), threading.Event()

    def second() -> None:
        with locked(lock, "trains the same phase 0", say=said.append):
            order.append(2)

    thread = threading.Thread(target=second)
    with locked(lock, "trains the same phase 0"):
        thread.start()
        while not said:
            taken.wait(0.01)
        order.append(1)
    thread.join(30)
    assert order == [1, 2]
    assert len(said) == 1
    assert "trains the same phase 0" in said[0]


def test_many_threads_never_hold_it_at_once(lock: Path) -> None:
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(20):
            with locked(lock, "counts"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]


def test_an_error_of_the_block_is_raised(lock: Path) -> None:
    with pytest.raises(BlockingIOError), locked(lock, "fails"):
        raise BlockingIOError
    assert not lock.parent.exists()  # a folder that was made and stayed empty
