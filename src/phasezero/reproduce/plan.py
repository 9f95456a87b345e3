"""From a target to runs: their configurations, what of them has a record already, in which order the rest goes."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from phasezero.analysis.record import Analysis
from phasezero.config import RunConfig
from phasezero.data.catalog import DATA_SETS, split_name
from phasezero.engine.store import phase_zero_settings
from phasezero.errors import UserError, unknown
from phasezero.presets import LIKE_IMAGENET100, RECIPES, build_config, family_of, standard_name
from phasezero.reproduce.targets import IMAGENET100, PAPER_NAMES, Block, Target
from phasezero.results.record import Record

SHORT_EPOCHS = 2
"""Of a later phase on the glyphs, where their preset has 6: a table of 27 runs is then a matter of minutes."""

SHORT = "/short"
"""Ends the names of such runs."""


@dataclass(frozen=True)
class Filters:
    methods: tuple[str, ...] = ()
    """Names (`lucir`: with and without terms) or labels (`lucir+cwd`); empty: all."""
    steps: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        steps = [f"S={step}" for step in self.steps]
        return " and ".join(", ".join(some) for some in (self.methods, steps) if some)

    def admit(self, config: RunConfig) -> bool:
        stepwise = not config.protocol.phase_sizes
        return (not self.methods or not {config.method.name, config.label}.isdisjoint(self.methods)) and (
            not self.steps or not stepwise or config.protocol.step in self.steps
        )

    def refuse_unknown(self, configs: Sequence[RunConfig]) -> None:
        """Each method and step must be that of one of these; a misspelt one would silently be left out."""
        methods = {name for config in configs for name in (config.method.name, config.label)}
        for name in self.methods:
            if name not in methods:
                raise UserError(f"--method: {unknown('method here', name, methods)}")
        steps = {config.protocol.step for config in configs if not config.protocol.phase_sizes}
        for step in self.steps:
            if step not in steps:
                known = " or ".join(f"S={one}" for one in sorted(steps, reverse=True)) or "no S"
                raise UserError(f"--step {step}: these tables and figures have {known}")


@dataclass(frozen=True)
class Line:
    """One row of a table, one curve of a figure: the runs of one configuration, seed by seed."""

    panel: str
    config: RunConfig
    records: Mapping[int, tuple[Path, Record]] = field(default_factory=dict)
    """By seed: what has been found or computed."""
    precision: str = ""
    """Of all these records, where each precision has a line of its own; else empty."""

    @property
    def weight(self) -> float:
        """Of the phase-0 term; 0 without one."""
        return self.config.initial[0].weight if self.config.initial else 0.0

    def seeded(self, seed: int) -> RunConfig:
        return replace(self.config, seed=seed)


def choose_data(target: Target, data: Sequence[str]) -> tuple[str, ...]:
    """The data sets asked for, or the paper's; refuses those on which the target has no meaning."""
    for name in data:
        entry = split_name(name)[0]
        DATA_SETS[entry]  # refuses an unknown name
        if entry not in ("glyphs", "cifar100", *LIKE_IMAGENET100) and name not in target.data:
            known = ", ".join(dict.fromkeys(("glyphs", "cifar100", *LIKE_IMAGENET100, *target.data)))
            raise UserError(f"{target.name} is not defined on {name!r}; choose among {known}")
    return tuple(dict.fromkeys(data)) or target.data


def expand(target: Target, data: str, settings: Mapping[str, Any], *, full: bool = False) -> list[Line]:
    """The lines of a target on a data set. `full`: the glyphs at their presets' length."""
    lines = []
    for block in target.blocks:
        for config in _configs(block, data):
            config = config.override(block.settings)
            name = run_name(config)
            if data == "glyphs" and not full and len(config.protocol.phase_sizes) != 1:
                later = config.training.later.stretched(SHORT_EPOCHS)
                usual = config.training.later.epochs
                config = replace(config, training=replace(config.training, later=later)).override(settings)
                name += SHORT if config.training.later.epochs < usual else ""
            lines.append(Line(block.title, replace(config.override(settings), name=name)))
    return lines


def _configs(block: Block, data: str) -> Iterable[RunConfig]:
    recipe = RECIPES[family_of(data)]
    sizes: list[dict[str, Any]] = [{"protocol.phase_sizes": list(one)} for one in block.sizes] or [
        {"protocol.base": base, "protocol.step": step, "protocol.memory": f"per_class:{exemplars}"}
        for base, step, exemplars in product(
            block.bases or [recipe.base], block.steps or recipe.steps, block.exemplars
        )
    ]
    runs = block.on_glyphs if data == "glyphs" and block.on_glyphs else block.runs
    for protocol, run in product(sizes, runs):
        method, *terms = run.split("+")
        yield build_config(method, data, initial=terms).override(protocol)


def usual_config(config: RunConfig) -> RunConfig:
    """The same method and terms on the same data, with the usual weights and memory."""
    return _usual_config(
        config.method.name, config.protocol.data, tuple(term.name for term in config.initial)
    )


@cache
def _usual_config(method: str, data: str, terms: tuple[str, ...]) -> RunConfig:
    return build_config(method, data, initial=terms)


def run_name(config: RunConfig) -> str:
    """The standard name, and what sets the runs of one target apart: a term's weight, and R."""
    label, data, sizes = standard_name(config).rsplit("/", 2)
    usual = usual_config(config)
    weights = [
        term.name if term == own else term.label
        for term, own in zip(config.initial, usual.initial, strict=True)
    ]
    memory = config.protocol.memory
    kept = "" if memory == usual.protocol.memory else "r" + memory.removeprefix("per_class:")
    return f"{'+'.join([label.partition('+')[0], *weights])}/{data}/{sizes}{kept}"


def stand_in(target: Target, data: str) -> str:
    """What must be said wherever another data set than the paper's is shown; empty otherwise."""
    if data in target.data:
        return ""
    if data.startswith("imagenet100-") and IMAGENET100 in target.data:
        return f"{data} is another choice of 100 classes than the paper's ({IMAGENET100})."
    *others, last = [PAPER_NAMES[one] for one in target.data]
    names = f"{', '.join(others)} and {last}" if others else last
    return (
        f"{data} stands in for {names}, which the paper used; "
        f"any number of the paper's shown beside ours is of {PAPER_NAMES[target.data[0]]}."
    )


def run_key(config: RunConfig) -> str:
    """Equal for runs that differ only in their seed, their name and how they were computed."""
    values = {key: value for key, value in config.to_dict().items() if key not in ("name", "engine", "seed")}
    if config.protocol.phase_sizes:  # base and step are not looked at then
        values["protocol"] = values["protocol"] | {"base": 0, "step": 0}
    return json.dumps(values, sort_keys=True)


T = TypeVar("T", Record, Analysis)


def by_configuration(
    made: Iterable[tuple[Path, T]], key: Callable[[RunConfig], str]
) -> dict[str, list[tuple[Path, T]]]:
    """Records or analyses, by what a key takes of their configurations."""
    found: dict[str, list[tuple[Path, T]]] = {}
    for path, one in made:
        with contextlib.suppress(UserError):  # of another version, with settings that are no more
            found.setdefault(key(RunConfig.from_dict(one["config"])), []).append((path, one))
    return found


class Shelf:
    """Records that are there, found by their configuration, whatever they are called and wherever they are from."""

    def __init__(self, records: Iterable[tuple[Path, Record]]) -> None:
        self.records = list(records)
        self.by_key = by_configuration(self.records, run_key)

    def of(self, config: RunConfig) -> list[tuple[Path, Record]]:
        """All seeds. A precision asked for by name must be the one that was used; `auto` takes any."""
        wanted = config.engine.precision
        return [
            (path, record)
            for path, record in self.by_key.get(run_key(config), [])
            if wanted in ("auto", record["environment"]["precision"])
        ]


def usual_precision(records: Iterable[tuple[Path, Record]]) -> str:
    """What most of them have; of equally many the first, and empty without any."""
    counts = Counter(record["environment"]["precision"] for _, record in records)
    return counts.most_common(1)[0][0] if counts else ""


def with_records(
    line: Line, seeds: Iterable[int], found: Iterable[tuple[Path, Record]], precision: str = ""
) -> Line:
    """The line with the records found for it; of two for one seed one of `precision`, else the first."""
    by_seed: dict[int, tuple[Path, Record]] = {}
    for path, record in sorted(found, key=lambda one: one[1]["environment"]["precision"] != precision):
        if record["seed"] in seeds:
            by_seed.setdefault(record["seed"], (path, record))
    return replace(line, records=by_seed)


def missing_runs(wanted: Iterable[tuple[Line, Sequence[int]]]) -> list[RunConfig]:
    """What is left to run of lines and their seeds, each once, in an order that lets runs at once share phase 0.

    All of the first seed first; of those, one of each phase 0, then the second of each, and so on: a run that
    starts beside the first of its kind would train the same phase 0 again.
    """
    configs: dict[str, RunConfig] = {}
    for line, seeds in wanted:
        for seed in seeds:
            if seed not in line.records:
                configs.setdefault(f"{seed} {run_key(line.config)}", line.seeded(seed))
    times: Counter[str] = Counter()
    ranked: list[tuple[int, int, int, RunConfig]] = []
    for config in configs.values():
        key = phase_zero_of(config)
        ranked.append((config.seed, times[key], len(ranked), config))
        times[key] += 1
    return [config for *_, config in sorted(ranked, key=lambda one: one[:3])]


def phase_zero_of(config: RunConfig) -> str:
    """Runs that agree in this share their phase 0."""
    protocol, first = config.protocol, first_classes(config)
    inputs = [protocol.data, protocol.class_order, first, phase_zero_settings(config, first)]
    return json.dumps(inputs, sort_keys=True)


def first_classes(config: RunConfig) -> int:
    """How many classes phase 0 has."""
    return config.protocol.phase_sizes[0] if config.protocol.phase_sizes else config.protocol.base
