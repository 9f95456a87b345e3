"""Made-up facts, and a listener, that several tests need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from phasezero.analysis.record import FORMAT, Analysis, Measurement
from phasezero.config import RunConfig
from phasezero.data.stream import Phase
from phasezero.engine.outcome import PhaseResult
from phasezero.results.record import Environment, data_record

ENVIRONMENT = Environment(
    phasezero="0.1.0",
    python="3.11.7",
    torch="2.11.0",
    numpy="2.0.0",
    cuda=None,
    cudnn=None,
    platform="Linux",
    device="cpu",
    device_name="cpu",
    threads=4,
    precision="fp32",
    engine="eager",
)

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
"""A name that would break out of a page that does not escape it."""

PAGE_ANALYSIS: Any = {  # as much of one as the page reads
    "phase": 0,
    "k": [1, 2, 4],
    "train": {"raw": {"alpha_mean": [0.2, 0.4, 0.8]}},
    "test": {"raw": {"alpha_mean": [0.1, 0.3, 0.7]}},
}

MINIMAL = {
    "protocol.phase_sizes": [3, 1],
    "protocol.memory": "per_class:2",
    "training.first.epochs": 1,
    "training.later.epochs": 1,
    "training.first.batch_size": 512,
    "training.later.batch_size": 512,
}
"""Settings of a run on glyphs that is over in a second."""

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


def analysis_of(
    config: RunConfig,
    alpha: Sequence[float],
    *,
    sizes: Sequence[int] = (),
    step: float = 0.1,
    information: float = -300.0,
    scatter: float = 0.3,
    name: str = "",
) -> Analysis:
    """A complete analysis of a model that never was; `alpha`: alpha_1 of each class, others `step` above it."""
    sizes = list(sizes) or [len(alpha)]
    rows = [[min(share + times * step, 1.0) for times in range(3)] for share in alpha]
    found = measurement(rows, sum(sizes), information, scatter)
    ids = [f"id {place}" for place in range(len(alpha))]
    names = [f"class {place}" for place in range(len(alpha))]
    data = data_record(
        name=config.protocol.data,
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
        "name": name or f"{config.label}/{config.protocol.data}/{'-'.join(map(str, sizes))}",
        "method": config.method.name,
        "initial": [term.label for term in config.initial],
        "seed": config.seed,
        "config": config.to_dict(),
        "data": data,
        "phase": len(sizes) - 1,
        "phase_sizes": sizes,
        "seen_classes": sum(sizes),
        "accuracy": 80.0 + config.seed,
        "classes": ids,
        "class_names": names,
        "feature_size": 64,
        "k": KS,
        "train": {"images": images, "raw": found, "unit": found},
        "test": {"images": images, "raw": found, "unit": found},
        "points": None,
        "environment": {**ENVIRONMENT},
    }


class Diary:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.total = 0
        self.epochs: list[tuple[int, str, int]] = []
        self.images = 0
        self.results: list[PhaseResult] = []

    def started(self, phases: int, total_images: int) -> None:
        self.total = total_images

    def epoch(self, phase: Phase, stage: str, epoch: int, epochs: int, loss: float, images: int) -> None:
        self.epochs.append((phase.index, stage, epoch))
        self.images += images

    def phase(self, result: PhaseResult) -> None:
        self.results.append(result)
