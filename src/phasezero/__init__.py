"""phasezero: class-incremental learning that starts right.

>>> from phasezero import preset, run
>>> config = preset("lucir+cwd/glyphs/b50s10")
>>> config.label
'lucir+cwd'

`run(config)` trains it and returns the record and the model. Names are loaded when they are first used, so importing
the package is quick.
"""

from __future__ import annotations

import ast
import importlib
import os
import time
from pathlib import Path
from typing import Any

# Set before torch is loaded. Two torch processes on the same cores slow each other down up to fifty times, because
# GNU OpenMP's threads spin for long while they wait. Shorter spinning costs a single process nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

STARTED = time.perf_counter()
"""When this process imported phasezero, before torch, which takes a second to load."""

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {alias.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names}
"""The module of each public name, read from the stub, which is the only list of them."""
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'phasezero' has no attribute {name!r}")
    found = getattr(importlib.import_module(str(_HOMES[name])), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
