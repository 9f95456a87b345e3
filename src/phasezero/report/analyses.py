"""Tables and captions of analyses and findings, and the output of `phasezero analyze`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from phasezero.analysis.compare import Finding, compare, mean_of, usual_k, write_findings
from phasezero.analysis.spectra import CONSTANT
from phasezero.errors import UserError
from phasezero.identity import Group, cwd_weight, group_analyses, short_names
from phasezero.records.analysis import Analysis, Form, Split, floors, shared_classes
from phasezero.report.grid import NOTHING, Cell, Grid, Spread, print_grid
from phasezero.report.spectra import draw_alpha, draw_information, draw_overlap
from phasezero.report.style import write_every_format
from phasezero.report.tables import spread
from phasezero.steps import working

_MOST_NAMES = 4


def analysis_grid(
    analyses: Sequence[Analysis],
    *,
    split: Split = "train",
    form: Form = "raw",
    ks: Sequence[int] | None = None,
    classes: Sequence[str] | None = None,
    later: bool = False,
    columns: Sequence[str] | None = None,
) -> Grid:
    """Return a row for each group of seeds, with all columns or with these.

    The default of `ks` is the usual k that were measured. alpha_k and information are means over `classes` (`later`:
    all of them came after phase 0), by default over those that a model has seen.
    """
    groups = group_analyses(analyses)
    rows = [_row(group, usual_k(groups) if ks is None else ks, split, form, classes) for group in groups]
    header = [name for name in rows[0] if columns is None or name in columns]
    parts = [f"{form} features of the {split} images; ± sample deviation over n seeds."]
    averaged = ["alpha_k"] * any(name.startswith("alpha_") for name in header)
    averaged += ["information"] * ("information" in header)
    if averaged:
        over = f"{len(classes)} classes{' after phase 0' * later} that the models are compared on" if classes else ""
        parts.append(f"{' and '.join(averaged)}: means over the {over or 'classes seen'}.")
    if classes and "nearest-mean error" in header:
        parts.append("Accuracy, scatter and nearest-mean error: over all classes seen.")
    if "constant" in header:
        parts.append(f"Constant: features with less than {CONSTANT:g} of the mean variance within classes.")
    if "information" in header:
        used = floors(analyses, split, form)
        floor = " or ".join(f"{floor:g}" for floor in used)
        parts.append(f"For information, eigenvalues below {floor} are raised to it (floored: so many a class).")
        parts += ["Information with different floors cannot be compared."] * (len(used) > 1)
    return Grid(header, [[row[name] for name in header] for row in rows], " ".join(parts))


def _row(
    group: Group[Analysis], ks: Sequence[int], split: Split, form: Form, classes: Sequence[str] | None
) -> dict[str, Cell]:
    first, measured = group.first, [analysis[split][form] for analysis in group.members]
    chosen = first["classes"][: first["seen_classes"]] if classes is None else classes
    places = [first["classes"].index(class_id) for class_id in chosen]
    floored = fmean(measurement["information"]["floored"][place] for measurement in measured for place in places)
    same_floor = len(floors(group.members, split, form)) == 1

    def mean(k: int | None, digits: int) -> Cell:
        return spread([mean_of(analysis, split, form, chosen, k) for analysis in group.members], digits)

    def known(values: Sequence[float | None], digits: int) -> Cell:
        kept = [value for value in values if value is not None]
        return spread(kept, digits) if len(kept) == len(values) else NOTHING

    return {
        "model": group.label,
        "n": str(len(measured)),
        "phase": str(first["phase"]),
        "classes": str(first["seen_classes"]),
        "accuracy": spread([analysis["accuracy"] for analysis in group.members]),
        **{f"alpha_{k}": mean(k, 3) for k in ks},
        "information": mean(None, 1) if same_floor else NOTHING,
        "floored": Spread(floored, note=f"of {first['feature_size']}", digits=1) if same_floor else NOTHING,
        "constant": known([analysis[split].get("constant_features") for analysis in group.members], 1),  # not in old
        "scatter W/B": known([measurement["overlap"]["scatter_ratio"] for measurement in measured], 3),
        "nearest-mean error": spread([measurement["overlap"]["nearest_mean_error"] for measurement in measured]),
    }


def figure_caption(analyses: Sequence[Analysis], classes: Sequence[str] | None = None, *, later: bool = False) -> str:
    """Return which models a figure shows, and over which classes (by default all that each model has seen)."""
    models = f"Models after phase {', '.join(map(str, sorted({analysis['phase'] for analysis in analyses})))}."
    if classes is None:
        return f"{models} Over all classes that each has seen."
    names = dict(zip(analyses[0]["classes"], analyses[0]["class_names"], strict=True))
    which = f"{'that came after phase 0 and ' * later}that all of them have seen"
    return f"{models} Means over the {len(classes)} classes {which}: {_first_few([names[key] for key in classes])}."


def findings_grid(
    findings: Sequence[Finding], left_out: Iterable[str] = (), names: Mapping[str, str] | None = None
) -> Grid:
    """Return a row for each statement and k: how often it holds, by how much, and the exceptions.

    `left_out` has the reasons why models could not be compared. `names` are other names of models.
    """
    header = ["statement", "models", "k", "means", "difference", "holds", "exceptions"]
    rows: list[list[Cell]] = []
    before: tuple[str, ...] = ()
    for finding in findings:
        words = finding.claim, " -> ".join((names or {}).get(model, model) for model in finding.models)
        digits, digits_of_difference = (1, 1) if finding.k is None else (3, 4)
        counts = Counter((case.class_id, case.class_name) for case in finding.exceptions).most_common()
        rows.append(
            [
                *(words if words != before else ("", "")),
                NOTHING if finding.k is None else str(finding.k),
                " -> ".join(f"{mean:.{digits}f}" for mean in finding.means),
                str(Spread(finding.difference, finding.deviation, sign=True, digits=digits_of_difference)),
                f"{finding.holds} of {finding.cases}",
                # The classes, and how many seeds each; all of them are in the file.
                _first_few([f"{name} ({times})" if times > 1 else name for (_, name), times in counts]) or "none",
            ]
        )
        before = words
    which = ", of those after phase 0" * any(finding.later for finding in findings)
    parts = [f"Over all classes that the models share{which}, times seeds; each class and seed is a case."]
    if any(finding.k is not None for finding in findings):
        parts.append("Of alpha_k the statement says that the difference is below zero.")
    if any(finding.k is None for finding in findings):
        parts.append("Of the information proxy (without a k) it says above zero.")
    if other := dict.fromkeys(key for finding in findings for key in finding.also_differ_in):
        parts.append(f"Some of these models also differ in {', '.join(other)}.")
    parts += [f"Left out: {why}." for why in left_out]
    return Grid(header, rows, " ".join(parts), words=2, remarks=True, spare=[len(header) - 1])


def _first_few(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *[f"and {more} more"] * (more > 0)])


def show_analyses(
    analyses: Sequence[Analysis],
    folder: Path,
    *,
    split: Split,
    form: Form,
    later: bool,
    phases: Sequence[int],
    ks: Sequence[int] | None,
    warn: Callable[[str], None],
) -> None:
    """Print tables, then write every view that these analyses allow; warn of what cannot be shown.

    File names contain every choice that is not the default (and `phases`), so that views do not replace each other.
    """
    suffix = "".join(f"-phase{phase}" for phase in phases) + "-later" * later
    suffix += f"-{split}" * (split != "train") + f"-{form}" * (form != "raw")
    classes = shared_classes(analyses, later=later)

    def wrote(*paths: Path) -> None:
        for path in paths:
            Console(soft_wrap=True).print(f"wrote {path}", markup=False, highlight=False)

    def draw(name: str, make: Callable[..., list[Path]], **options: Any) -> None:
        make = partial(make, analyses, split=split, form=form, **options)
        with working(f"drawing {name}"):
            written = write_every_format(folder / f"{name}{suffix}", make)
        wrote(*written)

    grid = analysis_grid(analyses, split=split, form=form, ks=ks, classes=classes or None, later=later)
    labels = [group.label for group in group_analyses(analyses)]
    short, common = short_names(labels)
    names = dict(zip(labels, short, strict=True))
    caption = grid.caption + f" Names are short for METHOD/{common}." * bool(common)
    rows = [[names.get(str(row[0]), row[0]), *row[1:]] for row in grid.rows]
    print_grid(replace(grid, rows=rows, caption=caption), "terminal", Console())
    left_out: list[str] = []
    if findings := compare(analyses, ks=ks, split=split, form=form, later=later, left_out=left_out):
        print_grid(findings_grid(findings, names=names), "terminal", Console())
    for why in left_out:
        warn(f"{why}; left out")
    if later and not classes:
        warn("--later: these models have no class in common that came after phase 0, so nothing is drawn")
    if findings:
        write_findings(path := folder / f"comparison{suffix}.json", findings, split=split, form=form)
        wrote(path)
    several_etas = len(set(map(cwd_weight, analyses))) > 1
    if classes:
        caption = figure_caption(analyses, classes, later=later)
        draw("alpha", draw_alpha, classes=classes, caption=caption)
        try:
            if several_etas:
                draw("information", draw_information, classes=classes, caption=caption)
        except UserError as error:  # different floors
            warn(f"{error}; left out")
    if several_etas and later:
        warn("--later: overlap is measured among all classes seen, so it is not drawn")
    elif several_etas:
        draw("overlap", draw_overlap, caption=figure_caption(analyses))
