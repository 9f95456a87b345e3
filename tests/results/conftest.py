"""`make_record`: a complete record of a run that never happened, with known confusion matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from phasezero.presets import build_config
from phasezero.results.record import Record, data_record, phase_record, run_record
from samples import ENVIRONMENT

MakeRecord = Callable[..., Record]


def confusion_with(correct: Sequence[int], per_class: int) -> np.ndarray:
    """Class i has `correct[i]` of `per_class` test images right; the rest are called the next class."""
    n = len(correct)
    confusion = np.diag(np.array(correct, dtype=np.int64))
    for i in range(n):
        confusion[i, (i + 1) % n] += per_class - correct[i]
    return confusion


def configuration(
    method: str,
    data: str,
    initial: Sequence[str],
    sizes: Sequence[int],
    seed: int,
    per_class: int,
    class_order: str | None,
) -> dict[str, Any]:
    """As `phasezero run` would write it; unequal sizes are listed."""
    regular = len(sizes) > 1 and len(set(sizes[1:])) == 1
    config = build_config(
        method, data, initial=initial, base=sizes[0], step=sizes[1] if regular else 1
    ).override({"seed": seed, "protocol.memory": f"per_class:{per_class}"})
    if class_order is not None:
        config = config.override({"protocol.class_order": class_order})
    return config.to_dict() if regular else config.override({"protocol.phase_sizes": list(sizes)}).to_dict()


def build(
    *,
    method: str = "lucir",
    initial: Sequence[str] = (),
    data: str = "cifar100",
    sizes: Sequence[int] = (50, 10, 10, 10, 10, 10),
    seed: int = 0,
    per_class: int = 20,
    class_order: str | None = None,
    name: str | None = None,
    nearest_mean: bool = False,
    config: dict[str, Any] | None = None,
    finished: int | None = None,
    drop: int = 4,
) -> Record:
    """100 test images a class; after phase i every class has 80 + seed - drop * i right."""
    classes = sum(sizes)
    phases = []
    for i in range(finished or len(sizes)):
        so_far = list(sizes[: i + 1])
        seen = sum(so_far)
        right = max(80 + seed - drop * i, 1)
        phases.append(
            phase_record(
                phase_sizes=so_far,
                confusion=confusion_with([right] * seen, 100),
                nearest_mean_confusion=confusion_with([right - 1] * seen, 100) if nearest_mean else None,
                train_images=500 * so_far[-1] + per_class * (seen - so_far[-1]),
                memory_per_class=[per_class] * seen,
                loss={"train": [2.5, 1.25], "finetune": [0.5]} if i else {"train": [2.5, 1.25]},
                seconds={"grow": 0.1, "train": 2.0, "select": 0.2, "evaluate": 0.3, "total": 2.6},
            )
        )
    step = sizes[1] if len(sizes) > 1 else 0
    term = "".join(f"+{one.partition(':')[0]}" for one in initial)
    return run_record(
        name=name or f"{method}{term}/{data}/b{sizes[0]}s{step}",
        method=method.partition("-")[0],
        initial=initial,
        seed=seed,
        config=config or configuration(method, data, initial, sizes, seed, per_class, class_order),
        data=data_record(
            name=data,
            class_ids=range(classes),
            class_names=[f"class {i}" for i in range(classes)],
            class_order=class_order or "seed1993",
            class_order_indices=range(classes),
            train_images=500 * classes,
            test_images=100 * classes,
        ),
        phases=phases,
        timing={"started": "2026-01-02T03:04:05Z", "seconds_total": 15.6, "reused_phase_zero": False},
        environment={**ENVIRONMENT},
    )


@pytest.fixture(scope="session")
def make_record() -> MakeRecord:
    return build
