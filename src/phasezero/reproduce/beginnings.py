"""Where a longer run stands in for one of phase 0 alone: the model after phase 0 is the same whatever follows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import cast

from phasezero.analysis.record import Analysis
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.reproduce.plan import Line, phase_zero_of
from phasezero.results.record import Record, class_hash, summarise


class Beginnings:
    """Runs of several phases, each cut down to its first, found by what went into that."""

    def __init__(self, records: Iterable[tuple[Path, Record]]) -> None:
        self.by_phase_zero: dict[str, list[tuple[Path, Record]]] = {}
        for path, record in records:
            with contextlib.suppress(UserError):  # of another version, with settings that are no more
                key = phase_zero_of(RunConfig.from_dict(record["config"]))
                first = record["phases"][:1]
                if len(record["phases"]) > 1:
                    cut = cast(Record, {**record, "phases": first, "summary": summarise(first)})
                    self.by_phase_zero.setdefault(key, []).append((path, cut))

    def of(self, line: Line, seeds: Iterable[int]) -> list[tuple[Path, Record]]:
        """Those that a line of phase 0 alone could have begun as; none for any other line."""
        if len(line.config.protocol.phase_sizes) != 1:
            return []
        wanted = line.config.engine.precision
        return [
            (path, record)
            for seed in seeds
            for path, record in self.by_phase_zero.get(phase_zero_of(line.seeded(seed)), [])
            if wanted in ("auto", record["environment"]["precision"])
        ]


def told_alone(analysis: Analysis, config: RunConfig, name: str) -> Analysis:
    """An analysis of phase 0 as that of a run which ended there, so that seeds from different runs stand together."""
    seen = class_hash(analysis["classes"][: analysis["seen_classes"]])  # not of classes that only came later
    changed = {"name": name, "config": config.to_dict(), "data": {**analysis["data"], "class_hash": seen}}
    return cast(Analysis, {**analysis, **changed})
