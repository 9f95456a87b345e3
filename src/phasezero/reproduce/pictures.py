"""The figures of targets: from records, or from analyses of the models that runs left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from phasezero.analysis.compare import CLAIMS, TABLE_K, compare, write_findings
from phasezero.analysis.figures import (
    draw_alpha_by_class,
    draw_alpha_panels,
    draw_information,
)
from phasezero.analysis.information import FLOOR
from phasezero.analysis.measure import analyse_run
from phasezero.analysis.record import (
    Analysis,
    analysis_name,
    floors,
    read_analysis,
    shared_classes,
    write_analysis,
)
from phasezero.analysis.spectra import Form
from phasezero.analysis.sphere import draw_sphere
from phasezero.analysis.tables import (
    analysis_caption,
    analysis_cells,
    chosen_columns,
    findings_grid,
)
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.reproduce.beginnings import told_alone, told_as
from phasezero.reproduce.plan import Line, first_classes
from phasezero.reproduce.views import (
    Drawn,
    Shown,
    averages,
    cells_grid,
    curves_grid,
    group,
    methods_grid,
)
from phasezero.results.figures import draw_groups, draw_sweep
from phasezero.results.grid import Grid
from phasezero.results.record import Record
from phasezero.results.style import SUFFIXES, write_every_format
from phasezero.session import CHECKPOINT, run_folder, slug

SHARED = 10
"""Classes that all models of the paper's spectra share; it shows the first, the appendix the others."""

SPHERES = ("sphere", "sphere of all")
MODEL_VIEWS = ("spectra", "classes", "later", "information", *SPHERES)


@dataclass(frozen=True)
class Folders:
    """Where runs and data are."""

    out: Path
    root: Path | None = None
    store: Path | None = None


def can_be_shown(view: str, path: Path, record: Record, *, states: bool = True) -> bool:
    """Whether what a view wants of a run is still beside its record: for a model its state, or its analysis.

    Without `states` nothing is to be computed: a state alone is not enough.
    """
    if view not in MODEL_VIEWS or (states and (path.parent / CHECKPOINT).exists()):
        return True
    return is_analysed(view, path, _phase_shown(view, record))


def is_analysed(view: str, path: Path, phase: int) -> bool:
    """Whether a phase's analysis as a view wants it is beside a record."""
    return _kept(view, path.parent / analysis_name(phase)) is not None


def _kept(view: str, path: Path) -> Analysis | None:
    """The analysis in a file, if it is there, can be read and has what a view shows."""
    try:
        found = read_analysis(path) if path.exists() else None
    except UserError:  # damaged, or of another version
        return None
    return found if found and _has_what_is_shown(view, found) else None


def _has_what_is_shown(view: str, analysis: Analysis) -> bool:
    if view in SPHERES:
        return analysis["points"] is not None and len(analysis["classes"]) == analysis["data"]["classes"]
    # Information with another floor cannot be compared; nothing else depends on it.
    return view != "information" or floors([analysis], "train", "unit") == [FLOOR]


def damaged_analyses(records: Iterable[tuple[Path, Record]]) -> Iterator[str]:
    """Why analyses beside these records count as not there."""
    for analysis in sorted(one for path, _ in records for one in path.parent.glob(analysis_name("*"))):
        try:
            read_analysis(analysis)
        except UserError as error:
            yield str(error)


def _phase_shown(view: str, record: Record) -> int:
    """Spheres are of phase 0 (the oracle's is its only one), the rest of the end."""
    return 0 if view in SPHERES else len(record["phases"]) - 1


def analyse(view: str, lines: Sequence[Line], place: Folders) -> list[Analysis]:
    """The models that a view shows, by the names of their lines; for a sphere with the classes to come.

    An analysis that is there already is read; others are made and written beside the run in `place.out`, also where
    one is there that is damaged or lacks what the view shows.
    """
    found, future = [], view in SPHERES
    for line in lines:
        for seed, (path, record) in sorted(line.records.items()):
            phase = _phase_shown(view, record)
            own = run_folder(place.out, line.seeded(seed)) / analysis_name(phase)
            kept = _kept(view, path.parent / own.name) or _kept(view, own)
            if kept is None:
                made = analyse_run(
                    path.parent, phase=phase, root=place.root, store=place.store, future=future
                )
                own.parent.mkdir(parents=True, exist_ok=True)
                write_analysis(own, made)
                kept = read_analysis(own)
            alone = len(line.config.protocol.phase_sizes) == 1 and not future  # perhaps from a longer run
            tell = told_alone if alone else told_as
            found.append(tell(kept, line.seeded(seed), line.config.name))
    return found


def draw(shown: Shown, place: Folders, base: Path, suffixes: Sequence[str] = SUFFIXES) -> Drawn:
    """The tables of a target, and its figure's files, all of `base` with further letters."""
    view, lines = shown.target.view, [line for line in shown.lines if line.records]
    if view in MODEL_VIEWS:
        analyses = analyse(view, lines, place)
        return _draw_models(shown, analyses, base, suffixes) if analyses else Drawn(cells_grid(shown))
    if view == "curves":
        return Drawn(curves_grid(shown), files=_curves(shown, lines, base, suffixes) if lines else ())
    if view == "sweep":
        return Drawn(cells_grid(shown), files=_sweep(shown, lines, base, suffixes) if lines else ())
    return Drawn(methods_grid(shown) if view == "methods" else cells_grid(shown))


def _draw_models(shown: Shown, analyses: Sequence[Analysis], base: Path, suffixes: Sequence[str]) -> Drawn:
    """The models' numbers, what of the paper's statements they agree with, and the figure."""
    view, information = shown.target.view, shown.target.view == "information"
    form: Form = "unit" if information or view in SPHERES else "raw"
    later = view == "later"
    classes = shared_classes(analyses, later=later) or None
    caption = f"{shown.caption} {_drawn_classes(view, analyses)}".strip()
    columns = _COLUMNS[information]
    about = analysis_caption(analyses, "train", form, classes=classes, later=later, columns=columns)
    cells = chosen_columns(analysis_cells(analyses, form=form, classes=classes), columns)
    further, files = [], []
    if view not in SPHERES:
        claims = [claim for claim in CLAIMS if (claim == "more information") == information]
        if not any(_is_oracle(shown, one) for one in analyses):
            claims = [claim for claim in claims if claim != "nearer to the oracle"]
        left_out: list[str] = []
        findings = compare(analyses, form=form, later=later, claims=claims, left_out=left_out)
        if findings:
            further.append(findings_grid(findings, left_out))
            files.append(base.with_name(f"{base.name}-findings.json"))
            write_findings(files[0], findings, split="train", form=form)
    drawing = {
        "spectra": _spectra,
        "classes": _classes,
        "later": _later,
        "information": _information,
        "sphere": _sphere,
        "sphere of all": _sphere,
    }
    if view not in _NONE_TO_DRAW or _classes_shown(view, analyses):
        make = partial(drawing[view], shown, analyses, caption=f"{caption} {_seeds(shown)}")
        files += write_every_format(base, make, suffixes)
    return Drawn(Grid(*cells, f"{caption} {about}"), further, files)


# By whether the figure is about information: the columns of its table; the others are in the analyses.
_COLUMNS = {
    False: ("model", "n", "classes", "accuracy", *(f"alpha_{k}" for k in TABLE_K)),
    True: ("model", "n", "classes", "accuracy", "information", "floored", "constant"),
}


# By a view of single classes: why there is none to draw, though models are there.
_NONE_TO_DRAW = {
    "spectra": "these models have no class in common",
    "classes": "these models have no more than one class in common",
    "later": "these models have no class in common that came after phase 0",
}


def _classes_shown(view: str, analyses: Sequence[Analysis]) -> list[str]:
    """The classes (by their ids) whose spectra a figure draws; all that models share are in its tables."""
    if view == "later":
        return shared_classes(analyses, later=True)[:1]
    return shared_classes(analyses)[1:SHARED] if view == "classes" else shared_classes(analyses)[:1]


def _drawn_classes(view: str, analyses: Sequence[Analysis]) -> str:
    if view not in _NONE_TO_DRAW:
        return ""
    first = analyses[0]
    titles = dict(zip(first["classes"], first["class_names"], strict=True))
    names = [titles[one] for one in _classes_shown(view, analyses)]
    if not names:
        return f"Nothing is drawn: {_NONE_TO_DRAW[view]}."
    return f"{'Class' if len(names) == 1 else 'Classes'} drawn: {', '.join(names)}."


def _seeds(shown: Shown) -> str:
    """What a table has a column for, and a figure must say: how many seeds, or of a sphere which."""
    if shown.target.view in SPHERES:
        drawn = {line.panel: min(line.records) for line in shown.lines if line.records}
        if len(seeds := set(drawn.values())) == 1:
            return f"Seed {seeds.pop()}."
        return f"Seeds: {', '.join(f'{seed} ({panel})' for panel, seed in drawn.items())}."
    counts = sorted({len(line.records) for line in shown.lines if line.records})
    return f"n={' to '.join(dict.fromkeys(str(count) for count in (counts[0], counts[-1])))}."


def _curves(shown: Shown, lines: Sequence[Line], base: Path, suffixes: Sequence[str]) -> list[Path]:
    """A file for each panel, which says what it shows and lacks itself."""
    paths: list[Path] = []
    for title in dict.fromkeys(line.panel for line in lines):
        panel = replace(shown, lines=[line for line in shown.lines if line.panel == title])
        groups = [group(shown, line) for line in lines if line.panel == title]
        part = base.with_name("-".join(filter(None, [base.name, slug(title.partition(":")[0]).lower()])))
        make = partial(draw_groups, groups, title=title, caption=f"{panel.caption} {_seeds(panel)}")
        paths += write_every_format(part, make, suffixes)
    return paths


def _sweep(shown: Shown, lines: Sequence[Line], base: Path, suffixes: Sequence[str]) -> list[Path]:
    by_step: dict[str, list[tuple[float, list[float]]]] = {}
    for line in sorted(lines, key=lambda one: one.weight):
        by_step.setdefault(f"S={line.config.protocol.step}", []).append((line.weight, averages(line)))

    def make(path: Path) -> None:
        labels = {"x_label": "CwD coefficient eta", "y_label": "Average incremental accuracy (%)"}
        draw_sweep(by_step, path, caption=f"{shown.caption} {_seeds(shown)}", **labels)

    return write_every_format(base, make, suffixes)


def _spectra(shown: Shown, analyses: Sequence[Analysis], path: Path, caption: str) -> None:
    """A panel for each number of classes that has models with a term, the oracle in each; or one."""
    with_terms = sorted({one["seen_classes"] for one in analyses if one["initial"]})

    def name(one: Analysis) -> str:
        return _by_size(one) if not with_terms or _is_oracle(shown, one) else _label(shown, one)

    panels = {
        f"{size} classes": [one for one in analyses if one["seen_classes"] == size or _is_oracle(shown, one)]
        for size in with_terms
    } or {"": list(analyses)}
    draw_alpha_panels(panels, path, classes=_classes_shown("spectra", analyses), name=name, caption=caption)


def _is_oracle(shown: Shown, analysis: Analysis) -> bool:
    """Whether models with a term are held against it: one without, of more classes at once than any of them.

    Than any that belongs to the figure, there or not: while the oracle is missing nothing smaller stands in for it.
    """
    with_terms = [first_classes(line.config) for line in shown.lines if line.config.initial]
    own = RunConfig.from_dict(analysis["config"])
    return not own.initial and first_classes(own) > max(with_terms, default=0)


def _classes(shown: Shown, analyses: Sequence[Analysis], path: Path, caption: str) -> None:
    classes = _classes_shown("classes", analyses)
    draw_alpha_by_class(analyses, path, classes=classes, name=_by_size, caption=caption)


def _later(shown: Shown, analyses: Sequence[Analysis], path: Path, caption: str) -> None:
    classes = _classes_shown("later", analyses)

    def name(one: Analysis) -> str:
        return _label(shown, one) if len(one["phase_sizes"]) > 1 else "oracle"

    draw_alpha_panels({"": analyses}, path, classes=classes, name=name, caption=caption)


def _by_size(analysis: Analysis) -> str:
    return f"{analysis['seen_classes']} classes"


def _label(shown: Shown, analysis: Analysis) -> str:
    return shown.label(RunConfig.from_dict(analysis["config"]))


def _information(shown: Shown, analyses: Sequence[Analysis], path: Path, caption: str) -> None:
    draw_information(analyses, path, form="unit", caption=caption)


def _sphere(shown: Shown, analyses: Sequence[Analysis], path: Path, caption: str) -> None:
    """A panel for each line; of several seeds the first."""
    panels: dict[str, Analysis] = {}
    titles = [line.panel for line in shown.lines for _ in line.records]
    for title, analysis in zip(titles, analyses, strict=True):
        panels.setdefault(title, analysis)
    draw_sphere(panels, path, future=shown.target.view == "sphere of all", caption=caption)
