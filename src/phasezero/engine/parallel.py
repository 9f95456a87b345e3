"""Several runs at once: in processes of their own, or on streams of one process on a GPU.

A run is the same alone and beside others: how many threads it computes with is a field of its configuration,
and what runs share on a GPU (docs/speed.md) is its time, the compiled code and nothing else.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any

import torch

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.data.stream import Phase
from phasezero.engine.deadline import Deadline, OutOfTimeError
from phasezero.engine.device import Device
from phasezero.engine.lanes import MOST_LANES, enter_lane
from phasezero.engine.listener import Listener
from phasezero.engine.outcome import PhaseResult
from phasezero.engine.passes import DivergenceError
from phasezero.experiment import run
from phasezero.results.record import PhaseRecord, Record

# Three runs on streams of one process come to a third more images/s than one after the other, 5% ahead of three
# processes under MPS; two come to most of it, and beyond three the card is at its power limit (docs/speed.md).
MOST_ON_A_GPU = 3
# ResNet-18 at batch 128 on 32x32 images takes 1.1 GiB, three such runs 2.4 (docs/speed.md); cuDNN's search for
# algorithms takes more for a moment. What photos take has not been measured.
SMALL_IMAGES = ("glyphs", "cifar100")
BYTES_ON_SMALL_IMAGES, BYTES_ON_PHOTOS = 4 << 30, 12 << 30


@dataclass(frozen=True)
class Job:
    config: RunConfig
    root: Path | None = None
    checkpoint: Path | None = None
    store: Path | None = None
    keep_phases: bool = False
    deadline: Deadline | None = None
    seconds: float = 0.0
    """How long it will take, as far as anybody knows."""
    data: ImageData | None = None
    """Loaded already, for jobs that stay in this process."""

    @property
    def title(self) -> str:
        return f"{self.config.name} seed {self.config.seed}"

    @property
    def fits(self) -> bool:
        """Whether it would be finished in time if it started now."""
        return self.deadline is None or self.deadline.allows(self.seconds)

    def run(self, listener: Listener) -> Record:
        try:
            return run(
                self.config,
                root=self.root,
                data=self.data,
                listener=listener,
                checkpoint=self.checkpoint,
                store=self.store,
                keep_phases=self.keep_phases,
                deadline=self.deadline,
            )
        except DivergenceError as error:
            raise DivergenceError(f"{self.title}: {error}") from None


def workers_for(configs: Sequence[RunConfig]) -> int:
    """As many runs at once as the cores carry (one where a run takes them all), or as fit on the GPU."""
    devices = {Device.choose(config.engine).torch for config in configs}
    if any(device.type != "cpu" for device in devices):
        if len(devices) > 1:
            return 1
        free, _ = torch.cuda.mem_get_info(devices.pop())
        small = all(config.protocol.data in SMALL_IMAGES for config in configs)
        for_a_run = BYTES_ON_SMALL_IMAGES if small else BYTES_ON_PHOTOS
        return max(1, min(len(configs), MOST_ON_A_GPU, free // for_a_run))
    threads = [config.engine.threads for config in configs]
    if not all(threads):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(len(configs), cores // max(threads)))


def shared_device(configs: Sequence[RunConfig]) -> Device | None:
    """The GPU on which all of these can run as streams of one process; None where processes serve better."""
    devices = [Device.choose(config.engine) for config in configs]
    # Eager steps are not kept apart from a neighbour's capture, which they could break.
    switches = {(device.torch, device.precision == "fp32", device.engine == "eager") for device in devices}
    shared = len(switches) == 1 and devices[0].torch.type == "cuda"
    return devices[0] if shared else None


def stays_here(configs: Sequence[RunConfig], workers: int) -> bool:
    """Whether jobs with these configurations run in this very process."""
    return workers == 1 or shared_device(configs) is not None


class StoppedError(Exception):
    """A run in a thread was told to give up."""


def run_jobs(
    jobs: Sequence[Job],
    workers: int,
    listen: Callable[[int], Listener],
    go_on: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[int, Record | DivergenceError]]:
    """(place, record) of each job as it finishes; `listen(place)` makes the listener of a job that starts.

    A job that is out of time is left out. After a failure no further job starts; what was running is finished
    and handed out before it is raised, and `say` hears of it at once. With `go_on` a run that diverged is no
    failure: its error takes the place of its record.
    """
    if workers == 1:
        for place, job in enumerate(jobs):
            if not job.fits:
                continue
            try:
                outcome: Record | DivergenceError = job.run(listen(place))
            except OutOfTimeError:
                continue
            except DivergenceError as divergence:
                if not go_on:
                    raise
                outcome = divergence
            yield place, outcome
        return
    device = shared_device([job.config for job in jobs])
    if device is not None:
        workers = min(workers, MOST_LANES)
    with _in_processes(workers) if device is None else _in_threads(workers, device) as (pool, news):
        waiting = iter(enumerate(jobs))
        running: dict[Future[Record], int] = {}
        listeners: dict[int, Listener] = {}
        shares = _Shares()
        failure: BaseException | None = None
        while True:
            # One by one, not all at once: what the pool has, it may start before it can be cancelled.
            while failure is None and len(running) < workers and (following := next(waiting, None)):
                place, job = following
                if job.fits:
                    running[pool.submit(job.run, _Messenger(place, news))] = place
            if not running:
                break
            done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
            _deliver(news, listeners, listen)
            shares.charge(running.values())
            ended = {running.pop(future): future for future in done}
            for place, future in ended.items():
                error = future.exception()
                if error is None:
                    record = future.result()
                    record["timing"]["share_seconds"] = shares.of(place, record["timing"]["seconds_total"])
                    yield place, record
                elif go_on and isinstance(error, DivergenceError):
                    yield place, error
                elif failure is None and not isinstance(error, OutOfTimeError):
                    failure = error
                    if running:
                        say(
                            f"{_failed(jobs[place], error)}; what is running is finished, nothing else starts"
                        )
        if failure is not None:
            raise failure


def _failed(job: Job, error: BaseException) -> str:
    told = next(iter(str(error).splitlines()), "").removeprefix(f"{job.title}: ")
    return f"{job.title} failed ({type(error).__name__}: {told})"


class _Shares:
    """How much of the machine's time each run had: while n run at once, an n-th of it."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.seconds: dict[int, float] = {}
        self.shared: dict[int, float] = {}

    def charge(self, running: Collection[int]) -> None:
        """For the time since it was last asked, to those that ran."""
        now = time.perf_counter()
        for place in running:
            self.seconds[place] = self.seconds.get(place, 0.0) + now - self.last
            self.shared[place] = self.shared.get(place, 0.0) + (now - self.last) / len(running)
        self.last = now

    def of(self, place: int, seconds: float) -> float:
        """Of so many seconds; those of an earlier sitting count like the ones seen here."""
        return seconds * self.shared[place] / max(self.seconds[place], 1e-9)


Crew = tuple[Executor, Any]
"""Workers, and the queue through which they tell their news."""


@contextlib.contextmanager
def _in_processes(workers: int) -> Iterator[Crew]:
    context = multiprocessing.get_context("spawn")  # a forked CUDA, or a forked thread pool, does not work
    manager = SyncManager(ctx=context)
    manager.start(initializer=_die_with_parent)
    with manager, ProcessPoolExecutor(workers, context, initializer=_die_with_parent) as pool:
        try:
            yield pool, manager.Queue()
        except BaseException:  # an interruption: what they were at goes on from its last phase
            for worker in list((pool._processes or {}).values()):
                worker.terminate()
            raise


def _die_with_parent() -> None:
    """A worker whose parent was killed would otherwise train all that is queued, unheard."""

    def watch() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _in_threads(workers: int, device: Device) -> Iterator[Crew]:
    """Each worker has a lane of its own. The GPU's switches are set once here, for all."""
    news = _StoppableQueue()
    numbers = iter(range(workers))

    def on_own_lane() -> None:
        if device.torch.type == "cuda":
            enter_lane(next(numbers), device.torch)

    with device.settings(), ThreadPoolExecutor(workers, initializer=on_own_lane) as pool:
        try:
            yield pool, news
        finally:  # at an interruption too: threads cannot be killed, so they are told
            news.stopped.set()
            pool.shutdown(cancel_futures=True)


class _StoppableQueue(queue.SimpleQueue[Any]):
    def __init__(self) -> None:
        self.stopped = threading.Event()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if self.stopped.is_set():
            raise StoppedError
        super().put(item, block, timeout)


def _deliver(news: Any, listeners: dict[int, Listener], listen: Callable[[int], Listener]) -> None:
    while True:
        try:
            place, what, facts = news.get_nowait()
        except queue.Empty:
            return
        if place not in listeners:
            listeners[place] = listen(place)
        getattr(listeners[place], what)(*facts)


class _Messenger:
    """A listener at the other end of a queue."""

    def __init__(self, place: int, news: Any) -> None:
        self.place, self.news = place, news

    def reused(self, phase: PhaseRecord) -> None:
        self.news.put((self.place, "reused", (phase,)))

    def started(self, phases: int, total_images: int) -> None:
        self.news.put((self.place, "started", (phases, total_images)))

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.news.put((self.place, "epoch", (phase, stage, epoch, epochs, loss, images)))

    def phase(self, result: PhaseResult) -> None:
        self.news.put((self.place, "phase", (result,)))
