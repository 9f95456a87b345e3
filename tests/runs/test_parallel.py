"""Runs side by side: the same records as one after the other, and a failure is not lost."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from phasezero import Callback
from phasezero.config import RunConfig
from phasezero.engine.deadline import Deadline
from phasezero.engine.device import Device
from phasezero.engine.resume import Saving
from phasezero.errors import DivergenceError
from phasezero.presets import preset
from phasezero.records.run import comparable_part
from phasezero.runs import parallel
from phasezero.runs.parallel import run_jobs, workers_for
from phasezero.runs.run import Job
from phasezero.runs.session import run_all
from samples import MINIMAL, Diary


def quick(seed: int = 0, lr: float = 0.1, **settings: Any) -> RunConfig:
    changed = {**MINIMAL, "training.first.lr": lr, **{key.replace("__", "."): one for key, one in settings.items()}}
    return preset("lucir+cwd/glyphs/b50s10", seed=seed).override(changed)


@pytest.mark.usefixtures("either_way")
def test_runs_are_the_same_alone_and_beside_others(tmp_path: Path) -> None:
    """Also where two share a phase 0, which one run trains."""
    configs = [quick(), replace(quick(protocol__phase_sizes=[3, 2]), name="other"), quick(1)]
    places, diaries = {"out": tmp_path / "together", "store": tmp_path / "store"}, list[Diary]()

    def keep_diary(config: RunConfig) -> Diary:
        diaries.append(Diary())
        return diaries[-1]

    together = run_all(configs, parallel=2, make_callback=keep_diary, **places).records
    alone = run_all(configs, out=tmp_path / "alone", parallel=1).records
    assert [comparable_part(record) for record in together] == [comparable_part(record) for record in alone]
    assert sorted(record["timing"]["reused_phase_zero"] for record in together[:2]) == [False, True]
    assert sorted(diary.results[-1].phase.seen for diary in diaries) == [4, 4, 5]
    for record in together:
        half, whole = record["timing"]["seconds_total"] / 2, record["timing"]["seconds_total"]
        assert half * (1 - 1e-9) <= record["timing"]["share_seconds"] <= whole
    assert all("share_seconds" not in record["timing"] for record in alone)


def test_how_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one_thread = quick(engine__device="cpu")
    monkeypatch.setattr(parallel.os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert workers_for([one_thread] * 3) == 3
    assert workers_for([one_thread] * 20) == 8
    assert workers_for([one_thread] * 3 + [one_thread.override({"engine.threads": 3})]) == 2
    for threads, runs in ((9, 3), (0, 3), (1, 1)):
        assert workers_for([one_thread.override({"engine.threads": threads})] * runs) == 1


@pytest.mark.parametrize(
    ("gibibytes", "data", "most"),
    [(2, "cifar100", 1), (9, "cifar100", 2), (80, "cifar100", 3), (25, "folder:photos", 2)],
)
def test_how_many_fit_on_a_gpu(monkeypatch: pytest.MonkeyPatch, gibibytes: int, data: str, most: int) -> None:
    card = SimpleNamespace(torch=torch.device("cuda", 0))
    monkeypatch.setattr(Device, "choose", lambda _: card)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (gibibytes << 30, 80 << 30))
    configs = [quick(seed, protocol__data=data) for seed in range(5)]
    assert workers_for(configs) == most
    assert workers_for(configs[:1]) == 1


def test_processes_unless_all_share_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parallel.shared_device([quick(engine__device="cpu")] * 2) is None
    card = torch.device("cuda")
    monkeypatch.setattr(Device, "choose", lambda wanted: Device(card, wanted.precision, wanted.engine, 1))

    def shared(*kinds: tuple[str, str]) -> bool:
        configs = [quick(engine__precision=precision, engine__engine=engine) for precision, engine in kinds]
        return parallel.shared_device(configs) is not None

    assert shared(("fp16", "captured"), ("bf16", "compiled"))
    assert not shared(("fp16", "captured"), ("fp32", "captured"))
    assert not shared(("fp16", "captured"), ("fp16", "eager"))  # it could break the other's capture


def test_each_run_has_its_share_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once: 0 and 1 for ten seconds, 1 and 2 for five, 2 alone for five."""
    now = [100.0]
    monkeypatch.setattr(parallel.time, "perf_counter", lambda: now[0])
    shares = parallel._Shares()
    for seconds, running in ((10, [0, 1]), (5, [1, 2]), (5, [2])):
        now[0] += seconds
        shares.charge(running)
    for place, seconds, share in ((0, 10.0, 5.0), (1, 15.0, 7.5), (2, 10.0, 7.5), (2, 20.0, 15.0)):
        assert shares.of(place, seconds) == pytest.approx(share)  # half of the last in an earlier session


PARENT = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from phasezero.runs.parallel import _die_with_parent

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
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=paths) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    for _ in range(300):
        if not alive(worker):
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker lived on")


def alive(process: int) -> bool:
    """Tell whether a process runs, and does not only wait to be buried by whoever inherited it."""
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on streams of one process, the way of GPUs; here they are threads on the CPU."""
    monkeypatch.setattr(parallel, "shared_device", lambda configs: Device.choose(configs[0].engine))


@pytest.fixture(params=["processes", "threads"])
def either_way(request: pytest.FixtureRequest) -> None:
    if request.param == "threads":
        request.getfixturevalue("in_threads")


def outcomes(
    configs: Sequence[RunConfig], keep_going: bool = False, deadline: Deadline | None = None
) -> tuple[list[str], list[str]]:
    """Return what became of these, two at once, and what was said."""
    jobs = {place: Job(config, Saving(deadline=deadline), seconds=10.0) for place, config in enumerate(configs)}
    found: list[str] = []
    said: list[str] = []
    try:
        for place, outcome in run_jobs(jobs, 2, lambda place: Callback(), keep_going, said.append):
            found.append(f"{place} diverged" if isinstance(outcome, DivergenceError) else f"{place} finished")
    except DivergenceError as error:
        found.append(f"failed at {re.search('seed .', str(error))[0]}")  # type: ignore[index]
    return found, said


def test_a_failure_in_a_process_is_raised_and_the_other_run_is_kept() -> None:
    assert outcomes([quick(0, lr=1e12), quick(1)])[0] == ["1 finished", "failed at seed 0"]


@pytest.mark.usefixtures("in_threads")
def test_after_a_failure_what_is_running_is_finished_and_nothing_else_starts() -> None:
    longer = quick(1, training__first__epochs=8)
    found, said = outcomes([quick(0, lr=1e12), longer, quick(2), quick(3)])
    assert found == ["1 finished", "failed at seed 0"]
    assert len(said) == 1
    assert re.match(r"lucir\+cwd/glyphs.* seed 0 failed \(DivergenceError: training diverged", said[0])
    assert said[0].endswith("; waiting for the running jobs, no others start")


@pytest.mark.usefixtures("in_threads")
def test_keep_going_continues_after_divergences() -> None:
    found, said = outcomes([quick(0, lr=1e12), quick(1), quick(2, lr=1e12), quick(3)], keep_going=True)
    assert sorted(found) == ["0 diverged", "1 finished", "2 diverged", "3 finished"]
    assert said == []


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize(("left", "kept"), [(9.0, []), (11.0, ["0 finished"])])
def test_side_by_side_a_run_starts_only_if_it_fits(left: float, kept: list[str]) -> None:
    """It says it takes ten seconds; how long it took is not looked at here: the clock stands still."""
    assert outcomes([quick()], deadline=Deadline(left, lambda: 0.0)) == (kept, [])


@pytest.mark.usefixtures("either_way")
def test_an_interruption_ends_the_runs() -> None:
    """Nobody waits for runs that would take an hour."""

    class Interrupted(Callback):
        def on_epoch_end(self, *facts: object) -> None:
            raise KeyboardInterrupt

    jobs = {seed: Job(quick(seed, training__first__epochs=100_000)) for seed in (0, 1)}
    with pytest.raises(KeyboardInterrupt):
        list(run_jobs(jobs, 2, lambda place: Interrupted()))
    assert not [one for one in multiprocessing.active_children() if "Spawn" in one.name and one.is_alive()]
