"""The paper's statements about spectra, checked on every class, seed and several k, with the exceptions named.

more classes   "for any fixed k, alpha_k strictly decreases as the model is trained with more classes" (Sec. 3.2)
larger eta     "applying CwD can effectively decrease alpha_k for every fixed k and every model, and using larger
               eta will decrease alpha_k more" (Sec. 3.3)
information    "with larger eta, I(X;Z|Y) consistently increase" (appendix B), by its proxy
nearer         with CwD in phase 0, alpha_k is nearer to the oracle's than without it, for classes of later phases
               too (appendix G)

Each is a number for every class and seed (a case) that the statement says is below zero (information: above).
Models are paired by their seed, classes by their ids.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from phasezero.analysis.record import (
    Analysis,
    AnalysisGroup,
    Split,
    cwd_weight,
    floors,
    group_analyses,
    shared_classes,
    term_forms,
)
from phasezero.analysis.spectra import Form
from phasezero.config import leaves
from phasezero.errors import UserError
from phasezero.results.jsonfile import write_json
from phasezero.results.metrics import mean_and_deviation

FORMAT = "phasezero-comparison-3"
TABLE_K = (1, 2, 5, 10, 20)

Claim = Literal["more classes", "larger eta", "more information", "nearer to the oracle"]
CLAIMS: tuple[Claim, ...] = get_args(Claim)


@dataclass(frozen=True)
class Case:
    """A class and a seed for which a statement does not hold, with each model's alpha_k (or information)."""

    class_id: str
    class_name: str
    seed: int
    values: tuple[float, ...]


@dataclass(frozen=True)
class Finding:
    claim: Claim
    models: tuple[str, ...]
    """before and after; or without CwD, with it, and the oracle."""
    phases: tuple[int, ...]
    """Each model is the one after this phase."""
    k: int | None
    """None for the information proxy."""
    means: tuple[float, ...]
    """alpha_k (or information) of each model, over classes and seeds."""
    difference: float
    """Mean over cases; the statement says below zero, of information above."""
    deviation: float | None
    """Of the difference, over seeds."""
    seeds: tuple[int, ...]
    later: bool
    """Only classes that came after phase 0 were looked at."""
    classes: int
    cases: int
    exceptions: tuple[Case, ...]
    also_differ_in: tuple[str, ...]
    """Settings, other than those the statement is about, in which the models differ: they may be the reason."""

    @property
    def holds(self) -> int:
        return self.cases - len(self.exceptions)

    @property
    def holds_on_average(self) -> bool:
        return _agrees(self.claim, self.difference)


def alpha_of(analysis: Analysis, split: Split, form: Form, classes: Sequence[str], k: int) -> list[float]:
    """alpha_k of each of these classes; 1 where there are no more than k features, as `spectra.alpha` has it."""
    if k >= analysis["feature_size"]:
        return [1.0] * len(classes)
    if k not in analysis["k"]:
        raise UserError(f"{analysis['name']}: alpha_{k} was not measured; there are k = {analysis['k']}")
    column, shares = analysis["k"].index(k), analysis[split][form]["alpha"]
    return [shares[analysis["classes"].index(name)][column] for name in classes]


def values_of(
    analysis: Analysis, split: Split, form: Form, classes: Sequence[str], k: int | None
) -> list[float]:
    """alpha_k of each of these classes; without a k, the information proxy."""
    if k is not None:
        return alpha_of(analysis, split, form, classes, k)
    by_class = analysis[split][form]["information"]["by_class"]
    return [by_class[analysis["classes"].index(name)] for name in classes]


def change(values: Sequence[float]) -> float:
    before, after = values
    return after - before


def approach(alphas: Sequence[float]) -> float:
    """How much farther from the oracle the second is than the first."""
    without, with_term, oracle = alphas
    return abs(with_term - oracle) - abs(without - oracle)


_ABOUT: Mapping[Claim, tuple[str, ...]] = {
    "more classes": ("protocol.",),
    "larger eta": ("initial",),
    "more information": ("initial",),
    "nearer to the oracle": ("initial", "protocol.", "method."),
}


def _agrees(claim: Claim, difference: float) -> bool:
    return difference > 0 if claim == "more information" else difference < 0


def common_seeds(groups: Iterable[AnalysisGroup]) -> list[int]:
    return sorted(set.intersection(*(set(group.by_seed()) for group in groups)))


def obstacle(
    claim: Claim, groups: Sequence[AnalysisGroup], k: int | None, split: Split, form: Form, later: bool
) -> str:
    """Why a statement cannot be asked of these models; empty if it can."""
    labels = " and ".join(group.label for group in groups)
    seeds, size = common_seeds(groups), max(group.first["feature_size"] for group in groups)
    if not seeds:
        return f"{claim}: {labels} have no seed in common"
    if not shared_classes([group.first for group in groups], later=later):
        return f"{claim}: {labels} have no class in common{' that came after phase 0' * later}"
    if k is not None and k >= size:
        return f"{claim}: alpha_{k} is 1 in every model of {size} features"
    found = floors((one for group in groups for one in group.analyses if one["seed"] in seeds), split, form)
    if k is None and len(found) > 1:
        told = " and ".join(f"{floor:g}" for floor in found)
        return f"{claim}: {labels} were analysed with different floors ({told}): these cannot be compared"
    return ""


def find(
    claim: Claim,
    groups: Sequence[AnalysisGroup],
    k: int | None,
    *,
    split: Split = "train",
    form: Form = "raw",
    later: bool = False,
) -> Finding:
    """One statement about two (or three) groups of models, on all classes that all of them have seen.

    `later` looks only at those that were not learned in phase 0 (the oracle's only phase excepted).
    """
    if why := obstacle(claim, groups, k, split, form, later):
        raise UserError(why)
    by_seed, seeds = [group.by_seed() for group in groups], common_seeds(groups)
    classes = shared_classes([group.first for group in groups], later=later)
    difference: Callable[[Sequence[float]], float] = approach if len(groups) == 3 else change
    names = dict(zip(groups[0].first["classes"], groups[0].first["class_names"], strict=True))
    values: list[tuple[float, ...]] = []
    exceptions, by_run = [], []
    for seed in seeds:
        columns = [values_of(some[seed], split, form, classes, k) for some in by_seed]
        cases = list(zip(*columns, strict=True))
        differences = [difference(case) for case in cases]
        by_run.append(sum(differences) / len(differences))
        values += cases
        exceptions += [
            Case(name, names[name], seed, case)
            for name, case, found in zip(classes, cases, differences, strict=True)
            if not _agrees(claim, found)
        ]
    mean, deviation, _ = mean_and_deviation(by_run)
    return Finding(
        claim=claim,
        models=tuple(group.label for group in groups),
        phases=tuple(group.first["phase"] for group in groups),
        k=k,
        means=tuple(sum(column) / len(column) for column in zip(*values, strict=True)),
        difference=mean,
        deviation=deviation,
        seeds=tuple(seeds),
        later=later,
        classes=len(classes),
        cases=len(values),
        exceptions=tuple(exceptions),
        also_differ_in=tuple(_confounders(claim, groups)),
    )


def _confounders(claim: Claim, groups: Sequence[AnalysisGroup]) -> Iterator[str]:
    ignored = ("name", "seed", "engine.", *_ABOUT[claim])
    settings = [dict(leaves(group.first["config"])) for group in groups]
    for key in dict.fromkeys(key for some in settings for key in some):
        values = {json.dumps(some.get(key), sort_keys=True) for some in settings}
        if len(values) > 1 and not key.startswith(ignored):
            yield key


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
    """All statements that these models allow, each for every k (by default a few of those measured).

    Models that a statement is about but that cannot be compared (see `obstacle`) are refused; with a list
    `left_out` they are left out, and it gets the reasons.
    """
    found, reasons = [], dict[str, None]()
    for claim, some in statements(group_analyses(analyses)):
        if claim not in claims:
            continue
        chosen = _table_k(some) if ks is None else ks
        for k in [None] if claim == "more information" else chosen:
            why = "" if left_out is None else obstacle(claim, some, k, split, form, later)
            if why:
                reasons[why] = None
            else:
                found.append(find(claim, some, k, split=split, form=form, later=later))
    if left_out is not None:
        left_out += reasons
    return found


def _table_k(groups: Sequence[AnalysisGroup]) -> list[int]:
    """Those measured in all of these models and not 1 in each."""
    common = set.intersection(*(set(group.first["k"]) for group in groups))
    return [k for k in TABLE_K if k in common and k < max(group.first["feature_size"] for group in groups)]


def statements(groups: Sequence[AnalysisGroup]) -> Models:
    """Which of the paper's statements can be asked of which of these models."""
    yield from _by_classes(groups)
    by_eta = list(_by_eta(groups))
    yield from (("larger eta", pair) for pair in by_eta)
    yield from (("more information", pair) for pair in by_eta)
    yield from _to_oracle(groups)


Models = Iterator[tuple[Claim, list[AnalysisGroup]]]


def _by_classes(groups: Sequence[AnalysisGroup]) -> Models:
    """The same terms, ever more classes in phase 0: models after phase 0, and models that have seen equally many."""
    at_start = [group for group in groups if group.first["phase"] == 0]
    counts = {group.first["seen_classes"] for group in groups if group.first["phase"] > 0}
    at_end = [group for group in groups if group.first["seen_classes"] in counts]
    for pair in (
        *_steps(at_start, lambda one: [one["method"], one["config"]["initial"]], _first_classes),
        *_steps(at_end, lambda one: [one["seen_classes"], one["config"]["initial"]], _first_classes),
    ):
        yield "more classes", pair


def _first_classes(analysis: Analysis) -> int:
    return analysis["phase_sizes"][0]


def _by_eta(groups: Sequence[AnalysisGroup]) -> Iterator[list[AnalysisGroup]]:
    """The same method and phases, ever larger eta of one form of CwD; eta 0 goes with every form."""
    plain = [group for group in groups if not _terms(group)]
    with_cwd = [group for group in groups if _terms(group) == ["cwd"]]
    forms = {json.dumps(term_forms(group.first)): term_forms(group.first) for group in with_cwd}
    for form in forms.values():
        members = [*plain, *(group for group in with_cwd if term_forms(group.first) == form)]
        yield from _steps(members, lambda one: [one["method"], one["phase_sizes"]], cwd_weight)


def _to_oracle(groups: Sequence[AnalysisGroup]) -> Models:
    """Without and with a term, and the model of the same data that had most classes at once and no term: all that
    the two ever see, and more than they began with."""
    for other in groups:
        plain = [group for group in groups if not _terms(group) and _data(group) == _data(other)]
        for naive in plain:
            oracle = max(plain, key=lambda group: _first_classes(group.first))
            alike = all(naive.first[key] == other.first[key] for key in ("phase_sizes", "method"))
            sizes, at_once = naive.first["phase_sizes"], _first_classes(oracle.first)
            if _terms(other) and alike and sizes[0] < at_once and sum(sizes) <= at_once:
                yield "nearer to the oracle", [naive, other, oracle]


def _terms(group: AnalysisGroup) -> list[str]:
    return [term["name"] for term in group.first["config"]["initial"]]


def _data(group: AnalysisGroup) -> str:
    return group.first["data"]["name"]


def _steps(
    groups: Iterable[AnalysisGroup], same: Callable[[Analysis], object], rank: Callable[[Analysis], float]
) -> Iterator[list[AnalysisGroup]]:
    """Pairs of groups of the same data that agree in one respect and are neighbours by another."""
    families: dict[str, dict[float, list[AnalysisGroup]]] = {}
    for group in sorted(groups, key=lambda group: rank(group.first)):
        family = families.setdefault(json.dumps([_data(group), same(group.first)], sort_keys=True), {})
        family.setdefault(rank(group.first), []).append(group)
    for family in families.values():
        yield from _neighbours(list(family.values()))


def _neighbours(levels: Sequence[Sequence[AnalysisGroup]]) -> list[list[AnalysisGroup]]:
    """Pairs with the seeds that have no model at a level between; the levels ascend.

    A model that shares no seed with any other is paired with those of the next level, for `obstacle` to say so.
    """
    pairs, strangers, paired = [], [], set[int]()
    for low, high in itertools.combinations(range(len(levels)), 2):
        between = {seed for level in levels[low + 1 : high] for group in level for seed in group.by_seed()}
        for pair in map(list, itertools.product(levels[low], levels[high])):
            seeds = set(common_seeds(pair))
            if seeds - between:
                pairs.append([group.of_seeds(seeds - between) for group in pair])
                paired |= {id(group) for group in pair}
            elif not seeds and high == low + 1:
                strangers.append(pair)
    return pairs + [pair for pair in strangers if not paired.issuperset(map(id, pair))]


def write_findings(path: Path, findings: Sequence[Finding], *, split: Split, form: Form) -> None:
    """For programs, and for the exceptions that do not fit a table."""
    written = {
        "format": FORMAT,
        "split": split,
        "features": form,
        "phases": sorted({phase for finding in findings for phase in finding.phases}),
        "later": any(finding.later for finding in findings),
        "findings": [{**asdict(finding), "holds": finding.holds} for finding in findings],
    }
    write_json(path, written, "comparison")
