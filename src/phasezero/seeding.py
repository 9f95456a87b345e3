"""Stateless random numbers: each generator is derived from the run's seed and the name of its purpose.

A run can restart at any epoch with the same draws, and the draws of different parts do not affect each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator

import torch

_GLOBAL_GENERATOR = threading.Lock()


def derive_seed(seed: int, *purpose: object) -> int:
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


@contextlib.contextmanager
def seeded_globally(seed: int) -> Iterator[None]:
    """Seed torch's global generator within a block, for module initialisers. Only one thread at a time can do so."""
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Return a CPU generator, so that the draws are the same on every device."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))
