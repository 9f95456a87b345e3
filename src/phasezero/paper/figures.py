"""The figures of targets, drawn from records or from analyses of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from phasezero.analysis.compare import CLAIMS, TABLE_K, Finding, compare, write_findings
from phasezero.analysis.measure import analyse_run
from phasezero.errors import UserError
from phasezero.paper.board import anchors_grids, board_grid, draw_board
from phasezero.paper.plan import RecordIndex, as_run, on_cifar100, shown_phase
from phasezero.paper.study import draw_study, study_grid
from phasezero.paper.tables import Output, Row, Table, cells_grid, curves_grid, methods_grid, runs_of
from phasezero.paper.targets import CIFAR100
from phasezero.records.analysis import Analysis, Form, analysis_name, read_analysis, shared_classes, write_analysis
from phasezero.records.files import slug
from phasezero.report.analyses import analysis_grid, findings_grid
from phasezero.report.curves import draw_curves
from phasezero.report.looks import looks_among
from phasezero.report.panels import Line, Panel, write_panels
from phasezero.report.published import published_for
from phasezero.report.spectra import draw_alpha, draw_information
from phasezero.report.sphere import draw_sphere
from phasezero.report.style import SUFFIXES, caption_files, write_every_format
from phasezero.runs.session import run_folder

SHARED = 10
"""Classes that all models of the paper's spectra share. The paper shows the first class, its appendix the others."""

Measure = Callable[..., Analysis]
"""A function that analyses a run's model, such as `analyse_run`."""

FOLDER = "figures"
"""The folder next to the records where `phasezero results` puts its figures and looks for them."""


def analyse(table: Table, index: RecordIndex, out: Path, measure: Measure) -> list[Analysis]:
    """Return the analyses of a table's models under the names of its rows; write missing analyses to `out`."""
    found, target = [], table.target
    for row, seed in ((one, seed) for one in table.rows for seed in one.records):
        path, record = row.records[seed]
        folder, phase = run_folder(out, row.seeded(seed)), shown_phase(target, record)
        kept = index.analysis(target, path.parent, record) or index.analysis(target, folder, record)
        if kept is None:
            own = folder / analysis_name(phase)
            write_analysis(own, measure(path.parent, phase=phase, future=target.shows_sphere))
            index.analyses[own] = kept = read_analysis(own)
        found.append(as_run(kept, row.seeded(seed), row.config.name))
    return found


def draw(
    table: Table, index: RecordIndex, base: Path, suffixes: Sequence[str] = SUFFIXES, measure: Measure = analyse_run
) -> Output:
    """Return the tables of a target and its figure's files, whose names begin with `base`."""
    view, rows = table.target.view, [row for row in table.rows if row.records]
    if table.target.shows_models and (analyses := analyse(table, index, base.parent, measure)):
        return _draw_models(table, analyses, base, suffixes)
    if view == "curves":
        return Output(curves_grid(table), files=_draw_curves(table, rows, base, suffixes))
    if view == "board":
        return Output(board_grid(table), anchors_grids(table), draw_board(table, base, suffixes) if rows else [])
    if view == "study":
        return Output(study_grid(table), files=draw_study(table, base, suffixes) if rows else [])
    if view == "sweep" and rows:
        return Output(cells_grid(table), files=_draw_sweep(table, rows, base, suffixes))
    return Output(methods_grid(table) if view == "methods" else cells_grid(table))


def _draw_models(table: Table, analyses: Sequence[Analysis], base: Path, suffixes: Sequence[str]) -> Output:
    """Return the models' numbers, the check of the paper's statements, and the figure."""
    view, later, information = table.target.view, table.target.view == "later", table.target.view == "information"
    form: Form = "unit" if information or table.target.shows_sphere else "raw"
    classes = shared_classes(analyses, later=later)
    drawn = {"spectra": classes[:1], "later": classes[:1], "classes": classes[1:SHARED]}.get(view)
    about = ""
    if drawn:
        names = dict(zip(analyses[0]["classes"], analyses[0]["class_names"], strict=True))
        about = f" {'Class' if len(drawn) == 1 else 'Classes'} drawn: {', '.join(names[key] for key in drawn)}."
    elif drawn is not None:
        which = " that came after phase 0" * later
        about = f" Nothing is drawn: the number of classes{which} that these models share is {len(classes)}."
    further, files = [], []
    left_out: list[str] = []
    if findings := _check_statements(table, analyses, form, left_out):
        further.append(findings_grid(findings, left_out))
        files.append(base.with_name(f"{base.name}-findings.json"))
        write_findings(files[0], findings, split="train", form=form)
    if drawn is None or drawn:
        make = partial(_draw_view, table, analyses, drawn or (), table.figure_caption + about)
        files += write_every_format(base, make, suffixes)
    measures = ("information", "floored", "constant") if information else tuple(f"alpha_{k}" for k in TABLE_K)
    columns = ["model", "n", "classes", "accuracy", *measures]
    grid = analysis_grid(analyses, form=form, classes=classes or None, later=later, columns=columns)
    return Output(replace(grid, caption=f"{table.caption}{about} {grid.caption}"), further, files)


def _check_statements(table: Table, analyses: Sequence[Analysis], form: Form, left_out: list[str]) -> list[Finding]:
    """Check what the paper states about these models; `left_out` collects what could not be compared."""
    view, oracle = table.target.view, not _oracles(table).isdisjoint(model["name"] for model in analyses)
    claims = [claim for claim in CLAIMS if (claim == "more information") == (view == "information")]
    claims = [claim for claim in claims if oracle or claim != "nearer to the oracle"]
    claims = [] if table.target.shows_sphere else claims
    return compare(analyses, form=form, later=view == "later", claims=claims, left_out=left_out)


def _oracles(table: Table) -> set[str]:
    """Return the models without a term that learn more classes at once than any planned model with a term."""
    configs = [row.config for row in table.rows]
    most = max((config.protocol.first_classes for config in configs if config.initial), default=0)
    return {config.name for config in configs if not config.initial and config.protocol.first_classes > most}


def _draw_view(
    table: Table, analyses: Sequence[Analysis], classes: Sequence[str], caption: str, path: Path
) -> list[Path]:
    view, oracles = table.target.view, _oracles(table)
    labels = {row.config.name: table.label(row.config) for row in table.rows}
    sizes = {model["seen_classes"] for model in analyses if model["initial"]}
    with_initial = sorted(sizes) if view == "spectra" else []

    def by_size(model: Analysis) -> str:
        return f"{model['seen_classes']} classes"

    def name(model: Analysis) -> str:
        if view == "later":
            return labels[model["name"]] if len(model["phase_sizes"]) > 1 else "oracle"
        return labels[model["name"]] if with_initial and model["name"] not in oracles else by_size(model)

    if view == "information":
        return draw_information(analyses, path, form="unit", caption=caption)
    if view == "classes":
        return draw_alpha(analyses, path, classes=classes, by_class=True, name=by_size, caption=caption)
    if table.target.shows_sphere:  # a panel for each row, with its first seed
        titles = [row.panel for row in table.rows for _ in row.records]
        first = dict(reversed(list(zip(titles, analyses, strict=True))))
        panels = {title: first[title] for title in dict.fromkeys(titles)}
        seeds = _seeds({title: one["seed"] for title, one in panels.items()})
        return draw_sphere(panels, path, future=view == "sphere of all", caption=f"{caption} {seeds}")
    # Spectra: a panel for each number of classes that has models with a term, with the oracle in each.
    shown = [[one for one in analyses if one["seen_classes"] == n or one["name"] in oracles] for n in with_initial]
    by_panel = {f"{size} classes": models for size, models in zip(with_initial, shown, strict=True)}
    apart = oracles if with_initial or view == "later" else ()
    return draw_alpha(by_panel or analyses, path, classes=classes, name=name, oracles=apart, caption=caption)


def _seeds(drawn: Mapping[str, int]) -> str:
    """Return which seed each panel shows, if they differ."""
    if len(set(drawn.values())) == 1:
        return f"Seed {min(drawn.values())}."
    return f"Seeds: {', '.join(f'{seed} ({panel})' for panel, seed in drawn.items())}."


def _draw_curves(table: Table, rows: Sequence[Row], base: Path, suffixes: Sequence[str]) -> list[Path]:
    """Draw a figure for each panel."""
    paths: list[Path] = []
    for title in dict.fromkeys(row.panel for row in rows):
        groups = [runs_of(table, row) for row in rows if row.panel == title]
        part = base.with_name("-".join(filter(None, [base.name, slug(title.partition(":")[0]).lower()])))
        make = partial(draw_curves, groups, title=title, caption=table.figure_caption)
        paths += write_every_format(part, make, suffixes)
    return paths


def _draw_sweep(table: Table, rows: Sequence[Row], base: Path, suffixes: Sequence[str]) -> list[Path]:
    """Draw a curve over eta for each S and for each method that --method added."""
    curves: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        others = tuple(term for term in row.config.initial if term.name != "cwd")
        curves.setdefault((table.label(replace(row.config, initial=others)), row.config.protocol.step), []).append(row)
    several = len({label for label, _ in curves}) > 1
    firsts = [some[0].config for some in curves.values()]
    terms = [[term.name for term in config.initial if term.name != "cwd"] for config in firsts]
    looks = looks_among([(config.method.name, some) for config, some in zip(firsts, terms, strict=True)])
    lines = []
    for look, ((label, step), some) in zip(looks, curves.items(), strict=True):
        points = sorted((_eta(row), row.averages) for row in some)
        cells = [(_eta(row), published_for(record)) for row in some for _, record in list(row.records.values())[:1]]
        published = [(eta, cell.mean, cell.std) for eta, cell in cells if cell]
        lines.append(Line(f"{label}, " * several + f"S={step}", points, look, published))
    panel = Panel(lines, r"CwD coefficient $\eta$", "Average incremental accuracy (%)")
    make = partial(write_panels, panels=[panel], caption=table.figure_caption)
    return write_every_format(base, make, suffixes)


def _eta(row: Row) -> float:
    return sum(term.weight for term in row.config.initial if term.name == "cwd")


def figures_of(target: str, folder: Path) -> list[Path]:
    """Return the files of a target's figures on CIFAR100 that were drawn for a folder of records, one per panel."""
    return sorted((folder / FOLDER).glob(f"{target}-{CIFAR100}*.svg"))


def files_of(figure: Path) -> list[Path]:
    """Return all files of a figure in RESULTS.md: as SVG and PDF, and its caption."""
    return [figure, figure.with_suffix(".pdf"), *caption_files(figure)]


def draw_figures(names: Sequence[str], folder: Path, index: RecordIndex) -> list[Path]:
    """Draw these targets on CIFAR100 as SVG and PDF from existing records and analyses; remove older figures of them.

    Return the SVG files.
    """
    drawn: list[Path] = []
    try:
        for table in on_cifar100(names, index):
            with_initial = [row for row in table.rows if row.config.initial]
            if any(row.records for row in with_initial or table.rows):  # a figure about terms needs a run with a term
                drawn += draw(table, index, folder / FOLDER / f"{table.target.name}-{CIFAR100}", (".svg", ".pdf")).files
        figures = sorted(path for path in drawn if path.suffix == ".svg")
        old = {path for name in names for figure in figures_of(name, folder) for path in files_of(figure)}
        checks = {path for path in drawn if path.suffix == ".json"}
        for other in (old | checks) - {path for figure in figures for path in files_of(figure)}:
            other.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{folder / FOLDER} cannot be written: {error.strerror or error}; omit --figures") from None
    return figures
