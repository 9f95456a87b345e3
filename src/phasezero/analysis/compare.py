"""The paper's statements about spectra, checked for every class and seed and for several k, with all exceptions.

more classes   "for any fixed k, alpha_k strictly decreases as the model is trained with more classes" (Sec. 3.2)
larger eta     "applying CwD can effectively decrease alpha_k for every fixed k and every model, and using larger
               eta will decrease alpha_k more" (Sec. 3.3)
information    "with larger eta, I(X;Z|Y) consistently increase" (appendix B), by its proxy
nearer         with CwD in phase 0, alpha_k is nearer to the oracle's than without it, for classes of later phases
               too (appendix G)

A case is a class and a seed. A statement says that a difference is below zero in every case (information: above).
Models are paired by seed, classes by id.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from phasezero.config import complete
from phasezero.errors import UserError
from phasezero.identity import Group, cwd_weight, differing, group_analyses, label_among, settings_of, strategies_of
from phasezero.records.analysis import Analysis, Form, Split, floors, shared_classes
from phasezero.records.jsonfile import write_json
from phasezero.records.metrics import mean_and_deviation
from phasezero.records.run import class_hash

FORMAT = "phasezero-comparison-3"
TABLE_K = (1, 2, 5, 10, 20)

Claim = Literal["more classes", "larger eta", "more information", "nearer to the oracle"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)
Models = list[Group[Analysis]]

_ABOUT: dict[Claim, tuple[str, ...]] = {  # settings in which the models of a statement differ on purpose
    "more classes": ("protocol.",),
    "larger eta": ("initial",),
    "more information": ("initial",),
    "nearer to the oracle": ("initial", "protocol.", "method."),
}


@dataclass(frozen=True)
class Case:
    """A class and a seed, with each model's alpha_k (or information)."""

    class_id: str
    class_name: str
    seed: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class Finding:
    """How far a statement holds for some models at one k."""

    claim: Claim
    models: tuple[str, ...]  # before and after; or without CwD, with it, and the oracle
    phases: tuple[int, ...]  # after which each model was analysed
    k: int | None  # None for the information proxy
    means: tuple[float, ...]  # alpha_k (or information) of each model, over classes and seeds
    difference: float  # mean over cases
    deviation: float | None  # of the difference, over seeds
    seeds: tuple[int, ...]
    later: bool  # only classes that came after phase 0 were compared
    classes: int
    cases: int
    exceptions: tuple[Case, ...]  # for which the statement does not hold
    also_differ_in: tuple[str, ...]  # settings that the statement is not about: they may be the reason

    @property
    def holds(self) -> int:
        """Return in how many cases the statement holds."""
        return self.cases - len(self.exceptions)

    @property
    def holds_on_average(self) -> bool:
        return _agrees(self.claim, self.difference)


def values_of(analysis: Analysis, split: Split, form: Form, classes: Sequence[str], k: int | None) -> list[float]:
    """Return alpha_k of each class (1 if k is at least the number of features), or the information proxy without k."""
    found, places = analysis[split][form], [analysis["classes"].index(name) for name in classes]
    if k is None:
        return [found["information"]["by_class"][place] for place in places]
    if k >= analysis["feature_size"]:
        return [1.0] * len(classes)
    if k not in analysis["k"]:
        raise UserError(f"{analysis['name']}: alpha_{k} was not measured; there are k = {analysis['k']}")
    return [found["alpha"][place][analysis["k"].index(k)] for place in places]


def mean_of(analysis: Analysis, split: Split, form: Form, classes: Sequence[str] | None, k: int | None) -> float:
    """Return the mean of `values_of` over these classes, by default over all that the model has seen."""
    chosen = analysis["classes"][: analysis["seen_classes"]] if classes is None else classes
    return math.fsum(values_of(analysis, split, form, chosen, k)) / len(chosen)


def find(
    claim: Claim, models: Models, k: int | None, *, split: Split = "train", form: Form = "raw", later: bool = False
) -> Finding:
    """Check a statement about two or three models, on the classes that all of them have seen.

    `later` restricts it to classes after phase 0 (`shared_classes`). Raise UserError if models cannot be compared.
    """
    firsts, by_seed = [group.first for group in models], [group.by_seed() for group in models]
    seeds, classes = sorted(set.intersection(*map(set, by_seed))), shared_classes(firsts, later=later)
    labels, size = " and ".join(group.label for group in models), max(first["feature_size"] for first in firsts)
    used = [f"{floor:g}" for floor in floors((some[seed] for some in by_seed for seed in seeds), split, form)]
    if not seeds:
        raise UserError(f"{claim}: {labels} have no seed in common")
    if not classes:
        raise UserError(f"{claim}: {labels} have no class in common{' that came after phase 0' * later}")
    if k is not None and k >= size:
        raise UserError(f"{claim}: alpha_{k} is 1 in every model of {size} features")
    if k is None and len(used) > 1:
        raise UserError(f"{claim}: {labels} have different floors ({' and '.join(used)}) and cannot be compared")
    names = dict(zip(firsts[0]["classes"], firsts[0]["class_names"], strict=True))
    cases, by_run = [], []
    for seed in seeds:
        values = list(zip(*(values_of(some[seed], split, form, classes, k) for some in by_seed), strict=True))
        cases += [Case(name, names[name], seed, case) for name, case in zip(classes, values, strict=True)]
        by_run.append(sum(map(_difference, values)) / len(values))
    mean, deviation, _ = mean_and_deviation(by_run)
    settings = differing([settings_of(first["config"]) for first in firsts])
    return Finding(
        claim=claim,
        models=tuple(group.label for group in models),
        phases=tuple(first["phase"] for first in firsts),
        k=k,
        means=tuple(sum(column) / len(column) for column in zip(*(case.values for case in cases), strict=True)),
        difference=mean,
        deviation=deviation,
        seeds=tuple(seeds),
        later=later,
        classes=len(classes),
        cases=len(cases),
        exceptions=tuple(case for case in cases if not _agrees(claim, _difference(case.values))),
        also_differ_in=tuple(key for key in settings if not key.startswith(_ABOUT[claim])),
    )


def _difference(values: Sequence[float]) -> float:
    """Return how far the second model is above the first; with an oracle, how much farther it is from that."""
    first, second, *oracle = values
    return abs(second - oracle[0]) - abs(first - oracle[0]) if oracle else second - first


def _agrees(claim: Claim, difference: float) -> bool:
    return difference > 0 if claim == "more information" else difference < 0


def compare(
    analyses: Iterable[Analysis],
    *,
    ks: Sequence[int] | None = None,
    split: Split = "train",
    form: Form = "raw",
    later: bool = False,
    claims: Collection[Claim] = CLAIMS,
    left_out: list[str] | None = None,
) -> list[Finding]:
    """Check every statement about these models, for every k (by default `usual_k`).

    Models that cannot be compared raise UserError. A list `left_out` collects the reasons instead.
    """
    found = []
    for claim, models in statements(group_analyses(analyses)):
        for k in [None] if claim == "more information" else usual_k(models) if ks is None else ks:
            try:
                found += [find(claim, models, k, split=split, form=form, later=later)] if claim in claims else []
            except UserError as error:
                if left_out is None:
                    raise
                left_out += [str(error)] if str(error) not in left_out else []
    return found


def usual_k(models: Models) -> list[int]:
    """Return the k shown in tables for which alpha_k was measured in all models and is not always 1."""
    largest = max(group.first["feature_size"] for group in models)
    return [k for k in TABLE_K if k < largest and all(k in member["k"] for group in models for member in group.members)]


def statements(groups: Models) -> Iterator[tuple[Claim, Models]]:
    """Yield each of the paper's statements with the models that it can be checked on."""
    # More classes in phase 0: models after phase 0, and models that have seen equally many.
    ends = {group.first["seen_classes"] for group in groups if group.first["phase"] > 0}
    at_start = [group for group in groups if group.first["phase"] == 0]
    at_end = [group for group in groups if group.first["seen_classes"] in ends]
    families = [
        *_families(at_start, lambda run: [run["data"]["name"], run["method"], complete(run["config"])["initial"]]),
        *_families(at_end, lambda run: [run["data"]["name"], run["seen_classes"], complete(run["config"])["initial"]]),
    ]
    yield from (("more classes", pair) for family in families for pair in _neighbours(family, _at_once))
    by_eta = [pair for line in lines_over_eta(groups).values() for pair in _neighbours(line, cwd_weight)]
    yield from (("larger eta", pair) for pair in by_eta)
    yield from (("more information", pair) for pair in by_eta)
    # Without and with a term, and the oracle: the model of the same data that had most classes at once and no term,
    # all that the two ever see and more than they began with.
    for other in (group for group in groups if strategies_of(group.first)):
        data = [group for group in groups if group.first["data"]["name"] == other.first["data"]["name"]]
        plain = [group for group in data if not strategies_of(group.first)]
        oracle = max(plain, key=lambda group: _at_once(group.first), default=other)
        sizes, method, at_once = other.first["phase_sizes"], other.first["method"], _at_once(oracle.first)
        if sizes[0] < at_once and sum(sizes) <= at_once:
            alike = [group for group in plain if (group.first["phase_sizes"], group.first["method"]) == (sizes, method)]
            yield from (("nearer to the oracle", [naive, other, oracle]) for naive in alike)


def lines_over_eta(groups: Models) -> dict[str, Models]:
    """Return lines of models that differ only in eta, by a label for each line.

    A model without CwD belongs to every line with otherwise equal settings. If no line has equal settings, it belongs
    to those of its method, data and network: the published LUCIR with CwD on ImageNet100 has another learning rate.
    """
    lines = _families([group for group in groups if strategies_of(group.first) == ["cwd"]], all_but_eta)
    alone: Models = []
    for group in (group for group in groups if not strategies_of(group.first)):
        own, model = all_but_eta(group.first), ("name", "protocol.data", "network.name", "classes")
        alike = [line for line in lines if own.items() <= all_but_eta(line[0].first).items()]
        near = [line for line in lines if all(own[key] == all_but_eta(line[0].first)[key] for key in model)]
        for line in alike or near or [alone]:
            line.append(group)
    lines = sorted([*lines, *_families(alone, all_but_eta)], key=lambda line: line[0].first["phase_sizes"])
    facts = [all_but_eta(line[0].first) for line in lines]
    return {label_among(own, facts): line for own, line in zip(facts, lines, strict=True)}


def all_but_eta(analysis: Analysis) -> dict[str, Any]:
    """Return what identifies a model apart from seed and eta. The name has its phases; its classes are those seen."""
    ignored = ("initial", "initial.0.weight", "protocol.base", "protocol.step", "protocol.phase_sizes")
    return {
        "name": f"{analysis['method']}, classes {'+'.join(map(str, analysis['phase_sizes']))}",
        **{key: value for key, value in settings_of(analysis["config"]).items() if key not in ignored},
        "classes": class_hash(analysis["classes"][: analysis["seen_classes"]])[:8],
    }


def _families(groups: Models, same: Callable[[Analysis], object]) -> list[Models]:
    found: dict[str, Models] = {}
    for group in groups:
        found.setdefault(json.dumps(same(group.first), sort_keys=True), []).append(group)
    return list(found.values())


def _neighbours(family: Models, rank: Callable[[Analysis], float]) -> list[Models]:
    """Return pairs of ascending rank, each with the seeds that have no model of a rank between.

    A model without a seed in common with others is paired with the next rank, so that `find` raises an error.
    """
    pairs, strangers = [], []
    ranked = sorted(((rank(group.first), group) for group in family), key=lambda pair: pair[0])
    for (start, low), (end, high) in itertools.combinations(ranked, 2):
        between = [group.by_seed() for place, group in ranked if start < place < end]
        seeds = low.by_seed().keys() & high.by_seed().keys()
        if start < end and (free := seeds.difference(*between)):
            pairs.append([low.of_seeds(free), high.of_seeds(free)])
        elif start < end and not seeds and not between:
            strangers.append([low, high])
    paired = {group.label for pair in pairs for group in pair}
    return pairs + [pair for pair in strangers if not paired.issuperset(group.label for group in pair)]


def _at_once(analysis: Analysis) -> int:
    return analysis["phase_sizes"][0]


def write_findings(path: Path, findings: Sequence[Finding], *, split: Split, form: Form) -> None:
    """Write findings as JSON, with the exceptions that do not fit a table."""
    written = {
        "format": FORMAT,
        "split": split,
        "features": form,
        "phases": sorted({phase for finding in findings for phase in finding.phases}),
        "later": any(finding.later for finding in findings),
        "findings": [{**asdict(finding), "holds": finding.holds} for finding in findings],
    }
    write_json(path, written, "comparison")
