"""`make_analysis`: a complete analysis of a model that never was, with chosen alpha_k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from phasezero.analysis.record import FORMAT, Analysis, Measurement
from phasezero.presets import build_config
from phasezero.results.record import data_record
from samples import ENVIRONMENT

KS = [1, 2, 5]


def measurement(
    alpha: Sequence[Sequence[float]], seen: int, information: float, scatter: float
) -> Measurement:
    means = [sum(column) / seen for column in zip(*alpha[:seen], strict=True)]
    return {
        "alpha_mean": means,
        "alpha": [list(row) for row in alpha],
        "variance": [1.0] * len(alpha),
        "spectrum_mean": [0.5, 0.3, 0.2],
        "information": {
            "mean": information,
            "by_class": [information] * len(alpha),
            "floor": 1e-12,
            "floored": [2] * len(alpha),
            "unavoidable": [1] * len(alpha),
        },
        "overlap": {
            "scatter_ratio": scatter,
            "nearest_mean_error": 10 * scatter,
            "seen_as_future": None,
            "future_as_seen": None,
        },
    }


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
    rows = [[share, share + step, share + 2 * step] for share in alpha]
    found = measurement(rows, sum(sizes), information, scatter)
    ids = [f"id {place}" for place in range(len(alpha))]
    names = [f"class {place}" for place in range(len(alpha))]
    data = data_record(
        name="glyphs",
        class_ids=ids,
        class_names=names,
        class_order="natural",
        class_order_indices=range(len(alpha)),
        train_images=100,
        test_images=100,
    )
    images = [10] * len(alpha)
    return {
        "format": FORMAT,
        "phasezero": "0.1.0",
        "name": name or f"{config.label}/glyphs/{'-'.join(map(str, sizes))}",
        "method": method,
        "initial": [term.label for term in config.initial],
        "seed": seed,
        "config": config.to_dict(),
        "data": data,
        "phase": len(sizes) - 1,
        "phase_sizes": sizes,
        "seen_classes": sum(sizes),
        "accuracy": 80.0 + seed,
        "classes": ids,
        "class_names": names,
        "feature_size": 64,
        "k": KS,
        "train": {"images": images, "raw": found, "unit": found},
        "test": {"images": images, "raw": found, "unit": found},
        "points": None,
        "environment": {**ENVIRONMENT},
    }


@pytest.fixture(scope="session")
def make_analysis() -> Callable[..., Analysis]:
    return build
