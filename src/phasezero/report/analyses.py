"""Tables and captions of analyses and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from phasezero.analysis.compare import Finding, mean_of, usual_k
from phasezero.analysis.spectra import CONSTANT
from phasezero.identity import Group, group_analyses
from phasezero.records.analysis import Analysis, Form, Split, floors
from phasezero.report.grid import NOTHING, Cell, Grid, Spread
from phasezero.report.tables import spread

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
    """Return a row for each group of seeds: alpha_k and the proxy (means over these classes, else those seen), overlap.

    Without `ks`, alpha_k of those usually shown that were measured.
    """
    groups = group_analyses(analyses)
    rows = [_row(group, usual_k(groups) if ks is None else ks, split, form, classes) for group in groups]
    return list(rows[0]), [list(row.values()) for row in rows]


def _row(
    group: Group[Analysis], ks: Sequence[int], split: Split, form: Form, classes: Sequence[str] | None
) -> dict[str, Cell]:
    first, found = group.first, [one[split][form] for one in group.members]
    chosen = first["classes"][: first["seen_classes"]] if classes is None else classes
    places = [first["classes"].index(name) for name in chosen]
    floored = [sum(one["information"]["floored"][place] for place in places) / len(places) for one in found]

    def mean(k: int | None, digits: int) -> Cell:
        return spread([mean_of(one, split, form, chosen, k) for one in group.members], digits)

    one_floor = len(floors(group.members, split, form)) == 1
    raised = Spread(sum(floored) / len(floored), note=f"of {first['feature_size']}", digits=1)
    return {
        "model": group.label,
        "n": str(len(found)),
        "phase": str(first["phase"]),
        "classes": str(first["seen_classes"]),
        "accuracy": spread([one["accuracy"] for one in group.members]),
        **{f"alpha_{k}": mean(k, 3) for k in ks},
        "information": mean(None, 1) if one_floor else NOTHING,
        "floored": raised if one_floor else NOTHING,
        "constant": _known([one[split].get("constant_features") for one in group.members], 1),  # older: does not say
        "scatter W/B": _known([one["overlap"]["scatter_ratio"] for one in found], 3),
        "nearest-mean error": spread([one["overlap"]["nearest_mean_error"] for one in found]),
    }


def _known(values: Sequence[float | None], digits: int) -> Cell:
    known = [float(value) for value in values if value is not None]
    return spread(known, digits) if len(known) == len(values) else NOTHING


def chosen_columns(cells: Cells, wanted: Sequence[str]) -> Cells:
    """Return those of a table's columns that have these headings."""
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
    """Say what these columns show: over which classes (`later`: those after phase 0), and above which floor."""
    parts = [f"{form} features of the {split} images; ± sample deviation over n seeds."]
    averaged = ["alpha_k"] * any(name.startswith("alpha_") for name in columns)
    averaged += ["information"] * ("information" in columns)
    if averaged:
        over = f"{len(classes)} classes{' after phase 0' * later} that the models are compared on" if classes else ""
        parts.append(f"{' and '.join(averaged)}: means over the {over or 'classes seen'}.")
    if classes and "nearest-mean error" in columns:
        parts.append("Accuracy, scatter and nearest-mean error: over all classes seen.")
    if "constant" in columns:
        parts.append(f"Constant: features with less than {CONSTANT:g} of the mean variance within classes.")
    if "information" in columns:
        found = floors(analyses, split, form)
        floor = " or ".join(f"{floor:g}" for floor in found)
        parts.append(f"For information, eigenvalues below {floor} are raised to it (floored: so many a class).")
        parts += ["Information with different floors cannot be compared."] * (len(found) > 1)
    return " ".join(parts)


def figure_caption(analyses: Sequence[Analysis], classes: Sequence[str] | None = None, *, later: bool = False) -> str:
    """Say which models a figure shows, and over which classes (without any: over all that each has seen)."""
    models = f"Models after phase {', '.join(map(str, sorted({one['phase'] for one in analyses})))}."
    if classes is None:
        return f"{models} Over all classes that each has seen."
    names = dict(zip(analyses[0]["classes"], analyses[0]["class_names"], strict=True))
    which = f"{'that came after phase 0 and ' * later}that all of them have seen"
    return f"{models} Means over the {len(classes)} classes {which}: {_first_few([names[one] for one in classes])}."


def findings_grid(findings: Sequence[Finding], left_out: Iterable[str] = ()) -> Grid:
    """Return a row for each statement and k: how often it holds, by how much, and where not. Words are not repeated.

    `left_out` says what could not be compared, and why.
    """
    header = ["statement", "models", "k", "means", "difference", "holds", "exceptions"]
    rows: list[list[Cell]] = []
    before: tuple[str, ...] = ()
    for one in findings:
        words = one.claim, " -> ".join(one.models)
        digits, digits_of_difference = (1, 1) if one.k is None else (3, 4)
        counts = Counter((case.class_id, case.class_name) for case in one.exceptions).most_common()
        rows.append(
            [
                *(words if words != before else ("", "")),
                NOTHING if one.k is None else str(one.k),
                " -> ".join(f"{mean:.{digits}f}" for mean in one.means),
                str(Spread(one.difference, one.deviation, sign=True, digits=digits_of_difference)),
                f"{one.holds} of {one.cases}",
                # The classes, and how many seeds each; all of them are in the file.
                _first_few([f"{name} ({times})" if times > 1 else name for (_, name), times in counts]) or "none",
            ]
        )
        before = words
    which = ", of those after phase 0" * any(one.later for one in findings)
    parts = [f"Over all classes that the models share{which}, times seeds; each class and seed is a case."]
    if any(one.k is not None for one in findings):
        parts.append("Of alpha_k the statement says that the difference is below zero.")
    if any(one.k is None for one in findings):
        parts.append("Of the information proxy (without a k) it says above zero.")
    if other := dict.fromkeys(key for one in findings for key in one.also_differ_in):
        parts.append(f"Some of these models also differ in {', '.join(other)}.")
    parts += [f"Left out: {why}." for why in left_out]
    return Grid(header, rows, " ".join(parts), words=len(header))


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *[f"and {more} more"] * (more > 0)])
