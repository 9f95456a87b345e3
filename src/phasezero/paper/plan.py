"""From a request to tables: the rows of each target, the records that exist, and the runs that are missing."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from statistics import multimode
from typing import Any, Generic, TypeVar, cast

from phasezero.analysis.information import FLOOR
from phasezero.config import RunConfig
from phasezero.data.catalog import Recipe, find_data_set
from phasezero.engine.store import phase_zero_of
from phasezero.errors import UserError, unknown
from phasezero.identity import once_per_seed, run_key, settings_of
from phasezero.methods import METHODS
from phasezero.paper.tables import Found, Row, Table, method_label, precision_of
from phasezero.paper.targets import CIFAR100, TARGETS, Block, Target
from phasezero.presets import build_config, with_name, with_settings
from phasezero.records.analysis import Analysis, analysis_name, floors, read_analysis
from phasezero.records.run import Record, class_hash, summarise
from phasezero.runs.session import CHECKPOINT

NOT_SET = {
    "seed": "use --seeds",
    "name": "a table or figure names its runs itself",
    "protocol.data": "use --data, so that every output names the data",
}
"""Settings that would make tables show other runs than they name, and what to do instead."""

T = TypeVar("T", Record, Analysis)


@dataclass(frozen=True)
class Request:
    """The arguments of `phasezero reproduce`. Empty fields mean all that the paper shows."""

    targets: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    """Names (`lucir`, with and without terms), labels (`lucir+cwd`), or any other METHOD[+STRATEGY[:WEIGHT]]."""
    steps: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    full: bool = False
    """Whether runs have as many epochs as their presets, also on data with `short_epochs`."""


def choose_data(target: Target, data: Sequence[str]) -> Sequence[str]:
    """Return the requested data sets, or the paper's; raise UserError for data that is known not to fit the target."""
    needed = max((sum(sizes) for block in target.blocks for sizes in block.sizes), default=0)
    for name in data:
        data_set, problem = find_data_set(name), f"{target.name} is not defined on {name!r}"
        classes = data_set.size[0]  # 0 if unknown: the phases are checked when the data is loaded
        if classes and (classes < needed or (classes != 100 and any(block.bases for block in target.blocks))):
            raise UserError(f"{problem}: it needs {max(needed, 100)} classes, not {classes}")
        if data_set.recipe.base is None and not all(block.bases or block.sizes for block in target.blocks):
            raise UserError(f"{problem}, which has no usual B and S")
    return list(dict.fromkeys(data)) or target.data


def plan(request: Request) -> list[Table]:
    """Return the tables to show, without records."""
    for key, instead in NOT_SET.items():
        if key in request.settings:
            raise UserError(f"--set {key}: {instead}")
    for name in request.targets:
        if name not in (*TARGETS, "all"):
            raise unknown("table or figure", name, [*TARGETS, "all"])
    papers = [name for name, target in TARGETS.items() if target.in_paper]
    names = dict.fromkeys(name for given in request.targets for name in (papers if given == "all" else [given]))
    chosen = [(TARGETS[name], data) for name in names for data in choose_data(TARGETS[name], request.data)]
    extra = _check_choice(request, chosen)
    words = " and ".join(filter(None, [", ".join(request.methods), ", ".join(f"S={step}" for step in request.steps)]))
    tables = []
    for target, data in chosen:
        if rows := expand(target, data, request, () if target.shows_models else extra):
            left_out = sum(not row.extra for row in rows) < len(expand(target, data))
            seeds = request.seeds or target.seeds
            tables.append(Table(target, data, rows, seeds, request.settings, words if left_out else ""))
    if not tables:
        raise UserError("no run of these tables and figures matches --method and --step")
    return tables


def _check_choice(request: Request, chosen: Sequence[tuple[Target, str]]) -> list[str]:
    """Return the methods to add because no target lists them; raise UserError for unknown methods and steps."""
    listed = [row.config for target, data in chosen for row in expand(target, data)]
    methods = {name for config in listed for name in (config.method.name, config.label)}
    extra = [name for name in request.methods if name not in methods]
    if extra and all(target.shows_models for target, _ in chosen):
        raise UserError(f"--method: {unknown('method here', extra[0], methods)}")
    steps = {config.protocol.step for config in listed if not config.protocol.phase_sizes}
    for step in set(request.steps) - steps:
        known = " or ".join(f"S={known_step}" for known_step in sorted(steps, reverse=True)) or "no S"
        raise UserError(f"--step {step}: these tables and figures have {known}")
    return extra


def expand(target: Target, data: str, request: Request = Request(), extra: Sequence[str] = ()) -> list[Row]:
    """Return the rows of a target on a data set, with `extra` methods in addition to those of the paper."""
    recipe, short, rows = find_data_set(data).recipe, find_data_set(data).short_epochs, []
    for block in (block.on_data(data) for block in target.blocks):
        listed = ["+".join(filter(None, pair)) for pair in product(block.runs, block.initial)]
        configs = {}
        for run in (*listed, *extra):
            method, *terms = run.split("+")
            configs[run] = build_config(method, data, initial=terms, base=recipe.base or 1, step=recipe.steps[0])
        asked_for = {configs[run].name for run in extra}
        chosen: dict[str, tuple[RunConfig, bool]] = {}  # by name: an extra run may be a listed run in another spelling
        for run, usual in configs.items():
            names = {usual.method.name, usual.label}
            if not request.methods or usual.name in asked_for or not names.isdisjoint(request.methods):
                chosen.setdefault(usual.name, (usual, run not in listed))
        settings = product(
            _protocols(block, recipe, request.steps), [{"first.epochs": n} for n in block.epochs] or [{}]
        )
        for (protocol, epochs), (usual, is_extra) in product(settings, chosen.values()):
            config = with_settings(usual, {**protocol, **epochs, **block.settings})
            trains_later = METHODS[config.method.name].trains_later and len(config.protocol.phase_sizes) != 1
            if short and not request.full and trains_later:
                config = with_settings(config, {"later.epochs": short})
            config = with_name(with_settings(config, request.settings))
            rows.append(Row(block.title.format(method=method_label(config)), config, is_extra))
    return rows


def _protocols(block: Block, recipe: Recipe, steps: Sequence[int]) -> Iterator[dict[str, Any]]:
    yield from ({"protocol.phase_sizes": list(sizes)} for sizes in block.sizes)
    if block.sizes:
        return
    memories = [{"protocol.memory": f"per_class:{kept}"} for kept in block.exemplars] or [{}]
    for base, step, memory in product(block.bases or (recipe.base,), block.steps or recipe.steps, memories):
        if not steps or step in steps:
            yield {"protocol.base": base, "protocol.step": step, **memory}


class Index(Generic[T]):
    """An index of records or analyses by configuration, regardless of their names and paths."""

    def __init__(self, made: Iterable[tuple[Path, T]] = ()) -> None:
        self.all: list[tuple[Path, T]] = []
        self._alike: dict[str, list[tuple[Path, T]]] = {}
        self.add(made)

    def add(self, made: Iterable[tuple[Path, T]]) -> None:
        for path, facts in made:
            self.all.append((path, facts))
            with contextlib.suppress(UserError):  # made by another version, with settings that no longer exist
                config = RunConfig.from_record(facts["config"])
                for key in (run_key(config), phase_zero_of(config)):
                    self._alike.setdefault(key, []).append((path, facts))

    def runs(self, config: RunConfig) -> list[tuple[Path, T]]:
        """Return the entries of a configuration, with all seeds."""
        return self._alike.get(run_key(config), [])

    def same_phase_zero(self, config: RunConfig) -> list[tuple[Path, T]]:
        """Return the entries that share the configuration's seed and phase 0."""
        return self._alike.get(phase_zero_of(config), [])


class RecordIndex(Index[Record]):
    """The records that were found, and the analyses next to them. Each file is read once."""

    def __init__(self, records: Iterable[Found] = (), analyses: Mapping[Path, Analysis] | None = None) -> None:
        super().__init__(records)
        self.analyses: dict[Path, Analysis | None] = dict(analyses or {})
        self.damaged: list[str] = []
        """Reasons why analyses could not be read."""

    def analysis(self, target: Target, folder: Path, record: Record) -> Analysis | None:
        """Return the analysis in a run's folder that a target shows, if it is readable and complete."""
        path = folder / analysis_name(shown_phase(target, record))
        if path not in self.analyses:
            self.analyses[path] = None
            try:
                self.analyses[path] = read_analysis(path) if path.exists() else None
            except UserError as error:
                self.damaged.append(str(error))
        if (found := self.analyses[path]) is None:
            return None
        if target.shows_sphere:
            whole = len(found["classes"]) == found["data"]["classes"]
            return found if whole and found["points"] is not None else None
        # Information with another floor cannot be compared; nothing else depends on it.
        return found if target.view != "information" or floors([found], "train", "unit") == [FLOOR] else None


def shown_phase(target: Target, record: Record) -> int:
    """Return the phase whose model a target shows: phase 0 for a sphere, otherwise the last phase."""
    return 0 if target.shows_sphere else len(record["phases"]) - 1


def as_run(analysis: Analysis, config: RunConfig, name: str) -> Analysis:
    """Return the analysis under a row's configuration and name, so that seeds from longer runs form one group."""
    seen = class_hash(analysis["classes"][: analysis["seen_classes"]])
    changed = {"name": name, "method": config.method.name, "config": config.to_dict()}
    return cast(Analysis, {**analysis, **changed, "data": {**analysis["data"], "class_hash": seen}})


def nearest(config: RunConfig) -> Callable[[tuple[Path, T]], tuple[bool, bool]]:
    """Return the order of runs with the same phase 0: those of this configuration, then of this method, then others."""
    # AANet's phase 0 has the settings of LUCIR's, but each may have been trained separately.
    settings = settings_of(config.to_dict())
    return lambda entry: (settings_of(entry[1]["config"]) != settings, entry[1]["method"] != config.method.name)


def usual_precision(found: Iterable[Found]) -> str:
    """Return the precision that most records have; empty without records."""
    return next(iter(multimode(map(precision_of, found))), "")


def with_records(row: Row, found: Iterable[Found], seeds: Sequence[int] | None = None, precision: str = "") -> Row:
    """Return the row with its records, each seed once and if possible in `precision`."""
    wanted = [entry for entry in found if seeds is None or entry[1]["seed"] in seeds]
    again = sorted(seed for seed, times in Counter(record["seed"] for _, record in wanted).items() if times > 1)
    own = nearest(row.config)
    records = once_per_seed(wanted, lambda entry: (precision_of(entry) != precision, *own(entry)))
    return replace(row, records=records, again=again)


def attach(table: Table, index: RecordIndex, *, states: bool = True) -> Table:
    """Return the table with existing records, in the requested precision or the most frequent precision.

    A figure of models needs a model's state or its analysis; without `states` only the analysis counts. A model after
    phase 0 may come from the analysis of a longer run.
    """
    target, by_row = table.target, []
    for row in table.rows:
        runs, wanted = dict(index.runs(row.config)), row.config.engine.precision
        if target.shows_models:
            kept = {path for path in runs if states and (path.parent / CHECKPOINT).exists()}
            if len(row.config.protocol.phase_sizes) == 1 and not target.shows_sphere:  # shows later classes
                for path, record in (run for seed in table.seeds for run in index.same_phase_zero(row.seeded(seed))):
                    first = {"phases": record["phases"][:1], "summary": summarise(record["phases"][:1])}
                    runs.setdefault(path, cast(Record, {**record, **first}))
            runs = {path: run for path, run in runs.items() if path in kept or index.analysis(target, path.parent, run)}
        by_row.append([run for run in runs.items() if wanted in ("auto", precision_of(run))])
    usual = usual_precision(run for runs in by_row for run in runs)
    rows = [with_records(row, runs, table.seeds, usual) for row, runs in zip(table.rows, by_row, strict=True)]
    return replace(table, rows=rows)


def on_cifar100(names: Sequence[str], index: RecordIndex) -> list[Table]:
    """Return these targets on CIFAR100 with the records and analyses of all seeds that exist."""
    seeds = tuple(sorted({record["seed"] for _, record in index.all}))
    return [attach(table, index, states=False) for table in plan(Request(tuple(names), (CIFAR100,), seeds))]


def missing_runs(tables: Iterable[Table]) -> list[RunConfig]:
    """Return the missing runs, each once, by seed, in an order that lets parallel runs share phase 0.

    A run for each phase 0 comes first, then a second run for each, and so on: two runs that start together would both
    train their phase 0.
    """
    configs: dict[tuple[int, str], RunConfig] = {}
    for config in (config for table in tables for config in table.missing):
        configs.setdefault((config.seed, run_key(config)), config)
    times: Counter[str] = Counter()
    ranked = []
    for config in configs.values():
        phase_zero = phase_zero_of(config)
        ranked.append((config.seed, times[phase_zero], config))
        times[phase_zero] += 1
    return [config for *_, config in sorted(ranked, key=lambda entry: entry[:2])]
