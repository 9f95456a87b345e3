"""Analyses and findings as tables for a terminal or for Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from phasezero.analysis.compare import TABLE_K, Finding, alpha_of
from phasezero.analysis.record import Analysis, AnalysisGroup, Split, group_analyses, measured
from phasezero.analysis.spectra import Form
from phasezero.results.grid import NOTHING, Grid
from phasezero.results.metrics import mean_and_deviation

Cells = tuple[list[str], list[list[str]]]
"""A header and rows."""

_MOST_EXCEPTIONS = 4


def analysis_cells(
    analyses: Iterable[Analysis],
    *,
    split: Split = "train",
    form: Form = "raw",
    ks: Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
) -> Cells:
    """One row a group of seeds: alpha_k (mean over these classes, else those seen), the proxy, the overlap."""
    groups = group_analyses(analyses)
    shown = [k for k in ks or TABLE_K if all(k in one["k"] for group in groups for one in group.analyses)]
    header = ["model", "n", "phase", "classes", "accuracy", *(f"alpha_{k}" for k in shown)]
    header += ["information", "floored", "scatter W/B", "nearest-mean error"]
    return header, [_row(group, shown, split, form, classes) for group in groups]


def _row(
    group: AnalysisGroup, ks: Sequence[int], split: Split, form: Form, classes: Sequence[str] | None
) -> list[str]:
    found = [measured(one, split, form) for one in group.analyses]
    seen = group.first["seen_classes"]
    chosen = group.first["classes"][:seen] if classes is None else classes
    columns = {
        k: [math.fsum(alpha_of(one, split, form, chosen, k)) / len(chosen) for one in group.analyses]
        for k in ks
    }
    floored = [sum(m["information"]["floored"][:seen]) / seen for m in found]
    ratios = [ratio for m in found if (ratio := m["overlap"]["scatter_ratio"]) is not None]
    return [
        group.label,
        str(len(found)),
        str(group.first["phase"]),
        str(seen),
        _spread([one["accuracy"] for one in group.analyses], 2),
        *(_spread(columns[k], 3) for k in ks),
        _spread([m["information"]["mean"] for m in found], 1),
        f"{sum(floored) / len(floored):.1f} of {group.first['feature_size']}",
        _spread(ratios, 3) if ratios else NOTHING,
        _spread([m["overlap"]["nearest_mean_error"] for m in found], 2),
    ]


def chosen_columns(cells: Cells, wanted: Sequence[str]) -> Cells:
    """Those of a table's columns that have these headings."""
    header, rows = cells
    places = [place for place, name in enumerate(header) if name in wanted]
    return [header[place] for place in places], [[row[place] for place in places] for row in rows]


def analysis_caption(
    analyses: Sequence[Analysis],
    split: Split,
    form: Form,
    *,
    classes: Sequence[str] | None = None,
    columns: Sequence[str] = ("alpha_k", "information"),
) -> str:
    """`classes`: those that alpha_k was averaged over; `columns`: those shown, no others are spoken of."""
    parts = [f"{form} features of the {split} images; ± sample deviation over n seeds."]
    if any(name.startswith("alpha_") for name in columns):
        over = "seen" if classes is None else "that the models are compared on"
        count = "" if classes is None else f"{len(classes)} "
        parts.append(f"alpha_k: means over the {count}classes {over}.")
    if "information" in columns:
        floors = sorted({measured(one, split, form)["information"]["floor"] for one in analyses})
        floor = " or ".join(f"{floor:g}" for floor in floors)
        parts.append(f"Information: eigenvalues below {floor} are raised to it (floored: so many a class).")
    return " ".join(parts)


def finding_cells(findings: Iterable[Finding]) -> Cells:
    """One row a statement and k: how often it holds, by how much, and where not. Words are not repeated."""
    header = ["statement", "models", "k", "means", "difference", "holds", "exceptions"]
    findings = list(findings)
    new = [
        index == 0 or (findings[index - 1].claim, findings[index - 1].models) != (one.claim, one.models)
        for index, one in enumerate(findings)
    ]
    rows = [
        [
            finding.claim if is_new else "",
            " -> ".join(finding.models) if is_new else "",
            NOTHING if finding.k is None else str(finding.k),
            " -> ".join(f"{mean:.{1 if finding.k is None else 3}f}" for mean in finding.means),
            _difference(finding),
            f"{finding.holds} of {finding.cases}",
            _exceptions(finding),
        ]
        for finding, is_new in zip(findings, new, strict=True)
    ]
    return header, rows


def finding_caption(findings: Iterable[Finding]) -> str:
    findings = list(findings)
    parts = ["Over all classes that the models share, times seeds; each class and seed is a case."]
    if any(finding.k is not None for finding in findings):
        parts.append("Of alpha_k the statement says that the difference is below zero.")
    if any(finding.k is None for finding in findings):
        parts.append("Of the information proxy (without a k) it says above zero.")
    other = dict.fromkeys(key for finding in findings for key in finding.also_differ_in)
    if other:
        parts.append(f"Some of these models also differ in {', '.join(other)}.")
    return " ".join(parts)


def findings_grid(findings: Sequence[Finding]) -> Grid:
    header, rows = finding_cells(findings)
    return Grid(header, rows, finding_caption(findings), words=len(header))


def _difference(finding: Finding) -> str:
    digits = 1 if finding.k is None else 4
    spread = "" if finding.deviation is None else f" ± {finding.deviation:.{digits}f}"
    return f"{finding.difference:+.{digits}f}{spread}"


def _exceptions(finding: Finding) -> str:
    """The classes, and how many seeds each; all of them are in the file."""
    counts = Counter(case.class_name for case in finding.exceptions).most_common()
    shown = [f"{name} ({times})" if times > 1 else name for name, times in counts[:_MOST_EXCEPTIONS]]
    more = len(counts) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])]) or "none"


def _spread(values: Sequence[float], digits: int) -> str:
    mean, deviation, _ = mean_and_deviation(values)
    return f"{mean:.{digits}f}" if deviation is None else f"{mean:.{digits}f} ± {deviation:.{digits}f}"
