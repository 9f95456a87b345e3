"""Records as tables: one row for the runs that differ only in their seed, beside the published number."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from phasezero.config import leaves
from phasezero.results.grid import NOTHING, Cell, Grid, Spread, markdown
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.paper import published_classifier, published_for
from phasezero.results.record import Classifier, Metrics, Record

MOST_PHASES = 8
"""More columns than this do not fit a terminal; a few are chosen then."""

Item = TypeVar("Item")


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    label: str
    """The runs' name, and what sets them apart from other groups of the same name."""
    records: tuple[Record, ...]

    @property
    def seen(self) -> list[int]:
        """The number of classes seen after each phase."""
        return [phase["seen_classes"] for phase in self.records[0]["phases"]]

    @property
    def classifier(self) -> Classifier:
        """The method's own; the head where that was not measured in all runs."""
        own = {own_classifier(record) for record in self.records}
        return own.pop() if len(own) == 1 else "head"

    def accuracies(self, classifier: Classifier) -> list[list[float]] | None:
        """For each phase, the accuracy of every run; None if a run was not measured with this classifier."""
        runs = [[phase["accuracy"][classifier] for phase in record["phases"]] for record in self.records]
        measured = [[value for value in run if value is not None] for run in runs]
        if any(len(run) != len(self.seen) for run in measured):
            return None
        return [list(values) for values in zip(*measured, strict=True)]

    def metrics(self, classifier: Classifier) -> list[Metrics] | None:
        """The summaries of every run; None if a run was not measured with this classifier."""
        found = [summary for record in self.records if (summary := record["summary"][classifier]) is not None]
        return found if len(found) == len(self.records) else None


def own_classifier(record: Record) -> Classifier:
    """The one the method was published with; the head where that was not measured, without exemplars say."""
    own = published_classifier(record["method"])
    return own if record["summary"][own] is not None else "head"


def group_records(records: Iterable[Record]) -> list[Group]:
    """Group the runs that differ only in seed, in order of first appearance."""
    return [
        Group(label, tuple(sorted(runs, key=lambda record: record["seed"])))
        for label, runs in labelled_groups(records, _identity)
    ]


def labelled_groups(
    items: Iterable[Item], identity: Callable[[Item], Mapping[str, Any]]
) -> list[tuple[str, list[Item]]]:
    """Items of equal identity, which has a `name`; the label adds what sets them apart from namesakes."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(json.dumps(identity(item), sort_keys=True, default=str), []).append(item)
    identities = [identity(members[0]) for members in groups.values()]
    labels = [_label(one, identities) for one in identities]
    return list(zip(labels, groups.values(), strict=True))


def _identity(record: Record) -> dict[str, Any]:
    # The classes and the phases are facts that a configuration may leave open (a folder that grew, a run
    # that was stopped), so they stand beside it.
    return {
        "name": record["name"],
        "config": {key: value for key, value in record["config"].items() if key != "seed"},
        "classes": record["data"]["class_hash"][:8],
        "phases": [phase["new_classes"] for phase in record["phases"]],
        # What `auto` came to: runs of different precision are not averaged.
        "precision": record["environment"]["precision"],
    }


def _label(identity: Mapping[str, Any], identities: Sequence[Mapping[str, Any]]) -> str:
    """The name; where other groups share it, also the settings in which they differ."""
    namesakes = [dict(leaves(other)) for other in identities if other["name"] == identity["name"]]
    differing = [
        f"{key.removeprefix('config.')}={value}"
        for key, value in leaves(identity)
        if any(key not in other or other[key] != value for other in namesakes)
    ]
    name = str(identity["name"])
    return f"{name} ({', '.join(differing)})" if differing else name


def results_grid(records: Iterable[Record], *, classifier: Classifier | None = None) -> Grid:
    """One row a group, by one classifier for all or by each method's own."""
    groups = group_records(records)
    columns = _phase_columns(groups)
    header = ["run", "n", *(name for name, _ in columns), "last", "average", "forgetting", "paper"]
    caption = (
        f"Accuracy in percent by the number of classes seen ({_by_which(groups, classifier)}); "
        "mean ± sample standard deviation over n runs."
    )
    return Grid(header, [_row(group, columns, classifier or group.classifier) for group in groups], caption)


def _by_which(groups: Sequence[Group], classifier: Classifier | None) -> str:
    used = {group.label: classifier or group.classifier for group in groups}
    if len(set(used.values())) < 2:
        return f"{next(iter(used.values()), 'head').replace('_', ' ')} classifier"
    others = ", ".join(f"{label}: {one.replace('_', ' ')}" for label, one in used.items() if one != "head")
    return f"head classifier; {others}"


def markdown_table(records: Iterable[Record], *, classifier: Classifier | None = None) -> str:
    """The table as Markdown, ending in a newline."""
    return markdown(results_grid(records, classifier=classifier))


PhaseColumn = tuple[str, Callable[[Sequence[int]], int]]
"""A heading, and which phase it means in a run that has seen these numbers of classes."""


def _phase_columns(groups: Sequence[Group]) -> list[PhaseColumn]:
    """The phases to show: those after which every group had seen equally many classes.

    S=10, 5 and 2 after B=50 meet at 50, 60, ..., 100. Protocols that do not meet show their first and middle
    phase. The last phase of all has its own column anyway.
    """
    common = sorted(set.intersection(*(set(group.seen) for group in groups))) if groups else []
    if len(common) < 2 and any(len(group.seen) > 1 for group in groups):
        return [("first", lambda seen: 0), ("middle", lambda seen: len(seen) // 2)]
    if len(common) > MOST_PHASES:
        few = MOST_PHASES - 2
        common = [common[round(i * (len(common) - 1) / (few - 1))] for i in range(few)]
    if all(group.seen[-1:] == common[-1:] for group in groups):
        common = common[:-1]
    return [(str(count), lambda seen, count=count: seen.index(count)) for count in common]  # type: ignore[misc]


def _row(group: Group, columns: Sequence[PhaseColumn], classifier: Classifier) -> list[Cell]:
    row: list[Cell] = [group.label, str(len(group.records))]
    accuracies, metrics = group.accuracies(classifier), group.metrics(classifier)
    if accuracies is None or metrics is None:
        row += [NOTHING] * (len(columns) + 3)
    else:
        row += [Spread(mean_and_deviation(accuracies[phase(group.seen)])[0]) for _, phase in columns]
        row.append(spread([run["last_accuracy"] for run in metrics]))
        row.append(spread([run["average_incremental_accuracy"] for run in metrics]))
        losses = [loss for run in metrics if (loss := run["forgetting"]) is not None]
        row.append(spread(losses) if losses else NOTHING)
    return [*row, _paper(group, classifier)]


def spread(values: Sequence[float]) -> Spread:
    return Spread(*mean_and_deviation(values)[:2])


def _paper(group: Group, classifier: Classifier) -> Cell:
    cell = published_for(group.records[0])
    if cell is None:
        return NOTHING
    # iCaRL was published with nearest mean, the rest with the head: say so where the row shows the other.
    theirs = published_classifier(group.records[0]["method"])
    return Spread(cell.mean, cell.std, "" if theirs == classifier else theirs.replace("_", " "))


@dataclass(frozen=True)
class Difference:
    """Something besides the method in which the runs of one table differ."""

    what: str
    owners: Mapping[str, Sequence[str]]
    """Each value, and the labels of the groups that have it."""

    def __str__(self) -> str:
        values = "; ".join(f"{value} ({', '.join(labels)})" for value, labels in self.owners.items())
        return f"runs differ in {self.what}: {values}"


def comparison_warnings(records: Sequence[Record], classifier: Classifier | None = None) -> list[str]:
    """What the runs of one table differ in besides the method: each makes their numbers incomparable.

    `classifier`: the one by which all are shown; None for each method's own.
    """
    groups = group_records(records)
    found = [one for one in differences(groups) if classifier is None or one.what != CLASSIFICATION]
    return [*map(str, found), *repeated_seeds(groups)]


def differences(groups: Sequence[Group]) -> list[Difference]:
    found = [_difference(what, groups, value) for what, value in _CONDITIONS.items()]
    for data in dict.fromkeys(_data(group.records[0]) for group in groups):
        same = [group for group in groups if _data(group.records[0]) == data]
        found += [_difference(f"{what} on {data}", same, value) for what, value in _WITHIN_DATA_SET.items()]
    return [difference for difference in found if len(difference.owners) > 1]


def _difference(what: str, groups: Sequence[Group], value: Callable[[Record], str]) -> Difference:
    owners: dict[str, list[str]] = {}
    for group in groups:
        owners.setdefault(value(group.records[0]), []).append(group.label)
    return Difference(what, owners)


def repeated_seeds(groups: Sequence[Group]) -> list[str]:
    warnings = []
    for group in groups:
        seeds = Counter(record["seed"] for record in group.records)
        if repeated := [str(seed) for seed, times in seeds.items() if times > 1]:
            warnings.append(f"{group.label}: seed {', '.join(repeated)} counted more than once")
    return warnings


def conditions(record: Record) -> dict[str, str]:
    """What must be equal for the numbers of two runs to be comparable."""
    return {what: value(record) for what, value in (_CONDITIONS | _WITHIN_DATA_SET).items()}


def _data(record: Record) -> str:
    return record["data"]["name"]


def _classes(record: Record) -> str:
    return f"{record['data']['class_order']}, hash {record['data']['class_hash'][:8]}"


def _protocol(record: Record) -> str:
    first, *later = [phase["new_classes"] for phase in record["phases"]]
    if not later:
        return f"{first} classes at once"
    if len(set(later)) == 1:
        return f"B={first} S={later[0]}, {len(later) + 1} phases"
    return "+".join(map(str, [first, *later]))


def _setting(record: Record, key: str) -> str:
    """As the record has it; one made elsewhere need not have it."""
    return str(dict(leaves(record["config"])).get(key, "unknown"))


def _epochs(record: Record) -> str:
    both = dict.fromkeys(_setting(record, f"training.{phase}.epochs") for phase in ("first", "later"))
    return f"{' and then '.join(both)} epochs"


CLASSIFICATION = "how the method classifies"
"""The condition that does not count where all runs are shown by the same classifier."""

_CONDITIONS: dict[str, Callable[[Record], str]] = {
    "data set": _data,
    "protocol": _protocol,
    # The rule as configured: equal counts may come from unequal rules.
    "memory": lambda record: _setting(record, "protocol.memory"),
    "exemplars": lambda record: f"{_setting(record, 'protocol.selection')} selection",
    "precision": lambda record: record["environment"]["precision"],
    CLASSIFICATION: lambda record: own_classifier(record).replace("_", " "),
}
_WITHIN_DATA_SET: dict[str, Callable[[Record], str]] = {
    "classes or class order": _classes,
    "training": _epochs,
    "network": lambda record: _setting(record, "network.name"),
}
"""Those in which runs on different data sets differ anyway."""
