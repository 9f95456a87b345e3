"""The analysis of a model: a JSON file for a run and a phase. Figures and comparisons are views of it.

Shares (alpha_k) are rounded to six decimals, other numbers to six significant digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, cast

from phasezero.errors import UserError
from phasezero.records.consistency import analysis_contradictions, check_consistent
from phasezero.records.files import find_files
from phasezero.records.jsonfile import Lists, check_content, read_json, write_json
from phasezero.records.run import RunFacts

FORMAT = "phasezero-analysis-1"

Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = ("train", "test")
Form = Literal["raw", "unit"]
FORMS: tuple[Form, ...] = ("raw", "unit")
"""Features as they are, or each of unit length."""


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


class Analysis(RunFacts):
    format: str
    phasezero: str
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
    points: dict[Split, list[list[list[float]]]] | None
    """Points on the unit sphere, by split and class, if features have three dimensions."""


def analysis_name(phase: int | str) -> str:
    """Return the file name of the analysis of the model after a phase."""
    return f"analysis-phase{phase}.json"


def write_analysis(path: str | Path, analysis: Analysis) -> None:
    """Write an analysis atomically."""
    write_json(path, analysis, "analysis")


def read_analysis(path: str | Path) -> Analysis:
    """Read an analysis."""
    return parse_analysis(Path(path), read_json(Path(path), "analysis"))


def parse_analysis(path: Path, value: dict[str, Any]) -> Analysis:
    """Check an analysis that was read from a file."""
    if (found := value.get("format", "none")) != FORMAT:
        raise UserError(f"{path}: the format is {found!r}, this phasezero reads {FORMAT!r}")
    check_content(path, value, "analysis", _lists)
    check_consistent(path, analysis_contradictions(value))
    return cast(Analysis, value)


def _lists(analysis: dict[str, Any]) -> Lists:
    classes, ks, points = len(analysis["classes"]), len(analysis["k"]), analysis["points"]
    yield "phase_sizes", analysis["phase_sizes"], analysis["phase"] + 1
    yield "class_names", analysis["class_names"], classes
    for split in SPLITS:
        yield f"{split}.images", analysis[split]["images"], classes
        for form in FORMS:
            where, measured = f"{split}.{form}", analysis[split][form]
            yield from ((f"{where}.{name}", measured[name], classes) for name in ("alpha", "variance"))
            for name in ("by_class", "floored", "unavoidable"):
                yield f"{where}.information.{name}", measured["information"][name], classes
            yield f"{where}.alpha_mean", measured["alpha_mean"], ks
            yield from ((f"{where}.alpha[{place}]", row, ks) for place, row in enumerate(measured["alpha"]))
        if points is not None:
            yield f"points.{split}", points[split], classes
            for place, cloud in enumerate(points[split]):
                yield from ((f"points.{split}[{place}]", point, 3) for point in cloud)


def find_analyses(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files of analyses: each path is a file, or a folder that is searched at any depth."""
    return find_files(paths, analysis_name("*"))


def floors(analyses: Iterable[Analysis], split: Split, form: Form) -> list[float]:
    """Return the floors of the information proxies, which can be compared only if all floors are equal."""
    return sorted({analysis[split][form]["information"]["floor"] for analysis in analyses})


def shared_classes(analyses: Sequence[Analysis], *, later: bool = False) -> list[str]:
    """Return the ids of the classes that all of these models have seen, in the order of the first model.

    `later` leaves only classes that came after phase 0 in every model of more than one phase.
    """
    lists = [model["classes"][: model["seen_classes"]] for model in analyses]
    if later:
        several = [model for model in analyses if len(model["phase_sizes"]) > 1]
        lists += [model["classes"][model["phase_sizes"][0] : model["seen_classes"]] for model in several] or [[]]
    shared = set.intersection(*map(set, lists)) if lists else set()
    return [class_id for class_id in lists[0] if class_id in shared] if lists else []
