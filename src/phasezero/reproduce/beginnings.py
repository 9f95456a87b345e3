"""Where a longer run stands in for one of phase 0 alone: the model after phase 0 is the same whatever follows it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Generic, cast

from phasezero.analysis.record import Analysis
from phasezero.config import RunConfig
from phasezero.reproduce.plan import Line, T, by_configuration, phase_zero_of
from phasezero.results.record import Record, class_hash, summarise


class ByPhaseZero(Generic[T]):
    """Records or analyses, by what went into the phase 0 that they are of."""

    def __init__(self, made: Iterable[tuple[Path, T]]) -> None:
        self.found: dict[str, list[tuple[Path, T]]] = by_configuration(made, phase_zero_of)

    def of(self, config: RunConfig) -> list[tuple[Path, T]]:
        """Those of its own method first: AANet's phase 0 is LUCIR's by its settings, but may be trained anew."""
        found = self.found.get(phase_zero_of(config), [])
        return sorted(found, key=lambda one: one[1]["method"] != config.method.name)


class Beginnings:
    """Runs, each cut down to its first phase, found by what went into that and not by how later ones are made."""

    def __init__(self, records: Iterable[tuple[Path, Record]]) -> None:
        self.found = ByPhaseZero((path, _cut(record)) for path, record in records)

    def of(self, line: Line, seeds: Iterable[int]) -> list[tuple[Path, Record]]:
        """Those that a line of phase 0 alone could have begun as; none for any other line."""
        if len(line.config.protocol.phase_sizes) != 1:
            return []
        wanted = line.config.engine.precision
        return [
            (path, record)
            for seed in seeds
            for path, record in self.found.of(line.seeded(seed))
            if wanted in ("auto", record["environment"]["precision"])
        ]


def _cut(record: Record) -> Record:
    first = record["phases"][:1]
    return cast(Record, {**record, "phases": first, "summary": summarise(first)})


def told_as(analysis: Analysis, config: RunConfig, name: str) -> Analysis:
    """As that of the run a line asks for, whatever the one was called that left it: seeds then stand together."""
    changed = {"name": name, "method": config.method.name, "config": config.to_dict()}
    return cast(Analysis, {**analysis, **changed})


def told_alone(analysis: Analysis, config: RunConfig, name: str) -> Analysis:
    """An analysis of phase 0 as that of a run which ended there, though it may be of a longer one."""
    seen = class_hash(analysis["classes"][: analysis["seen_classes"]])  # not of classes that only came later
    told = told_as(analysis, config, name)
    return cast(Analysis, {**told, "data": {**analysis["data"], "class_hash": seen}})
