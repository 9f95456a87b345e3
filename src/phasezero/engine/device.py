"""The device, precision and engine of a run; resolves what the configuration leaves at `auto`."""

from __future__ import annotations

import contextlib
import platform
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils._triton import has_triton

from phasezero import __version__
from phasezero.config import Engine
from phasezero.data.sources import Photos
from phasezero.errors import UserError
from phasezero.nets import IncrementalModel
from phasezero.plugins import loaded_plugins
from phasezero.records.run import Environment

COMPILATION_PAYS = 20_000
"""Steps of one shape after which compiling pays off: it takes 5 to 30 s and saves a few tenths of a ms per step."""


@dataclass(frozen=True)
class Device:
    torch: torch.device
    precision: str
    engine: str
    threads: int

    @classmethod
    def choose(cls, wanted: Engine, steps: int = 0) -> Device:
        """Choose what was requested, by default fp16 and captured on a GPU, float32 and eager elsewhere.

        Steps are also compiled if there are enough `steps` to make up for the time it takes.
        """
        name = wanted.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", name):
            raise UserError(f"engine.device: {name!r} is not supported; use auto, cpu, cuda or cuda:1")
        device = torch.device(name)
        on_gpu = device.type == "cuda"
        if on_gpu and not torch.cuda.is_available():
            raise UserError("engine.device: no CUDA device is available here; use --device cpu")
        engine = wanted.engine
        if engine == "auto":
            pays = steps >= COMPILATION_PAYS and has_triton()
            engine = ("compiled" if pays else "captured") if on_gpu else "eager"
        if engine != "eager" and not on_gpu:
            raise UserError(f"engine.engine: {engine!r} needs a CUDA device; use --engine eager")
        precision = wanted.precision
        if precision == "auto":
            precision = "fp16" if on_gpu else "fp32"  # the paper's numbers were verified in it
        if precision == "tf32" and not on_gpu:
            raise UserError("engine.precision: 'tf32' needs a CUDA device; use fp32 or bf16")
        return cls(device, precision, engine, wanted.threads or torch.get_num_threads())

    @property
    def description(self) -> str:
        return torch.cuda.get_device_name(self.torch) if self.torch.type == "cuda" else processor_name()

    def place(self, model: IncrementalModel) -> IncrementalModel:
        """Move the model to the device, its convolutions channels-last (faster on CPUs and tensor cores alike)."""
        model.half_precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        return model.to(device=self.torch, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def synchronize(self) -> None:
        if self.torch.type == "cuda":
            # Only this stream: waiting for the whole device would break captures of other runs.
            torch.cuda.current_stream(self.torch).synchronize()

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Set threads, cuDNN's search and TF32 within a block; matrix products stay in float32.

        All runs of a process share these settings. The first run to enter sets them, the last run to leave resets them.
        """
        with _SHARED.lock:
            if not _SHARED.users:
                search = self.engine == "eager"  # a captured step sets its own (step.py)
                _SHARED.before = _set_switches(self.threads, search, self.precision != "fp32", False)
            _SHARED.users += 1
        try:
            yield
        finally:
            with _SHARED.lock:
                _SHARED.users -= 1
                if not _SHARED.users:
                    _set_switches(*_SHARED.before)


_SHARED = SimpleNamespace(lock=threading.Lock(), users=0, before=())
"""The settings that all runs of a process share: how many runs use them, and their values before."""


def _set_switches(threads: int, search: bool, cudnn_tf32: bool, matmul_tf32: bool) -> tuple[int, bool, bool, bool]:
    """Set threads, cuDNN's search for algorithms, and TF32; return the previous values."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = torch.get_num_threads(), cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    torch.set_num_threads(threads)
    cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = search, cudnn_tf32, matmul_tf32
    return before


def environment(device: Device, photos: Photos | None = None) -> Environment:
    """Return the machine and the versions for a record."""
    on_gpu = device.torch.type == "cuda"
    found = Environment(
        phasezero=__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        numpy=np.__version__,
        cuda=torch.version.cuda if on_gpu else None,
        cudnn=str(torch.backends.cudnn.version()) if on_gpu else None,
        platform=platform.platform(),
        device=device.torch.type,
        device_name=device.description,
        threads=device.threads,
        precision=device.precision,
        engine=device.engine,
    )
    if photos is not None:
        found["photos"] = photos
    if plugins := loaded_plugins():
        found["plugins"] = plugins
    return found


def conditions(found: Environment) -> dict[str, Any]:
    """Return the part of an environment that numbers depend on."""
    names = ("phasezero", "torch", "numpy", "cuda", "cudnn", "device", "device_name", "precision", "engine", "photos")
    own: dict[str, Any] = {name: found.get(name) for name in (*names, "plugins")}
    return own | {"threads": found["threads"] if found["device"] == "cpu" else None}  # rounding depends on it


def processor_name() -> str:
    """Return the CPU's model on Linux, elsewhere the platform's name for it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
