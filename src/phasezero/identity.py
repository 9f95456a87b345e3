"""Define which runs are the same, for tables, figures, plans and records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from phasezero.config import RunConfig, complete, leaves
from phasezero.errors import UserError
from phasezero.records.analysis import Analysis
from phasezero.records.files import relative
from phasezero.records.run import Record

T = TypeVar("T", Record, Analysis)


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that identify a run: all but its name, its seed and the engine section.

    If phase sizes are listed, base and step are not used and do not count.
    """
    found = dict(leaves(complete(config)))
    unread = ("protocol.base", "protocol.step") if found.get("protocol.phase_sizes") else ()
    return {k: v for k, v in found.items() if k not in ("name", "seed", *unread) and not k.startswith("engine.")}


def run_key(config: RunConfig) -> str:
    """Return a text that is equal for runs that differ only in seed, name and engine section."""
    return json.dumps(settings_of(config.to_dict()), sort_keys=True)


def identity(made: Record | Analysis) -> dict[str, Any]:
    """Return what must be equal for runs, or analyses of their models, to count as seeds of the same group.

    Besides name and settings this includes what a configuration leaves open: the classes (a folder may have grown),
    the phases (a run may have been stopped) and the precision that `auto` chose. All analyses are in float32.
    """
    facts = {"name": made["name"], **settings_of(made["config"]), "classes": made["data"]["class_hash"][:8]}
    if "phases" not in made:
        return {**facts, "phase": made["phase"]}
    phases = [phase["new_classes"] for phase in cast(Record, made)["phases"]]
    return {**facts, "phases": phases, "precision": made["environment"]["precision"]}


def differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys whose values differ between these settings, with the values (None if missing)."""
    keys = dict.fromkeys(key for mapping in settings for key in mapping)
    by_key = {key: [mapping.get(key) for mapping in settings] for key in keys}
    return {key: values for key, values in by_key.items() if any(value != values[0] for value in values)}


@dataclass(frozen=True)
class Group(Generic[T]):
    """Runs, or analyses of models, that differ only in their seed, ordered by it."""

    label: str
    """The name of the runs, and the differences from other groups of the same name."""
    members: tuple[T, ...]

    @property
    def first(self) -> T:
        return self.members[0]

    def by_seed(self) -> dict[int, T]:
        return {member["seed"]: member for member in self.members}

    def of_seeds(self, seeds: Collection[int]) -> Group[T]:
        return replace(self, members=tuple(member for member in self.members if member["seed"] in seeds))


def _identity_key(made: Record | Analysis) -> str:
    return json.dumps(identity(made), sort_keys=True, default=str)


def once_per_seed(
    found: Iterable[tuple[Path, T]], order: Callable[[tuple[Path, T]], Any] = lambda entry: 0
) -> dict[int, tuple[Path, T]]:
    """Return an entry for each seed: of several runs of a seed the first in this order, and then by path, counts."""
    by_seed: dict[int, tuple[Path, T]] = {}
    for entry in sorted(found, key=lambda entry: (order(entry), entry[0].absolute())):
        by_seed.setdefault(entry[1]["seed"], entry)
    return dict(sorted(by_seed.items()))


def each_seed_once(
    found: Iterable[tuple[Path, T]], say: Callable[[str], None], start: Path = Path()
) -> list[tuple[Path, T]]:
    """Return the entries that count, in the given order; tell `say` which run of a repeated seed is used.

    The same run made again is not a second sample. Paths are shown relative to `start`.
    """
    groups: dict[str, list[tuple[Path, T]]] = {}
    for entry in (entries := list(found)):
        groups.setdefault(_identity_key(entry[1]), []).append(entry)
    left_out: set[Path] = set()
    for alike in groups.values():
        for seed, (path, made) in once_per_seed(alike).items():
            if others := [other for other, run in alike if run["seed"] == seed and other != path]:
                left_out.update(others)
                names = ", ".join(relative(other, start) for other in others)
                times = f"seed {seed} was run {1 + len(others)} times and counts once"
                say(f"{made['name']}: {times}: {relative(path, start)} is used, not {names}")
    return [entry for entry in entries if entry[0] not in left_out]


def group_by_identity(made: Iterable[T]) -> list[Group[T]]:
    """Group runs or analyses that differ only in seed, in order of first appearance. Raise UserError for repeats."""
    groups: dict[str, list[T]] = {}
    for member in made:
        groups.setdefault(_identity_key(member), []).append(member)
    identities = [identity(members[0]) for members in groups.values()]
    found = []
    for own, members in zip(identities, groups.values(), strict=True):
        group = Group(label_among(own, identities), tuple(sorted(members, key=lambda member: member["seed"])))
        if len(group.by_seed()) != len(members):
            raise UserError(f"{group.label}: a seed occurs twice; the same run is not a second sample")
        found.append(group)
    return found


def shortened(groups: Sequence[Group[T]]) -> tuple[list[Group[T]], str]:
    """Return the groups with short labels, and what is left out after the method and strategies (`short_names`)."""
    labels, common = short_names([group.label for group in groups])
    return [replace(group, label=label) for group, label in zip(groups, labels, strict=True)], common


def short_names(names: Sequence[str]) -> tuple[list[str], str]:
    """Return names without what most of them have in common after the method and strategies, and what that is.

    Names that have it are their method and strategies alone. In the others `…` is the start that all names share.
    """
    rests = Counter(name.partition("/")[2] for name in names)
    common, times = max(rests.items(), key=lambda entry: entry[1], default=("", 0))
    if not common or times < 2 or 2 * times <= len(names):
        return list(names), ""
    parts = zip(
        *(re.split(r"(?<=[/,])", rest)[:-1] for rest in rests), strict=False
    )  # the data, the protocol, settings
    start = "".join(one[0] for one in takewhile(lambda one: len(set(one)) == 1, parts))

    def short(name: str) -> str:
        method, _, rest = name.partition("/")
        if rest == common:
            return method
        return f"{method}/…{rest[len(start) :]}" if start else name

    return [short(name) for name in names], common


def group_analyses(analyses: Iterable[Analysis]) -> list[Group[Analysis]]:
    """Group analyses that differ only in seed, sorted by classes and eta."""
    return group_by_identity(sorted(analyses, key=lambda model: (model["phase_sizes"], cwd_weight(model))))


def label_among(own: Mapping[str, Any], everybody: Sequence[Mapping[str, Any]]) -> str:
    """Return the name, and if others share it, also the settings in which they differ."""
    namesakes = [other for other in everybody if other["name"] == own["name"]]
    apart = [f"{key}={own[key]}" for key in differing(namesakes) if key in own]
    return f"{own['name']} ({', '.join(apart)})" if apart else str(own["name"])


def strategies_of(made: Record | Analysis) -> list[str]:
    """Return the names of the phase-0 strategies."""
    return [term["name"] for term in made["config"]["initial"]]


def cwd_weight(made: Record | Analysis) -> float:
    """Return CwD's coefficient eta; 0 where the term was not used."""
    return float(sum(term["weight"] for term in made["config"]["initial"] if term["name"] == "cwd"))
