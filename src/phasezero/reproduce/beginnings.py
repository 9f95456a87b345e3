"""Where a longer run stands in for one of phase 0 alone: the model after phase 0 is the same whatever follows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from phasezero.analysis.record import Analysis
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.reproduce.plan import Line, phase_zero_of
from phasezero.results.record import Record, class_hash, summarise

Beginnings = Mapping[str, tuple[Path, Record]]
"""By what went into its phase 0: a run, cut down to it."""


def beginnings(records: Iterable[tuple[Path, Record]]) -> Beginnings:
    """Of runs of several phases; of two with the same phase 0, the first."""
    found: dict[str, tuple[Path, Record]] = {}
    for path, record in records:
        with contextlib.suppress(UserError):  # of another version, with settings that are no more
            key = phase_zero_of(RunConfig.from_dict(record["config"]))
            first = record["phases"][:1]
            if len(record["phases"]) > 1:
                cut = cast(Record, {**record, "phases": first, "summary": summarise(first)})
                found.setdefault(key, (path, cut))
    return found


def begun(line: Line, seeds: Iterable[int], found: Beginnings) -> Line:
    """A line of phase 0 alone, with the beginnings of longer runs for seeds that it has no record of."""
    if len(line.config.protocol.phase_sizes) != 1:
        return line
    wanted, more = line.config.engine.precision, dict(line.records)
    for seed in seeds:
        one = found.get(phase_zero_of(line.seeded(seed)))
        if one is not None and wanted in ("auto", one[1]["environment"]["precision"]):
            more.setdefault(seed, one)
    return replace(line, records=more)


def told_alone(analysis: Analysis, config: RunConfig, name: str) -> Analysis:
    """An analysis of phase 0 as that of a run which ended there, so that seeds from different runs stand together."""
    seen = analysis["seen_classes"]
    changed = {
        "name": name,
        "config": config.to_dict(),
        "phase_sizes": [seen],
        "data": {**analysis["data"], "class_hash": class_hash(analysis["classes"][:seen])},
    }
    return cast(Analysis, {**analysis, **changed})
