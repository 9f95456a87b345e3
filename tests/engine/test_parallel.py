"""Runs side by side: the same records as one after the other, and a failure is not lost."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from rich.console import Console

from phasezero.config import RunConfig
from phasezero.engine import parallel
from phasezero.engine.deadline import Deadline
from phasezero.engine.device import Device
from phasezero.engine.listener import Listener, Listeners
from phasezero.engine.parallel import workers_for
from phasezero.engine.passes import DivergenceError
from phasezero.presets import preset
from phasezero.results.record import comparable_part
from phasezero.session import run_all


def quick(seed: int, lr: float = 0.1) -> RunConfig:
    short = {"epochs": 1, "batch_size": 512, "lr": lr}
    settings = {
        f"training.{which}.{key}": value for which in ("first", "later") for key, value in short.items()
    }
    sizes = {"protocol.phase_sizes": [3, 1], "protocol.memory": "per_class:2"}
    return preset("lucir+cwd/glyphs/b50s10", seed=seed).override({**settings, **sizes})


def test_a_run_is_the_same_alone_and_beside_another(tmp_path: Path) -> None:
    configs = [quick(0), quick(1)]
    together = run_all(configs, out=tmp_path / "together", parallel=2)
    alone = run_all(configs, out=tmp_path / "alone", parallel=1)
    for one, other in zip(together.records, alone.records, strict=True):
        assert json.dumps(comparable_part(one)) == json.dumps(comparable_part(other))
    assert [record["seed"] for record in together.records] == [0, 1]
    for record in together.records:
        timing = record["timing"]
        half, whole = timing["seconds_total"] / 2, timing["seconds_total"]
        assert half * (1 - 1e-9) <= timing["share_seconds"] <= whole
    assert all("share_seconds" not in record["timing"] for record in alone.records)
    assert sorted(path.name for path in (tmp_path / "together").iterdir()) == [
        "curves.png",
        "lucir+cwd-glyphs-b50s10",
        "report.html",
        "results.md",
    ]


def test_a_failure_is_raised_and_what_else_finished_is_kept(tmp_path: Path) -> None:
    with pytest.raises(DivergenceError, match="training diverged"):
        run_all([quick(0, lr=1e12), quick(1)], out=tmp_path, parallel=2)
    assert [path.parent.name for path in tmp_path.rglob("record.json")] == ["seed1"]


def test_how_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one_thread = quick(0).override({"engine.device": "cpu"})
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert workers_for([one_thread] * 3) == 3
    assert workers_for([one_thread] * 20) == 8
    assert workers_for([one_thread] * 3 + [one_thread.override({"engine.threads": 3})]) == 2
    assert workers_for([one_thread.override({"engine.threads": 9})] * 3) == 1
    assert workers_for([one_thread]) == 1
    assert workers_for([one_thread.override({"engine.threads": 0})] * 3) == 1


@pytest.mark.parametrize(
    ("gibibytes", "data", "most"),
    [(2, "cifar100", 1), (9, "cifar100", 2), (80, "cifar100", 3), (25, "folder:photos", 2)],
)
def test_how_many_fit_on_a_gpu(monkeypatch: pytest.MonkeyPatch, gibibytes: int, data: str, most: int) -> None:
    card = SimpleNamespace(torch=torch.device("cuda", 0))
    monkeypatch.setattr(Device, "choose", lambda _: card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (gibibytes << 30, 80 << 30))
    configs = [quick(seed).override({"protocol.data": data}) for seed in range(5)]
    assert workers_for(configs) == most
    assert workers_for(configs[:1]) == 1


def test_each_run_has_its_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once: 0 and 1 for ten seconds, 1 and 2 for five, 2 alone for five."""
    now = [100.0]
    monkeypatch.setattr(parallel.time, "perf_counter", lambda: now[0])
    shares = parallel._Shares()
    for seconds, running in ((10, [0, 1]), (5, [1, 2]), (5, [2])):
        now[0] += seconds
        shares.charge(running)
    assert shares.of(0, 10.0) == pytest.approx(5.0)
    assert shares.of(1, 15.0) == pytest.approx(7.5)
    assert shares.of(2, 10.0) == pytest.approx(7.5)
    assert shares.of(2, 20.0) == pytest.approx(15.0)  # half of it in an earlier sitting


PARENT = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from phasezero.engine.parallel import _die_with_parent

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, initializer=_die_with_parent)
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


def test_workers_do_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=paths)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    for _ in range(300):
        if not alive(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker lived on")


def alive(process: int) -> bool:
    """Running, and not only waiting to be buried by whoever inherited it."""
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False


def test_an_interruption_ends_the_workers(tmp_path: Path) -> None:
    """Whoever stops listening does not wait for processes that would take an hour."""
    endless = [quick(seed).override({"training.first.epochs": 100_000}) for seed in (0, 1)]

    class Interrupted:
        def started(self, phases: int, total_images: int) -> None:
            raise KeyboardInterrupt

    jobs = [parallel.Job(config) for config in endless]
    with pytest.raises(KeyboardInterrupt):
        list(parallel.run_jobs(jobs, 2, lambda place: cast(Listener, Interrupted())))
    assert not [one for one in multiprocessing.active_children() if "Spawn" in one.name and one.is_alive()]


# ---- streams of one process: the way of GPUs, here with threads on the CPU ------------------------------------


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "shared_device", lambda configs: Device.choose(configs[0].engine))


@pytest.mark.usefixtures("in_threads")
def test_a_run_is_the_same_alone_and_in_a_thread_beside_another(tmp_path: Path) -> None:
    configs = [quick(0), quick(1), quick(2)]
    together = run_all(configs, out=tmp_path / "together", parallel=3)
    alone = run_all(configs, out=tmp_path / "alone", parallel=1)
    for one, other in zip(together.records, alone.records, strict=True):
        assert json.dumps(comparable_part(one)) == json.dumps(comparable_part(other))


@pytest.mark.usefixtures("in_threads")
def test_a_failure_in_a_thread_is_raised_and_what_else_finished_is_kept(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=60)
    longer = quick(1).override({"training.first.epochs": 5})
    with pytest.raises(DivergenceError, match="training diverged"):
        run_all([quick(0, lr=1e12), longer], out=tmp_path, parallel=2, console=console)
    assert [path.parent.name for path in tmp_path.rglob("record.json")] == ["seed1"]
    printed = cast(io.StringIO, console.file).getvalue()
    assert printed.index("note: lucir+cwd/glyphs/b50s10 seed 0 failed") < printed.index("seed 1: phase 1,")


def outcomes(
    configs: Sequence[RunConfig], go_on: bool = False, deadline: Deadline | None = None
) -> tuple[list[str], list[str]]:
    """What became of these, two at once, and what was said."""
    jobs = [parallel.Job(config, deadline=deadline, seconds=10.0) for config in configs]
    found: list[str] = []
    said: list[str] = []
    try:
        for place, outcome in parallel.run_jobs(jobs, 2, lambda place: Listeners([]), go_on, said.append):
            found.append(f"{place} diverged" if isinstance(outcome, DivergenceError) else f"{place} finished")
    except DivergenceError as error:
        found.append(f"failed at {re.search('seed .', str(error))[0]}")  # type: ignore[index]
    return found, said


@pytest.mark.usefixtures("in_threads")
def test_after_a_failure_what_is_running_is_finished_and_nothing_else_starts() -> None:
    longer = quick(1).override({"training.first.epochs": 5})
    found, said = outcomes([quick(0, lr=1e12), longer, quick(2), quick(3)])
    assert found == ["1 finished", "failed at seed 0"]
    assert len(said) == 1
    assert said[0].startswith("lucir+cwd/glyphs/b50s10 seed 0 failed (DivergenceError: training diverged")
    assert said[0].endswith("; what is running is finished, nothing else starts")


@pytest.mark.usefixtures("in_threads")
def test_divergences_are_gone_past_where_that_is_asked_for() -> None:
    found, said = outcomes([quick(0, lr=1e12), quick(1), quick(2, lr=1e12), quick(3)], go_on=True)
    assert sorted(found) == ["0 diverged", "1 finished", "2 diverged", "3 finished"]
    assert said == []


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize(("left", "kept"), [(9.0, []), (11.0, ["0 finished"])])
def test_side_by_side_a_run_starts_only_if_it_fits(left: float, kept: list[str]) -> None:
    """It says it takes ten seconds; how long it took is not looked at here: the clock stands still."""
    assert outcomes([quick(0)], deadline=Deadline(left, lambda: 0.0)) == (kept, [])


@pytest.mark.usefixtures("in_threads")
def test_an_interruption_stops_the_threads() -> None:
    """Whoever stops listening (an interrupt, say) does not wait for runs that would take an hour."""
    endless = [quick(seed).override({"training.first.epochs": 100_000}) for seed in (0, 1)]
    heard = threading.Event()

    class Interrupted:
        def started(self, phases: int, total_images: int) -> None:
            pass

        def epoch(self, *facts: object) -> None:
            heard.set()
            raise KeyboardInterrupt

        def phase(self, result: object) -> None:
            pass

    with pytest.raises(KeyboardInterrupt):
        list(parallel.run_jobs([parallel.Job(config) for config in endless], 2, lambda place: Interrupted()))
    assert heard.is_set()


def test_processes_unless_all_share_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parallel.shared_device([quick(0).override({"engine.device": "cpu"})] * 2) is None
    card = torch.device("cuda")
    monkeypatch.setattr(Device, "choose", lambda wanted: Device(card, wanted.precision, wanted.engine, 1))

    def shared(*kinds: tuple[str, str]) -> bool:
        settings = [{"engine.precision": precision, "engine.engine": engine} for precision, engine in kinds]
        return parallel.shared_device([quick(0).override(one) for one in settings]) is not None

    assert shared(("fp16", "captured"), ("bf16", "compiled"))
    assert not shared(("fp16", "captured"), ("fp32", "captured"))
    assert not shared(("fp16", "captured"), ("fp16", "eager"))  # it could break the other's capture


@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
def test_a_shared_phase_zero_is_trained_once(
    threads: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two runs that start together and have the same phase 0: one trains it, the other waits and takes it."""
    if threads:
        request.getfixturevalue("in_threads")
    steps = [quick(0), replace(quick(0).override({"protocol.phase_sizes": [3, 2]}), name="other")]
    together = run_all(steps, out=tmp_path / "out", store=tmp_path / "store", parallel=2)
    assert sorted(record["timing"]["reused_phase_zero"] for record in together.records) == [False, True]
    one, other = (record["phases"][0]["accuracy"] for record in together.records)
    assert one == other
