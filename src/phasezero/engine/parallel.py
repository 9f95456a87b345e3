"""Several runs at once, each in a process of its own; their news travel back through a queue.

A run is the same alone and beside others: how many threads it computes with is a field of its configuration.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.deadline import Deadline, OutOfTimeError
from phasezero.engine.device import Device
from phasezero.engine.listener import Listener
from phasezero.engine.outcome import PhaseResult
from phasezero.experiment import run
from phasezero.results.record import Record


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

    @property
    def fits(self) -> bool:
        """Whether it would be finished in time if it started now."""
        return self.deadline is None or self.deadline.allows(self.seconds)

    def run(self, listener: Listener) -> Record:
        return run(
            self.config,
            root=self.root,
            listener=listener,
            checkpoint=self.checkpoint,
            store=self.store,
            keep_phases=self.keep_phases,
            deadline=self.deadline,
        )


def workers_for(configs: Sequence[RunConfig]) -> int:
    """As many runs at once as the cores carry; one where a run takes them all, or computes on a GPU."""
    on_gpu = any(Device.choose(config.engine).torch.type != "cpu" for config in configs)
    threads = [config.engine.threads for config in configs]
    if on_gpu or not all(threads):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(len(configs), cores // max(threads)))


def run_jobs(
    jobs: Sequence[Job], workers: int, listen: Callable[[int], Listener]
) -> Iterator[tuple[int, Record]]:
    """(place, record) of each job as it finishes; `listen(place)` makes the listener of a job that starts.

    A job that is out of time is left out. After a failure no further job starts; what was running is finished
    and handed out before it is raised.
    """
    if workers == 1:
        for place, job in enumerate(jobs):
            if not job.fits:
                continue
            try:
                record = job.run(listen(place))
            except OutOfTimeError:
                continue
            yield place, record
        return
    context = multiprocessing.get_context("spawn")  # a forked CUDA, or a forked thread pool, does not work
    with context.Manager() as manager, ProcessPoolExecutor(workers, context) as pool:
        news = manager.Queue()
        places: dict[Future[Record], int] = {
            pool.submit(_work, job, place, news): place for place, job in enumerate(jobs)
        }
        listeners: dict[int, Listener] = {}
        failure: BaseException | None = None
        while places:
            done, _ = wait(places, timeout=0.2, return_when=FIRST_COMPLETED)
            _deliver(news, listeners, listen)
            for future in done:
                place = places.pop(future)
                if future.cancelled():
                    continue
                error = future.exception()
                if error is None:
                    yield place, future.result()
                elif failure is None and not isinstance(error, OutOfTimeError):
                    failure = error
                    for waiting in places:
                        waiting.cancel()
        if failure is not None:
            raise failure


def _deliver(news: Any, listeners: dict[int, Listener], listen: Callable[[int], Listener]) -> None:
    while True:
        try:
            place, what, facts = news.get_nowait()
        except queue.Empty:
            return
        if place not in listeners:
            listeners[place] = listen(place)
        getattr(listeners[place], what)(*facts)


def _work(job: Job, place: int, news: Any) -> Record:
    if not job.fits:
        raise OutOfTimeError(f"{job.config.name} seed {job.config.seed} was not started")
    return job.run(_Messenger(place, news))


class _Messenger:
    """A listener at the other end of a queue."""

    def __init__(self, place: int, news: Any) -> None:
        self.place, self.news = place, news

    def started(self, phases: int, total_images: int) -> None:
        self.news.put((self.place, "started", (phases, total_images)))

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.news.put((self.place, "epoch", (phase, stage, epoch, epochs, loss, images)))

    def phase(self, result: PhaseResult) -> None:
        self.news.put((self.place, "phase", (result,)))
