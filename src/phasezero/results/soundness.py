"""What must hold within a record besides its schema: views rely on it, and damage breaks it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from phasezero.errors import UserError


def lists_of(record: Mapping[str, Any]) -> Iterator[tuple[str, list[Any], int]]:
    """Where a list stands, itself, and how long it must be."""
    data = record["data"]
    for name in ("class_ids", "class_names", "class_order_indices"):
        yield f"data.{name}", data[name], data["classes"]
    for place, phase in enumerate(record["phases"]):
        for name, row in phase["by_phase"].items():
            if isinstance(row, list):  # None: not measured
                yield f"phases[{place}].by_phase.{name}", row, place + 1
        confusion = phase["confusion"]
        for name in ("true", "predicted"):
            yield f"phases[{place}].confusion.{name}", confusion[name], len(confusion["count"])


def refuse_unseen_classes(path: Path, record: Mapping[str, Any]) -> None:
    """A confusion matrix has as many rows and columns as classes were seen."""
    for place, phase in enumerate(record["phases"]):
        for name in ("true", "predicted"):
            if max(phase["confusion"][name], default=0) >= phase["seen_classes"]:
                raise UserError(f"{path}: phases[{place}].confusion.{name} has a class that was not seen")


def same_numbers(one: Any, other: Any) -> bool:
    """Equal up to the rounding of another machine, at any depth."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, abs_tol=1e-6)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_numbers, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_numbers(one[key], other[key]) for key in other)
    return bool(one == other)
