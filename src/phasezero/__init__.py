"""phasezero: class-incremental learning that starts right.

>>> from phasezero import preset, run
>>> config = preset("lucir+cwd/glyphs/b50s10")
>>> config.label
'lucir+cwd'

`run(config)` trains it and returns the record and the model. Names are loaded when they are first used, so that the
command answers quickly.
"""

from __future__ import annotations

import ast
import importlib
import os
import time
from pathlib import Path
from typing import Any

# Before torch is loaded: two processes of torch on the same cores make each other up to fifty times slower,
# because GNU OpenMP's threads by default spin for long while they wait. Alone, shorter spinning costs nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

STARTED = time.perf_counter()
"""When this process came to phasezero; torch takes a second to load."""

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {one.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for one in node.names}
"""The module of each public name: the stub is the one list of them."""
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'phasezero' has no attribute {name!r}")
    found = getattr(importlib.import_module(str(_HOMES[name])), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
