"""Analyses and findings as tables for a terminal or for Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from phasezero.analysis.compare import TABLE_K, Finding, values_of
from phasezero.analysis.record import Analysis, AnalysisGroup, Split, floors, group_analyses, measured
from phasezero.analysis.spectra import CONSTANT, Form
from phasezero.results.grid import NOTHING, Cell, Grid, Spread
from phasezero.results.metrics import mean_and_deviation

Cells = tuple[list[str], list[list[Cell]]]
"""A header and rows."""

_MOST_NAMES = 4


def analysis_cells(
    analyses: Iterable[Analysis],
    *,
    split: Split = "train",
    form: Form = "raw",
    ks: Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
) -> Cells:
    """One row a group of seeds: alpha_k and the proxy (means over these classes, else those seen), the overlap.

    Without `ks`, alpha_k of those usually shown that were measured.
    """
    groups = group_analyses(analyses)
    usual = [k for k in TABLE_K if all(k in one["k"] for group in groups for one in group.analyses)]
    shown = usual if ks is None else ks
    header = ["model", "n", "phase", "classes", "accuracy", *(f"alpha_{k}" for k in shown)]
    header += ["information", "floored", "constant", "scatter W/B", "nearest-mean error"]
    return header, [_row(group, shown, split, form, classes) for group in groups]


def _row(
    group: AnalysisGroup, ks: Sequence[int], split: Split, form: Form, classes: Sequence[str] | None
) -> list[Cell]:
    found = [measured(one, split, form) for one in group.analyses]
    seen = group.first["seen_classes"]
    chosen = group.first["classes"][:seen] if classes is None else classes
    places = [group.first["classes"].index(name) for name in chosen]

    def spread_of(k: int | None, digits: int) -> Spread:
        values = [values_of(one, split, form, chosen, k) for one in group.analyses]
        return _spread([math.fsum(some) / len(some) for some in values], digits)

    floored = [sum(m["information"]["floored"][place] for place in places) / len(places) for m in found]
    constant = [one[split].get("constant_features") for one in group.analyses]
    known = [float(number) for number in constant if number is not None]  # older analyses do not say
    one_floor = len(floors(group.analyses, split, form)) == 1
    ratios = [ratio for m in found if (ratio := m["overlap"]["scatter_ratio"]) is not None]
    return [
        group.label,
        str(len(found)),
        str(group.first["phase"]),
        str(seen),
        _spread([one["accuracy"] for one in group.analyses], 2),
        *(spread_of(k, 3) for k in ks),
        spread_of(None, 1) if one_floor else NOTHING,
        Spread(sum(floored) / len(floored), note=f"of {group.first['feature_size']}", digits=1)
        if one_floor
        else NOTHING,
        _spread(known, 1) if len(known) == len(constant) else NOTHING,
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
    later: bool = False,
    columns: Sequence[str] = ("alpha_k", "information", "constant"),
) -> str:
    """`classes`: those averaged over; `later`: of those after phase 0; `columns`: of no others is spoken."""
    parts = [f"{form} features of the {split} images; ± sample deviation over n seeds."]
    averaged = ["alpha_k"] * any(name.startswith("alpha_") for name in columns)
    averaged += ["information"] * ("information" in columns)
    if averaged:
        over = (
            f"{len(classes)} classes{' after phase 0' * later} that the models are compared on"
            if classes
            else ""
        )
        parts.append(f"{' and '.join(averaged)}: means over the {over or 'classes seen'}.")
    if classes and "nearest-mean error" in columns:
        parts.append("Accuracy, scatter and nearest-mean error: over all classes seen.")
    if "constant" in columns:
        parts.append(f"Constant: features with less than {CONSTANT:g} of the mean variance within classes.")
    if "information" in columns:
        found = floors(analyses, split, form)
        floor = " or ".join(f"{floor:g}" for floor in found)
        parts.append(
            f"For information, eigenvalues below {floor} are raised to it (floored: so many a class)."
        )
        if len(found) > 1:
            parts.append("Information with different floors cannot be compared.")
    return " ".join(parts)


def figure_caption(
    analyses: Sequence[Analysis], classes: Sequence[str] | None = None, *, later: bool = False
) -> str:
    """Which models a figure shows, and over which classes (without any: over all that each has seen)."""
    phases = ", ".join(map(str, sorted({one["phase"] for one in analyses})))
    if classes is None:
        return f"Models after phase {phases}. Over all classes that each has seen."
    names = dict(zip(analyses[0]["classes"], analyses[0]["class_names"], strict=True))
    which = f"{'that came after phase 0 and ' * later}that all of them have seen"
    told = _first_few([names[one] for one in classes])
    return f"Models after phase {phases}. Means over the {len(classes)} classes {which}: {told}."


def finding_cells(findings: Iterable[Finding]) -> Cells:
    """One row a statement and k: how often it holds, by how much, and where not. Words are not repeated."""
    header = ["statement", "models", "k", "means", "difference", "holds", "exceptions"]
    findings = list(findings)
    new = [
        index == 0 or (findings[index - 1].claim, findings[index - 1].models) != (one.claim, one.models)
        for index, one in enumerate(findings)
    ]
    rows: list[list[Cell]] = [
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


def finding_caption(findings: Iterable[Finding], left_out: Iterable[str] = ()) -> str:
    """`left_out`: what could not be compared, and why."""
    findings = list(findings)
    which = ", of those after phase 0" if any(finding.later for finding in findings) else ""
    parts = [f"Over all classes that the models share{which}, times seeds; each class and seed is a case."]
    if any(finding.k is not None for finding in findings):
        parts.append("Of alpha_k the statement says that the difference is below zero.")
    if any(finding.k is None for finding in findings):
        parts.append("Of the information proxy (without a k) it says above zero.")
    other = dict.fromkeys(key for finding in findings for key in finding.also_differ_in)
    if other:
        parts.append(f"Some of these models also differ in {', '.join(other)}.")
    parts += [f"Left out: {why}." for why in left_out]
    return " ".join(parts)


def findings_grid(findings: Sequence[Finding], left_out: Iterable[str] = ()) -> Grid:
    header, rows = finding_cells(findings)
    return Grid(header, rows, finding_caption(findings, left_out), words=len(header))


def _difference(finding: Finding) -> str:
    digits = 1 if finding.k is None else 4
    spread = "" if finding.deviation is None else f" ± {finding.deviation:.{digits}f}"
    return f"{finding.difference:+.{digits}f}{spread}"


def _exceptions(finding: Finding) -> str:
    """The classes, and how many seeds each; all of them are in the file."""
    counts = Counter((case.class_id, case.class_name) for case in finding.exceptions).most_common()
    return _first_few([f"{name} ({times})" if times > 1 else name for (_, name), times in counts]) or "none"


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *([f"and {more} more"] if more > 0 else [])])


def _spread(values: Sequence[float], digits: int) -> Spread:
    return Spread(*mean_and_deviation(values)[:2], digits=digits)
