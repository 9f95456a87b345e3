"""The analysis of a model as data: one JSON file for a run and a phase; figures and comparisons are views of it.

Models are large and stay where they were trained; their analyses are small and can be kept beside the records.
Shares (alpha_k) are rounded to six decimals, other numbers to six significant digits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from phasezero.analysis.spectra import FORMS, Form
from phasezero.errors import UserError
from phasezero.results.jsonfile import (
    load_schema,
    read_json,
    refuse_misfits,
    refuse_other_lengths,
    write_json,
)
from phasezero.results.record import RunFacts, with_younger_settings
from phasezero.results.tables import labelled_groups

FORMAT = "phasezero-analysis-1"

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")


class Information(TypedDict):
    mean: float
    by_class: list[float]
    floor: float
    floored: list[int]
    unavoidable: list[int]


class OverlapRecord(TypedDict):
    scatter_ratio: float | None
    nearest_mean_error: float
    seen_as_future: float | None
    future_as_seen: float | None


class Measurement(TypedDict):
    alpha_mean: list[float]
    alpha: list[list[float]]
    variance: list[float]
    spectrum_mean: list[float]
    information: Information
    overlap: OverlapRecord


class SplitAnalysis(TypedDict):
    images: list[int]
    constant_features: NotRequired[int]
    raw: Measurement
    unit: Measurement


class Points(TypedDict):
    train: list[list[list[float]]]
    test: list[list[list[float]]]


class Analysis(RunFacts):
    format: str
    phase: int
    phase_sizes: list[int]
    seen_classes: int
    accuracy: float
    classes: list[str]
    class_names: list[str]
    feature_size: int
    k: list[int]
    train: SplitAnalysis
    test: SplitAnalysis
    points: Points | None


def analysis_name(phase: int | str) -> str:
    return f"analysis-phase{phase}.json"


def write_analysis(path: str | Path, analysis: Analysis) -> None:
    write_json(path, analysis, "analysis")


def read_analysis(path: str | Path) -> Analysis:
    value = read_json(Path(path), "analysis")
    if (found := value.get("format", "none")) != FORMAT:
        raise UserError(f"{path}: the format is {found!r}, this phasezero reads {FORMAT!r}")
    refuse_misfits(Path(path), value, schema())
    analysis = cast(Analysis, {**value, "config": with_younger_settings(value["config"])})
    refuse_other_lengths(Path(path), _lists(analysis))
    return analysis


def _lists(analysis: Analysis) -> Iterator[tuple[str, Sized, int]]:
    classes, ks, points = len(analysis["classes"]), len(analysis["k"]), analysis["points"]
    yield "phase_sizes", analysis["phase_sizes"], analysis["phase"] + 1
    yield "class_names", analysis["class_names"], classes
    for split in SPLITS:
        yield f"{split}.images", analysis[split]["images"], classes
        for form in FORMS:
            where, found = f"{split}.{form}", measured(analysis, split, form)
            information = found["information"]
            yield f"{where}.alpha_mean", found["alpha_mean"], ks
            yield f"{where}.alpha", found["alpha"], classes
            for place, row in enumerate(found["alpha"]):
                yield f"{where}.alpha[{place}]", row, ks
            yield f"{where}.variance", found["variance"], classes
            yield f"{where}.information.by_class", information["by_class"], classes
            yield f"{where}.information.floored", information["floored"], classes
            yield f"{where}.information.unavoidable", information["unavoidable"], classes
        if points is not None:
            yield f"points.{split}", points[split], classes
            for place, cloud in enumerate(points[split]):
                yield from ((f"points.{split}[{place}]", point, 3) for point in cloud)


def find_analyses(paths: Iterable[str | Path]) -> list[Path]:
    """Files: each path is one itself, or a folder searched for analyses at any depth."""
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        inside = sorted(path.rglob(analysis_name("*"))) if path.is_dir() else [path]
        if not inside:
            raise UserError(f"{path}: no {analysis_name('N')} in this folder or below it")
        found.update(dict.fromkeys(one.resolve() for one in inside))
    return list(found)


@cache
def schema() -> dict[str, Any]:
    """analysis.schema.json, parsed."""
    return load_schema("phasezero.analysis", "analysis.schema.json")


def measured(analysis: Analysis, split: Split, form: Form) -> Measurement:
    return analysis[split][form]


def floors(analyses: Iterable[Analysis], split: Split, form: Form) -> list[float]:
    """Of their information proxies, which can be compared only where there is one."""
    return sorted({measured(one, split, form)["information"]["floor"] for one in analyses})


def cwd_weight(analysis: Analysis) -> float:
    """CwD's coefficient eta; 0 where the term was not used."""
    return float(sum(term["weight"] for term in analysis["config"]["initial"] if term["name"] == "cwd"))


@dataclass(frozen=True)
class AnalysisGroup:
    """Analyses of the same phase of runs that differ only in their seed."""

    label: str
    analyses: tuple[Analysis, ...]

    @property
    def first(self) -> Analysis:
        return self.analyses[0]

    def by_seed(self) -> dict[int, Analysis]:
        return {analysis["seed"]: analysis for analysis in self.analyses}

    def of_seeds(self, seeds: Collection[int]) -> AnalysisGroup:
        return replace(self, analyses=tuple(one for one in self.analyses if one["seed"] in seeds))


def group_analyses(analyses: Iterable[Analysis]) -> list[AnalysisGroup]:
    """Group the analyses that differ only in seed; fewer classes come first, then smaller eta."""
    ranked = sorted(analyses, key=lambda one: (one["phase_sizes"], cwd_weight(one)))
    groups = labelled_groups(ranked, _identity)
    for label, members in groups:
        seeds = [one["seed"] for one in members]
        if len(set(seeds)) != len(seeds):
            raise UserError(f"{label}: a seed is there twice; the same run twice is not a second sample")
    return [
        AnalysisGroup(label, tuple(sorted(members, key=lambda one: one["seed"]))) for label, members in groups
    ]


def _identity(analysis: Analysis) -> dict[str, Any]:
    # The engine is left out: a model may be trained here and there. The analysis itself is always in float32.
    config = {key: value for key, value in analysis["config"].items() if key not in ("seed", "engine")}
    return {
        "name": analysis["name"],
        "phase": analysis["phase"],
        "initial": " ".join(analysis["initial"]),  # with the weights, which need not be spelt out again
        "config": {**config, "initial": term_forms(analysis)},
        "classes": analysis["data"]["class_hash"][:8],
    }


def term_forms(analysis: Analysis) -> list[dict[str, Any]]:
    """The phase-0 terms without their weights."""
    terms = analysis["config"]["initial"]
    return [{key: value for key, value in term.items() if key != "weight"} for term in terms]


def shared_classes(analyses: Sequence[Analysis], *, later: bool = False) -> list[str]:
    """Classes (by their ids) that every one of these models has seen, in the first one's order.

    `later`: only those that came after phase 0 in every model that had more than one phase.
    """
    seen = [one["classes"][: one["seen_classes"]] for one in analyses]
    if later:
        seen += [later_classes(one) for one in analyses if len(one["phase_sizes"]) > 1] or [[]]
    others = [set(classes) for classes in seen]
    return [name for name in seen[0] if all(name in classes for classes in others)] if seen else []


def later_classes(analysis: Analysis) -> list[str]:
    """Classes that came after phase 0, of those seen."""
    return analysis["classes"][analysis["phase_sizes"][0] : analysis["seen_classes"]]
