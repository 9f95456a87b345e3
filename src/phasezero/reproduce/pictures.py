"""The figures of targets: from records, or from analyses of the models that runs left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from phasezero.analysis.figures import (
    draw_alpha_by_class,
    draw_alpha_panels,
    draw_information,
)
from phasezero.analysis.measure import analyse_run
from phasezero.analysis.record import (
    Analysis,
    analysis_name,
    later_classes,
    read_analysis,
    shared_classes,
    write_analysis,
)
from phasezero.analysis.sphere import draw_sphere
from phasezero.analysis.tables import analysis_caption, analysis_cells
from phasezero.config import RunConfig
from phasezero.reproduce.plan import Line
from phasezero.reproduce.views import Shown, averages, cells_grid, group, label, methods_grid
from phasezero.results.figures import draw_groups, draw_sweep
from phasezero.results.grid import Grid
from phasezero.results.record import Record
from phasezero.results.style import write_every_format
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


def can_be_shown(view: str, path: Path, record: Record) -> bool:
    """Whether what a view wants of a run is still beside its record: for a model its state, or its analysis."""
    if view not in MODEL_VIEWS:
        return True
    name = analysis_name(_phase_shown(view, record))
    return (path.parent / CHECKPOINT).exists() or (path.parent / name).exists()


def _phase_shown(view: str, record: Record) -> int:
    """Spheres are of phase 0 (the oracle's is its only one), the rest of the end."""
    return 0 if view in SPHERES else len(record["phases"]) - 1


def analyse(view: str, lines: Sequence[Line], place: Folders) -> list[Analysis]:
    """The models that a view shows; for a sphere with the classes to come.

    An analysis that is there already is read, others are made and written beside the run in `place.out`.
    """
    found, future = [], view in SPHERES
    for line in lines:
        for seed, (path, record) in sorted(line.records.items()):
            phase = _phase_shown(view, record)
            wanted = record["data"]["classes"] if future else record["phases"][phase]["seen_classes"]
            own = run_folder(place.out, line.seeded(seed)) / analysis_name(phase)
            there = [one for one in (path.parent / own.name, own) if one.exists()]
            kept = [one for one in map(read_analysis, there) if len(one["classes"]) >= wanted]
            if not kept:
                made = analyse_run(
                    path.parent, phase=phase, root=place.root, store=place.store, future=future
                )
                own.parent.mkdir(parents=True, exist_ok=True)
                write_analysis(own, made)
                kept = [read_analysis(own)]
            found.append(kept[0])
    return found


def draw(shown: Shown, place: Folders, base: Path) -> tuple[Grid, list[Path]]:
    """The table under a target's figure, and the figure's files, all of `base` with further letters."""
    lines = [line for line in shown.lines if line.records]
    if shown.target.view not in MODEL_VIEWS:
        makers = {"curves": _curves, "sweep": _sweep}
        make = makers.get(shown.target.view)
        grid = methods_grid(shown) if shown.target.view == "methods" else cells_grid(shown)
        return grid, make(shown, lines, base) if make and lines else []
    analyses = analyse(shown.target.view, lines, place)
    if not analyses:
        return cells_grid(shown), []
    caption = f"{shown.caption} {analysis_caption(analyses, 'train', 'raw')}"
    grid = _selected(Grid(*analysis_cells(analyses), caption))
    drawing = {
        "spectra": _spectra,
        "classes": _classes,
        "later": _later,
        "information": _information,
        "sphere": _sphere,
        "sphere of all": _sphere,
    }
    return grid, write_every_format(base, lambda path: drawing[shown.target.view](shown, analyses, path))


def _selected(grid: Grid) -> Grid:
    """The columns that these figures are about; the others are in the analyses."""
    wanted = ("model", "n", "classes", "accuracy", "alpha_1", "alpha_2", "alpha_5", "alpha_20", "information")
    places = [place for place, name in enumerate(grid.header) if name in wanted]
    rows = [[row[place] for place in places] for row in grid.rows]
    return Grid([grid.header[place] for place in places], rows, grid.caption)


def _curves(shown: Shown, lines: Sequence[Line], base: Path) -> list[Path]:
    """A file for each panel."""
    paths: list[Path] = []
    for title in dict.fromkeys(line.panel for line in lines):
        groups = [group(line) for line in lines if line.panel == title]
        part = base.with_name("-".join(filter(None, [base.name, slug(title.partition(":")[0]).lower()])))
        make = partial(draw_groups, groups, title=title, caption=shown.caption)
        paths += write_every_format(part, make)
    return paths


def _sweep(shown: Shown, lines: Sequence[Line], base: Path) -> list[Path]:
    by_step: dict[str, list[tuple[float, list[float]]]] = {}
    for line in sorted(lines, key=lambda one: one.weight):
        by_step.setdefault(f"S={line.config.protocol.step}", []).append((line.weight, averages(line)))

    def make(path: Path) -> None:
        labels = {"x_label": "CwD coefficient eta", "y_label": "Average incremental accuracy (%)"}
        draw_sweep(by_step, path, caption=shown.caption, **labels)

    return write_every_format(base, make)


def _spectra(shown: Shown, analyses: Sequence[Analysis], path: Path) -> None:
    """A panel for each number of classes that has models with a term, the model of all classes in each; or one."""
    largest = max(one["seen_classes"] for one in analyses)
    with_terms = sorted({one["seen_classes"] for one in analyses if one["initial"]})

    def name(one: Analysis) -> str:
        by_size = not with_terms or one["seen_classes"] == largest
        return _by_size(one) if by_size else _label(one)

    panels = {
        f"{size} classes": [one for one in analyses if one["seen_classes"] in (size, largest)]
        for size in with_terms
    } or {"": list(analyses)}
    draw_alpha_panels(panels, path, classes=shared_classes(analyses)[:1], name=name, caption=shown.caption)


def _classes(shown: Shown, analyses: Sequence[Analysis], path: Path) -> None:
    classes = shared_classes(analyses)[1:SHARED]
    draw_alpha_by_class(analyses, path, classes=classes, name=_by_size, caption=shown.caption)


def _later(shown: Shown, analyses: Sequence[Analysis], path: Path) -> None:
    stepwise = [one for one in analyses if len(one["phase_sizes"]) > 1]
    classes = later_classes(stepwise[0])[:1] if stepwise else None

    def name(one: Analysis) -> str:
        return _label(one) if len(one["phase_sizes"]) > 1 else "oracle"

    draw_alpha_panels({"": analyses}, path, classes=classes, name=name, caption=shown.caption)


def _by_size(analysis: Analysis) -> str:
    return f"{analysis['seen_classes']} classes"


def _label(analysis: Analysis) -> str:
    return label(RunConfig.from_dict(analysis["config"]))


def _information(shown: Shown, analyses: Sequence[Analysis], path: Path) -> None:
    draw_information(analyses, path, form="raw", caption=shown.caption)


def _sphere(shown: Shown, analyses: Sequence[Analysis], path: Path) -> None:
    """A panel for each line; of several seeds the first."""
    titles = [line.panel for line in shown.lines for _ in line.records]
    panels = dict(zip(reversed(titles), reversed(analyses), strict=True))
    future = shown.target.view == "sphere of all"
    draw_sphere(dict(reversed(panels.items())), path, future=future, caption=shown.caption)
