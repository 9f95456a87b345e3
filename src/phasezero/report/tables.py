"""Tables of records: a row for runs that differ only in their seed, next to the published number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phasezero.identity import Group, group_by_identity, settings_of, shortened
from phasezero.methods import classifier_of
from phasezero.records.metrics import mean_and_deviation
from phasezero.records.run import Metrics, Record, device_share
from phasezero.report.grid import NOTHING, Cell, Grid, Spread
from phasezero.report.published import published_for

Runs = Group[Record]

MOST_PHASES = 8  # the most columns that fit a terminal; with more, a few are chosen
MOST_NAMED = 4  # runs in a warning
CLASSIFICATION = "how the method classifies"  # does not count if all runs are shown by the same classifier
WITHIN_DATA_SET = ("classes or class order", "training", "network")  # differ anyway on different data sets


def seen_classes(group: Runs) -> list[int]:
    """Return the number of classes seen after each phase."""
    return [phase["seen_classes"] for phase in group.first["phases"]]


def group_classifier(group: Runs) -> str:
    """Return the method's own classifier, or the head if that was not measured (for example without exemplars)."""
    own = classifier_of(group.first["method"])
    return "head" if metrics_of(group, own) is None else own


def accuracies_of(group: Runs, classifier: str) -> list[list[float]] | None:
    """Return, for each phase, the accuracy of every run; None if a run was not measured with this classifier."""
    runs = [[phase["accuracy"].get(classifier) for phase in record["phases"]] for record in group.members]
    measured = [[value for value in values if value is not None] for values in zip(*runs, strict=True)]
    return measured if all(len(values) == len(runs) for values in measured) else None


def metrics_of(group: Runs, classifier: str) -> list[Metrics] | None:
    """Return the summary of every run; None if a run was not measured with this classifier."""
    found = [metrics for record in group.members if (metrics := record["summary"].get(classifier)) is not None]
    return found if len(found) == len(group.members) else None


def computing_seconds(record: Record) -> float:
    """Return the seconds of all phases, including a phase 0 from the store; on a shared GPU, the run's share."""
    return device_share(record) * sum(phase["seconds"]["total"] for phase in record["phases"])


def spread(values: Sequence[float], digits: int = 2) -> Spread:
    """Return the mean and the sample standard deviation of some runs."""
    return Spread(*mean_and_deviation(values)[:2], digits=digits)


def results_grid(records: Iterable[Record], *, classifier: str | None = None) -> Grid:
    """Return a row for each group of runs, by the same classifier for all or by each method's own."""
    groups, common = shortened(group_by_identity(records))
    used = {group.label: classifier or group_classifier(group) for group in groups}
    others = ", ".join(f"{label}: {name.replace('_', ' ')}" for label, name in used.items() if name != "head")
    by_which = f"head classifier; {others}"
    if len(set(used.values())) < 2:
        by_which = f"{next(iter(used.values()), 'head').replace('_', ' ')} classifier"
    columns = _phase_columns(groups)
    header = ["run", "n", *columns, "last", "average", "forgetting", "paper"]
    rows = [_row(group, columns, used[group.label]) for group in groups]
    published = any(row[-1] != NOTHING for row in rows)
    return Grid(
        header if published else header[:-1],
        rows if published else [row[:-1] for row in rows],
        f"Accuracy in percent by the number of classes seen ({by_which}); "
        "mean ± sample standard deviation over n runs." + f" Names are short for METHOD/{common}." * bool(common),
        spare=range(2, 2 + len(columns)),
    )


def _phase_columns(groups: Sequence[Runs]) -> list[str]:
    """Return the headings of the phases to show: those after which all groups have seen equally many classes.

    Protocols without such phases show their first and middle phase. The last phase has its own column.
    """
    seen = [seen_classes(group) for group in groups]
    common = sorted(set.intersection(*map(set, seen))) if seen else []
    if len(common) < 2 and any(len(counts) > 1 for counts in seen):
        return ["first", "middle"]
    if len(common) > MOST_PHASES:
        few = MOST_PHASES - 2
        common = [common[round(i * (len(common) - 1) / (few - 1))] for i in range(few)]
    if all(counts[-1:] == common[-1:] for counts in seen):
        common = common[:-1]
    return list(map(str, common))


def _row(group: Runs, columns: Sequence[str], classifier: str) -> list[Cell]:
    numbers: list[Cell] = [NOTHING] * (len(columns) + 3)
    places = {"first": 0, "middle": len(group.first["phases"]) // 2}
    places |= {str(count): place for place, count in enumerate(seen_classes(group))}
    accuracies, metrics = accuracies_of(group, classifier), metrics_of(group, classifier)
    if accuracies is not None and metrics is not None:
        numbers = [Spread(mean_and_deviation(accuracies[places[name]])[0]) for name in columns]
        numbers.append(spread([run["last_accuracy"] for run in metrics]))
        numbers.append(spread([run["average_incremental_accuracy"] for run in metrics]))
        losses = [loss for run in metrics if (loss := run["forgetting"]) is not None]
        numbers.append(spread(losses) if losses else NOTHING)
    paper: Cell = NOTHING
    if (cell := published_for(group.first)) is not None:
        # iCaRL was published with nearest mean, the rest with the head. Note it if the row shows another classifier.
        theirs = classifier_of(group.first["method"])
        paper = Spread(cell.mean, cell.std, "" if theirs == classifier else theirs.replace("_", " "))
    return [group.label, str(len(group.members)), *numbers, paper]


def comparison_warnings(records: Sequence[Record], classifier: str | None = None) -> list[str]:
    """Return what makes the numbers of a table incomparable; all are by `classifier`, or by each method's own."""
    groups, warnings = shortened(group_by_identity(records))[0], []
    for what, owners in differences(groups).items():
        if classifier is None or what != CLASSIFICATION:
            most = max(owners.values(), key=len)
            values = "; ".join(f"{value} ({_named(labels, labels is most)})" for value, labels in owners.items())
            warnings.append(f"runs differ in {what}: {values}")
    return warnings


def _named(labels: Sequence[str], most: bool) -> str:
    """Name the runs that share a condition; most runs need no names."""
    more = len(labels) - MOST_NAMED
    if most and more > 0:
        return f"the other {len(labels)}"
    return ", ".join([*labels[:MOST_NAMED], *[f"and {more} more"] * (more > 0)])


def differences(groups: Sequence[Runs]) -> dict[str, dict[str, list[str]]]:
    """Return the conditions in which groups differ: their values, each with the labels of its groups."""
    found: dict[str, dict[str, list[str]]] = {}
    for group in groups:
        for what, value in conditions(group).items():
            where = f"{what} on {group.first['data']['name']}" if what in WITHIN_DATA_SET else what
            found.setdefault(where, {}).setdefault(value, []).append(group.label)
    return {what: owners for what, owners in found.items() if len(owners) > 1}


def conditions(group: Runs) -> dict[str, str]:
    """Return what must be equal for the numbers of groups to be comparable; another program's record may lack some."""
    settings, data = settings_of(group.first["config"]), group.first["data"]
    first, *later = [phase["new_classes"] for phase in group.first["phases"]]
    protocol = "+".join(map(str, [first, *later])) if later else f"{first} classes at once"
    if len(set(later)) == 1:
        protocol = f"B={first} S={later[0]}, {len(later) + 1} phases"
    epochs = dict.fromkeys(str(settings.get(f"training.{part}.epochs", "unknown")) for part in ("first", "later"))
    return {
        "data set": data["name"],
        "protocol": protocol,
        # The rule as configured: equal counts may come from unequal rules.
        "memory": str(settings.get("protocol.memory", "unknown")),
        "exemplars": f"{settings.get('protocol.selection', 'unknown')} selection",
        "precision": group.first["environment"]["precision"],
        CLASSIFICATION: group_classifier(group).replace("_", " "),
        "classes or class order": f"{data['class_order']}, hash {data['class_hash'][:8]}",
        "training": f"{' and then '.join(epochs)} epochs",
        "network": str(settings.get("network.name", "unknown")),
    }
