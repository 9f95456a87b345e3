"""Several runs at once: in separate processes, or on streams of one process on a GPU.

A run gives the same numbers alone and in parallel: its number of threads is a field of its configuration, and runs on
one GPU share only its time and the compiled code (notebook/speed.md).
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any

import torch

from phasezero import plugins
from phasezero.config import RunConfig
from phasezero.data.catalog import find_data_set
from phasezero.engine import interrupt
from phasezero.engine.callbacks import Callback, ForwardingCallback
from phasezero.engine.device import Device
from phasezero.engine.streams import MOST_RUNS, use_streams
from phasezero.errors import DivergenceError, UserError
from phasezero.records.run import Record
from phasezero.runs.run import Job, Outcome

# Three runs on streams of one process train a third more images/s than in sequence, 5% more than three processes under
# MPS. Two get most of this gain, and beyond three the GPU is at its power limit (notebook/speed.md).
MOST_ON_A_GPU = 3
MOST_DEATHS = 2
"""How often a run is continued after its process was killed."""
LOST = (BrokenProcessPool, EOFError, ConnectionError)
"""Errors that a process has, or causes elsewhere, when a process next to it was killed."""


def workers_for(configs: Sequence[RunConfig], wanted: int | None = None) -> int:
    """Return how many runs to train at once: the requested number, or as many as fit the cores or the GPU."""
    if wanted or len(configs) < 2:
        return min(wanted or 1, max(len(configs), 1))
    devices = {Device.choose(config.engine).torch for config in configs}
    if any(device.type != "cpu" for device in devices):
        if len(devices) > 1:
            return 1
        free, _ = torch.cuda.mem_get_info(devices.pop())
        for_a_run = max(find_data_set(config.protocol.data).gpu_memory for config in configs)
        return max(1, min(len(configs), MOST_ON_A_GPU, free // for_a_run))
    threads = [config.engine.threads for config in configs]
    if not all(threads):  # a run takes all cores
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(len(configs), cores // max(threads)))


def shared_device(configs: Sequence[RunConfig]) -> Device | None:
    """Return the GPU on which all runs can use streams of one process; None if processes are better."""
    devices = [Device.choose(config.engine) for config in configs]
    # Eager steps could break a parallel run's capture.
    switches = {(device.torch, device.precision == "fp32", device.engine == "eager") for device in devices}
    return devices[0] if len(switches) == 1 and devices[0].torch.type == "cuda" else None


def run_jobs(
    jobs: Mapping[int, Job],
    workers: int,
    make_callback: Callable[[int], Callback],
    keep_going: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[int, Record | DivergenceError]]:
    """Yield (place, record) of each job, by place, as it finishes; `make_callback(place)` is called when it starts.

    A job that is out of time is left out. After a failure, which is reported to `say` at once, no further job starts;
    running jobs are finished and yielded before the failure is raised. With `keep_going` a run that diverged is not a
    failure: its error replaces its record.
    """
    if workers == 1:
        for place, job in jobs.items():
            if job.fits and (outcome := job.outcome(make_callback(place), keep_going)):
                yield place, outcome
        return
    device = shared_device([job.config for job in jobs.values()])
    if device is not None:
        workers = min(workers, MOST_RUNS)
    waiting, deaths, callback_of = deque(jobs.items()), Counter[int](), functools.cache(make_callback)
    while waiting:
        with _in_processes(workers) if device is None else _in_threads(workers, device) as (pool, news):
            died = yield from _run_in(pool, news, waiting, workers, callback_of, keep_going, say, jobs)
        for place in died:  # its run continues from its last saved state
            deaths[place] += 1
            title = jobs[place].title
            if deaths[place] > MOST_DEATHS:
                count = deaths[place]
                raise UserError(
                    f"{title}: its process was killed {count} times, perhaps for lack of memory; try --parallel 1"
                )
            say(f"{title}: its process was killed, perhaps for lack of memory; the run continues in another")
            waiting.appendleft((place, jobs[place]))


def _run_in(
    pool: Executor,
    news: Any,
    waiting: deque[tuple[int, Job]],
    workers: int,
    callback_of: Callable[[int], Callback],
    keep_going: bool,
    say: Callable[[str], None],
    jobs: Mapping[int, Job],
) -> Generator[tuple[int, Record | DivergenceError], None, list[int]]:
    """Run jobs in a pool until all are done or one of its processes died; return the jobs that died with it."""
    running: dict[Future[Outcome], int] = {}
    died: list[int] = []
    shares, failure = _Shares(), None
    while True:
        # Submitted one by one: the pool may start a submitted job before it can be cancelled.
        while not (failure or died or interrupt.requested()) and len(running) < workers and waiting:
            place, job = waiting.popleft()
            if job.fits:
                callback_of(place)
                try:
                    with _no_interrupt():  # a new process inherits this, so that Ctrl-C reaches only this process
                        running[pool.submit(_outcome, job, _Messenger(place, news), keep_going)] = place
                except BrokenProcessPool:
                    died.append(place)
        if not running:
            break
        done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
        if interrupt.requested():
            _pass_on(pool)
        with contextlib.suppress(*LOST):  # the process that passes messages died; then the runs die, too
            while not news.empty():
                sender, name, facts = news.get_nowait()
                getattr(callback_of(sender), name)(*facts)
        shares.charge(running.values())
        finished = {running.pop(future): future for future in done}
        for place in sorted(finished):
            error = finished[place].exception()
            if isinstance(error, LOST) and not interrupt.requested():
                died.append(place)
            elif error:
                if failure is None and running and not interrupt.requested():
                    title, text = jobs[place].title, next(iter(str(error).splitlines()), "")
                    what = f"{type(error).__name__}: {text.removeprefix(f'{title}: ')}"
                    say(f"{title} failed ({what}); waiting for the running jobs, no others start")
                failure = failure or error
            elif outcome := finished[place].result():
                if not isinstance(outcome, DivergenceError):
                    timing = outcome["timing"]
                    timing["share_seconds"] = shares.of(place, timing["seconds_total"])
                yield place, outcome
    if interrupt.requested():
        raise KeyboardInterrupt
    if failure is not None:
        raise failure
    return died


def _outcome(job: Job, callback: Callback, keep_going: bool) -> Outcome:
    """Train a job in a worker. A worker process that was told to stop ends here, when the state is saved.

    It must not wait for another job: a worker next to it may have died with the lock of the jobs' queue.
    """
    with interrupt.working():
        try:
            return job.outcome(callback, keep_going)
        finally:
            interrupt.leave_if_requested()


def _pass_on(pool: Executor) -> None:
    """Tell the processes of a pool to save their state and stop; threads see the request themselves."""
    for worker in list((getattr(pool, "_processes", None) or {}).values()):
        worker.terminate()


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Delay Ctrl-C in this block; processes that start in it never see it."""
    if not hasattr(signal, "pthread_sigmask") or threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # which would turn Ctrl-C on again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Shares:
    """Measure each run's share of the machine's time: 1/n while n runs are active."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.seconds, self.shared = defaultdict[int, float](float), defaultdict[int, float](float)

    def charge(self, running: Collection[int]) -> None:
        """Add the time since the last call to the active runs."""
        now = time.perf_counter()
        for place in running:
            self.seconds[place] += now - self.last
            self.shared[place] += (now - self.last) / len(running)
        self.last = now

    def of(self, place: int, seconds: float) -> float:
        """Return a run's share of this many seconds. Seconds before a resume count in the same proportion."""
        return seconds * self.shared[place] / max(self.seconds[place], 1e-9)


@contextlib.contextmanager
def _in_processes(workers: int) -> Iterator[tuple[Executor, Any]]:
    """Start processes; yield their pool and the queue of their messages."""
    context = multiprocessing.get_context("spawn")  # CUDA and thread pools do not survive a fork
    manager, files = SyncManager(ctx=context), plugins.plugin_files()
    with interrupt.noticing():  # also while the manager starts: an exception there would leave it behind
        with _no_interrupt():
            manager.start(initializer=_start_manager)
        with manager, ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(files,)) as pool:
            try:
                yield pool, manager.Queue()
            except BaseException:
                _pass_on(pool)
                raise


def _start_manager() -> None:
    """Leave signals to the parent: the manager ends with it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_parent()


def _start_worker(files: Sequence[Path]) -> None:
    interrupt.install()
    _die_with_parent()
    for file in files:
        plugins.load_plugin(file)


def _die_with_parent() -> None:
    """End this process with its parent. Otherwise it would train everything in the queue."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _in_threads(workers: int, device: Device) -> Iterator[tuple[Executor, Any]]:
    """Start threads, each with its own CUDA streams, and apply the GPU's settings to all of them."""
    news, numbers = _StoppableQueue(), iter(range(workers))

    def on_own_streams() -> None:
        if device.torch.type == "cuda":
            use_streams(next(numbers), device.torch)

    with device.settings(), ThreadPoolExecutor(workers, initializer=on_own_streams) as pool:
        try:
            yield pool, news
        finally:  # also when interrupted: threads cannot be killed, so they are told to stop
            news.stopped = True
            pool.shutdown(cancel_futures=True)


class StoppedError(Exception):
    """Raised in a run's thread to stop the run."""


class _StoppableQueue(queue.SimpleQueue[Any]):
    stopped = False

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if self.stopped:
            raise StoppedError
        super().put(item, block, timeout)


class _Messenger(ForwardingCallback):
    """Forward every call through a queue to the callback in the main process."""

    def __init__(self, place: int, news: Any) -> None:
        self.place, self.news = place, news

    def forward(self, name: str, *facts: Any) -> None:
        self.news.put((self.place, name, facts))
