"""Collect concurrent predictions into batches, which a single thread computes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


class Batches(Generic[In, Out]):
    """Call `work` in one thread, on the inputs of all who wait, at most `size` in a batch unless one brings more."""

    def __init__(self, work: Callable[[list[In]], Sequence[Out]], size: int) -> None:
        self._work, self._size = work, size
        self._jobs: queue.SimpleQueue[tuple[Sequence[In], Future[Sequence[Out]]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="predictions", daemon=True)
        self._thread.start()

    def submit(self, inputs: Sequence[In]) -> Future[Sequence[Out]]:
        """Return the future outputs of these inputs, in their order."""
        future: Future[Sequence[Out]] = Future()
        self._jobs.put((inputs, future))
        return future

    def close(self) -> None:
        """Finish what was submitted and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        job = self._jobs.get()
        while job is not None:
            batch, images = [job], len(job[0])
            while (job := self._next(images)) is not None and images + len(job[0]) <= self._size:
                batch.append(job)
                images += len(job[0])
            self._finish(batch)
            if job is None:
                job = self._jobs.get()

    def _next(self, images: int) -> tuple[Sequence[In], Future[Sequence[Out]]] | None:
        """Return a job that waits already, if the batch has room."""
        if images >= self._size:
            return None
        try:
            job = self._jobs.get_nowait()
        except queue.Empty:
            return None
        if job is None:
            self._jobs.put(None)  # the end, for the loop
        return job

    def _finish(self, batch: Sequence[tuple[Sequence[In], Future[Sequence[Out]]]]) -> None:
        wanted = [(inputs, future) for inputs, future in batch if future.set_running_or_notify_cancel()]
        try:
            found = self._work([one for inputs, _ in wanted for one in inputs]) if wanted else []
        except BaseException as error:  # the thread must outlive it
            for _, future in wanted:
                future.set_exception(error)
            return
        start = 0
        for inputs, future in wanted:
            future.set_result(found[start : start + len(inputs)])
            start += len(inputs)
