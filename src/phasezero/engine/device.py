"""Where and in which precision a run is computed; settles what the configuration left on `auto`."""

from __future__ import annotations

import contextlib
import platform
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils._triton import has_triton

from phasezero._version import __version__
from phasezero.bounds import refuse_outside
from phasezero.config import Engine
from phasezero.data.sources import Photos
from phasezero.errors import UserError
from phasezero.nets import IncrementalModel
from phasezero.results.record import Environment

COMPILATION_PAYS = 20_000
"""Steps of one shape after which compiling has paid: it takes 5 to 30 s and spares a few tenths of a millisecond."""


@dataclass(frozen=True)
class Device:
    torch: torch.device
    precision: str
    engine: str
    threads: int

    @classmethod
    def choose(cls, wanted: Engine, steps: int = 0) -> Device:
        """fp16, captured on a GPU; float32, eager elsewhere; or what was asked for, if it can be had.

        Compiled as well, where as many `steps` are to come as make up for the time it takes.
        """
        name = wanted.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
        except RuntimeError:
            raise UserError(f"engine.device: {name!r} is no device; use auto, cpu, cuda or cuda:1") from None
        on_gpu = device.type == "cuda"
        if device.type not in ("cpu", "cuda"):
            raise UserError(f"engine.device: {name!r} is not supported; use auto, cpu, cuda or cuda:1")
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
            precision = "fp16" if on_gpu else "fp32"  # what the paper's numbers were verified in
        if precision == "tf32" and not on_gpu:
            raise UserError("engine.precision: 'tf32' needs a CUDA device; use fp32 or bf16")
        refuse_outside("engine.threads", wanted.threads)
        return cls(device, precision, engine, wanted.threads or torch.get_num_threads())

    @property
    def description(self) -> str:
        if self.torch.type == "cuda":
            return torch.cuda.get_device_name(self.torch)
        return processor_name()

    def place(self, model: IncrementalModel) -> IncrementalModel:
        """The model on the device, its convolutions channels-last (faster on CPUs and tensor cores alike)."""
        model.half_precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        return model.to(device=self.torch, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def synchronize(self) -> None:
        if self.torch.type == "cuda":
            # The own stream: others may be capturing, which waiting for the whole device would break.
            torch.cuda.current_stream(self.torch).synchronize()

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        """Threads, cuDNN's and the matrix units' switches, for a while; matrix products stay in float32.

        They are the process's: whoever comes first sets them, whoever leaves last puts them back, so that a packed
        run that begins a phase does not turn off another's search for algorithms.
        """
        with _SETTINGS.lock:
            _SETTINGS.users += 1
            if _SETTINGS.users == 1:
                _SETTINGS.before = _read_switches()
                _set_switches(
                    Switches(
                        self.threads,
                        benchmark=self.engine == "eager",  # a captured step has its own search (step.py)
                        cudnn_tf32=self.precision != "fp32",
                        matmul_tf32=False,
                    )
                )
        try:
            yield
        finally:
            with _SETTINGS.lock:
                _SETTINGS.users -= 1
                if not _SETTINGS.users and _SETTINGS.before is not None:
                    _set_switches(_SETTINGS.before)


def environment(device: Device, photos: Photos | None = None) -> Environment:
    """What a record says of the machine and the versions that computed it."""
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
    return found if photos is None else {**found, "photos": photos}


class Switches(NamedTuple):
    threads: int
    benchmark: bool
    cudnn_tf32: bool
    matmul_tf32: bool


class _SharedSettings:
    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0
        self.before: Switches | None = None


_SETTINGS = _SharedSettings()


def _read_switches() -> Switches:
    backends = torch.backends
    return Switches(
        torch.get_num_threads(),
        backends.cudnn.benchmark,
        backends.cudnn.allow_tf32,
        backends.cuda.matmul.allow_tf32,
    )


def _set_switches(wanted: Switches) -> None:
    torch.set_num_threads(wanted.threads)
    backends = torch.backends
    backends.cudnn.benchmark, backends.cudnn.allow_tf32 = wanted.benchmark, wanted.cudnn_tf32
    backends.cuda.matmul.allow_tf32 = wanted.matmul_tf32


def processor_name() -> str:
    """The CPU's model where Linux tells it, else what the platform calls it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
