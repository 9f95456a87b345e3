"""Randomness without state: each random stream is derived from the run's seed and the name of its purpose.

No generator is carried from epoch to epoch, so that a run can start again at any epoch with the same draws,
and nothing that one part draws moves another part's numbers.
"""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, *purpose: object) -> int:
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """A CPU generator (the draws are the same whatever device trains)."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))
