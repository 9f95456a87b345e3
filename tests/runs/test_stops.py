"""The command, stopped by signals and kills, and continued to the undisturbed records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from phasezero.presets import choose_configs
from phasezero.records.run import Record, comparable_part, read_record
from phasezero.runs.session import run_all

PRESETS = ("lucir/glyphs/b50s10", "ridge/glyphs/b50s10")
SETTINGS = {
    "protocol.phase_sizes": [3, 2],
    "engine.threads": 1,
    "training.first.epochs": 20,
    "training.later.epochs": 1,
}
WAIT = 120.0


def command(out: Path, *words: str) -> list[str]:
    changed = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "phasezero", "run", *PRESETS, *changed, "--out", str(out), *words]


def start(out: Path, *words: str) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command(out, *words), start_new_session=True, **pipes)


def wait_for(process: subprocess.Popen[str], out: Path, pattern: str) -> list[Path]:
    """Wait until files of this name were written."""
    end = time.monotonic() + WAIT
    while not (found := [*out.rglob(pattern)]):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    configs = choose_configs(PRESETS, None, None, None, [], dict(SETTINGS))
    return [comparable_part(record) for record in run_all(configs, out=tmp_path_factory.mktemp("whole")).records]


def records(out: Path) -> list[Record]:
    return [read_record(path) for path in sorted(out.rglob("record.json"))]


def check(out: Path, whole: list[dict[str, Any]]) -> None:
    assert [comparable_part(record) for record in records(out)] == whole
    assert not [*out.rglob("*.tmp")]
    assert not [*out.rglob("*within*")]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_a_signal_saves_the_states_of_parallel_runs_and_they_continue(
    tmp_path: Path, whole: list[dict[str, Any]]
) -> None:
    process = start(tmp_path, "--save-every", "0.2", "--parallel", "2")
    before = wait_for(process, tmp_path, "*within*")[0].stat().st_mtime_ns
    os.kill(process.pid, signal.SIGTERM)
    printed, _ = process.communicate(timeout=WAIT)
    assert process.returncode == 128 + signal.SIGTERM, printed
    assert "Traceback" not in printed
    assert "phasezero: stopping, the state of training is being saved" in printed
    assert "`run` continues with --resume" in printed
    assert max(path.stat().st_mtime_ns for path in tmp_path.rglob("*within.safetensors")) > before
    again = start(tmp_path, "--resume")
    printed, _ = again.communicate(timeout=WAIT)
    assert again.returncode == 0, printed
    assert "continues in phase 0/1, train, after" in printed
    check(tmp_path, whole)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes by /proc")
def test_a_killed_worker_costs_nothing(tmp_path: Path, whole: list[dict[str, Any]]) -> None:
    process = start(tmp_path, "--save-every", "0.1", "--parallel", "2")
    wait_for(process, tmp_path, "*within*")
    workers = [child for child in children(process.pid) if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
    os.kill(max(workers), signal.SIGKILL)
    printed, _ = process.communicate(timeout=WAIT)
    assert process.returncode == 0, printed
    assert "its process was killed, perhaps for lack of memory; the run continues in another" in printed
    assert "Traceback" not in printed
    check(tmp_path, whole)


def test_two_commands_on_one_folder(tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_for(first, tmp_path, ".lock")
    second = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=WAIT)
    assert second.returncode == 2
    assert f"another process writes this run (process {first.pid} on " in second.stderr
    os.killpg(first.pid, signal.SIGINT)
    printed, _ = first.communicate(timeout=WAIT)
    assert first.returncode == 130, printed
    assert "Traceback" not in printed


HANDLER = """
import os, signal, sys, time
from phasezero.engine import interrupt
with interrupt.graceful("noted"):
    with interrupt.noticing():
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
"""


def test_a_second_signal_ends_the_process_at_once() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANDLER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stderr.readline() == "noted\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(WAIT) == 130


IMPORT = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "phasezero.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from phasezero.cli import entry
entry()
"""


def test_a_signal_while_modules_are_imported_gives_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, timeout=WAIT, check=False)
    assert (done.returncode, done.stderr) == (130, "phasezero: stopped\n")
