"""`make_analysis`: a complete analysis of a model that never was, with chosen alpha_k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from phasezero.analysis.record import Analysis
from phasezero.presets import build_config
from samples import analysis_of


def build(
    alpha: Sequence[float],
    *,
    step: float = 0.1,
    eta: float = 0.0,
    phase_sizes: Sequence[int] = (),
    seed: int = 0,
    method: str = "lucir",
    information: float = -300.0,
    scatter: float = 0.3,
    settings: dict[str, Any] | None = None,
    name: str = "",
) -> Analysis:
    """`alpha`: alpha_1 of each class; alpha_2 and alpha_5 are `step` and twice that above it."""
    sizes = list(phase_sizes) or [len(alpha)]
    terms = [f"cwd:{eta}"] if eta else []
    config = build_config(method, "glyphs", initial=terms).override(
        {"seed": seed, "protocol.phase_sizes": sizes, **(settings or {})}
    )
    return analysis_of(
        config, alpha, sizes=sizes, step=step, information=information, scatter=scatter, name=name
    )


@pytest.fixture(scope="session")
def make_analysis() -> Callable[..., Analysis]:
    return build
