"""Where a longer run stands in for one of phase 0 alone: the model after phase 0 is the same whatever follows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from phasezero.analysis.record import Analysis
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.reproduce.plan import Line, phase_zero_of
from phasezero.results.record import Record, class_hash, summarise

T = TypeVar("T")


def by_phase_zero(made: Iterable[tuple[dict[str, Any], T]]) -> dict[str, list[T]]:
    """What was made with these configurations, by what went into its phase 0."""
    found: dict[str, list[T]] = {}
    for config, one in made:
        with contextlib.suppress(UserError):  # of another version, with settings that are no more
            found.setdefault(phase_zero_of(RunConfig.from_dict(config)), []).append(one)
    return found


class Beginnings:
    """Runs of several phases, each cut down to its first, found by what went into that."""

    def __init__(self, records: Iterable[tuple[Path, Record]]) -> None:
        self.found = by_phase_zero(
            (record["config"], (path, _cut(record))) for path, record in records if len(record["phases"]) > 1
        )

    def of(self, line: Line, seeds: Iterable[int]) -> list[tuple[Path, Record]]:
        """Those that a line of phase 0 alone could have begun as; none for any other line."""
        if len(line.config.protocol.phase_sizes) != 1:
            return []
        wanted = line.config.engine.precision
        return [
            (path, record)
            for seed in seeds
            for path, record in self.found.get(phase_zero_of(line.seeded(seed)), [])
            if wanted in ("auto", record["environment"]["precision"])
        ]


def _cut(record: Record) -> Record:
    first = record["phases"][:1]
    return cast(Record, {**record, "phases": first, "summary": summarise(first)})


def told_alone(analysis: Analysis, config: RunConfig, name: str) -> Analysis:
    """An analysis of phase 0 as that of a run which ended there, so that seeds from different runs stand together."""
    seen = class_hash(analysis["classes"][: analysis["seen_classes"]])  # not of classes that only came later
    changed = {"name": name, "config": config.to_dict(), "data": {**analysis["data"], "class_hash": seen}}
    return cast(Analysis, {**analysis, **changed})
