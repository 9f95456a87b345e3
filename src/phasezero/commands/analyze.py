"""`phasezero analyze`: what the models of finished runs have learned, as data, tables and figures."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from phasezero.analysis.compare import Finding, compare, write_findings
from phasezero.analysis.figures import draw_alpha, draw_information, draw_overlap
from phasezero.analysis.information import FLOOR
from phasezero.analysis.measure import DEFAULT_K, analyse_run
from phasezero.analysis.record import (
    Analysis,
    Split,
    analysis_name,
    cwd_weight,
    find_analyses,
    read_analysis,
    shared_classes,
    write_analysis,
)
from phasezero.analysis.spectra import Form
from phasezero.analysis.tables import analysis_caption, analysis_cells, figure_caption, findings_grid
from phasezero.commands.options import parse_numbers, those_with, warn
from phasezero.errors import UserError
from phasezero.results.grid import Grid, print_grid
from phasezero.results.record import FILE_NAME, find_records
from phasezero.results.style import write_every_format
from phasezero.session import slug, writable

ABOUT_COMPUTING = ("root", "future", "floor", "store", "device")
"""Options that change nothing where nothing is computed."""


def analyze(
    context: typer.Context,
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; with --read, of analyses.")
    ],
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; else $PHASEZERO_DATA, ./data.")
    ] = None,
    phase: Annotated[
        list[int] | None,
        typer.Option(help="The model after this phase, else the last (--read: all); may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; else analyses go beside the records.")
    ] = None,
    k: Annotated[str | None, typer.Option(help="Which alpha_k to compare: 1,2,5,10,20.")] = None,
    split: Annotated[Literal["train", "test"], typer.Option(help="Images of tables and figures.")] = "train",
    features: Annotated[Literal["raw", "unit"], typer.Option(help="Their features.")] = "raw",
    later: Annotated[
        bool, typer.Option("--later", help="Compare only the classes that came after phase 0.")
    ] = False,
    future: Annotated[
        bool, typer.Option("--future", help="Look at the classes that are still to come, too.")
    ] = False,
    floor: Annotated[float, typer.Option(help="Of eigenvalues, for the information proxy.")] = FLOOR,
    store: Annotated[
        Path | None, typer.Option(help="Where phase-0 states were kept.", envvar="PHASEZERO_STORE")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1.")] = "auto",
    read: Annotated[
        bool, typer.Option("--read", help="Compute nothing: tables and figures of analyses that are there.")
    ] = False,
) -> None:
    """How the features of each class scatter in trained models, and how models compare in that."""
    ks = parse_ks(k)
    if not 0 < floor < math.inf:
        raise UserError(f"--floor {floor:g}: must be above zero and finite")
    if read:
        refuse_with_read(context, phase or [])
    if missing := [path for path in runs if not path.exists()]:
        raise UserError(f"{missing[0]}: there is no such file or folder")

    def make(folder: Path, at: int) -> Analysis:
        wanted = (*DEFAULT_K, *(ks or ()))
        return analyse_run(
            folder, phase=at, root=root, store=store, device=device, ks=wanted, floor=floor, future=future
        )

    runs = those_with(analysis_name("*") if read else FILE_NAME, runs)
    paths = find_analyses(runs) if read else find_records(runs)
    if not read and (strange := [path for path in paths if path.name != FILE_NAME]):
        raise UserError(f"{strange[0]}: a run's folder is expected (or --read, for an analysis)")
    folder = out or Path(os.path.commonpath([path.parent for path in paths]))
    with writable(folder):
        if read:
            analyses = [one for one in map(read_analysis, paths) if not phase or one["phase"] in phase]
        else:
            analyses = list(compute([path.parent for path in paths], phase or [-1], out, make))
        if not analyses:
            raise UserError(f"no analysis of phase {', '.join(map(str, phase or []))} is there")
        several = len(analyses) > len({path.parent for path in paths})  # of a run; read, without --phase
        phases = sorted({one["phase"] for one in analyses}) if phase or several else []
        classes = shared_classes(analyses, later=later)
        show(analyses, View(folder, split, features, later, phases, classes), ks)


def refuse_with_read(context: typer.Context, phases: Sequence[int]) -> None:
    """What analyses that are there cannot follow."""
    for name in ABOUT_COMPUTING:
        # Given by hand: the environment may name a store all the same.
        if (source := context.get_parameter_source(name)) and source.name == "COMMANDLINE":
            raise UserError(
                f"--{name} with --read: nothing is computed, so it would change nothing; leave out one of them"
            )
    if min(phases, default=0) < 0:
        raise UserError(f"--phase {min(phases)} with --read: name the phase itself, counted from 0")


def parse_ks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    numbers = parse_numbers("--k", text)
    if 0 in numbers:
        raise UserError(f"--k {text!r}: the first eigenvalue is number 1")
    return sorted(numbers)


def compute(
    folders: Iterable[Path], phases: Sequence[int], out: Path | None, make: Callable[[Path, int], Analysis]
) -> Iterator[Analysis]:
    """Each run's analyses, written as they are made: beside its record, or by its name under `out`."""
    written: dict[Path, Path] = {}
    for folder in folders:
        for phase in phases:
            analysis = make(folder, phase)
            place = out / slug(analysis["name"]) / f"seed{analysis['seed']}" if out else folder
            path = place / analysis_name(analysis["phase"])
            if written.get(path) == folder:  # the same phase, named twice
                continue
            if path in written:
                raise UserError(f"{folder} and {written[path]} would both write {path}; analyse them apart")
            written[path] = folder
            write_analysis(path, analysis)
            yield analysis


@dataclass(frozen=True)
class View:
    """What tables and figures are of, and where they go."""

    folder: Path
    split: Split
    form: Form
    later: bool
    phases: Sequence[int]
    """Those asked for, or found where a run has several."""
    classes: Sequence[str]
    """Those that all models share."""

    def path(self, name: str) -> Path:
        """Two views of the same analyses have different names: each tells what is not the default."""
        stem, dot, suffix = name.partition(".")
        parts = [stem, *(f"phase{phase}" for phase in self.phases), *["later"] * self.later]
        parts += [self.split] * (self.split != "train") + [self.form] * (self.form != "raw")
        return self.folder / f"{'-'.join(parts)}{dot}{suffix}"


def show(analyses: Sequence[Analysis], view: View, ks: Sequence[int] | None) -> None:
    """Tables in the terminal, then files; what cannot be shown is missed aloud."""
    split, form, later, classes = view.split, view.form, view.later, view.classes or None
    cells = analysis_cells(analyses, split=split, form=form, ks=ks, classes=classes)
    told = analysis_caption(analyses, split, form, classes=classes, later=later, columns=cells[0])
    print_grid(Grid(*cells, told), "terminal", Console())
    left_out: list[str] = []
    findings = compare(analyses, ks=ks, split=split, form=form, later=later, left_out=left_out)
    if findings:
        print_grid(findings_grid(findings), "terminal", Console())
    for why in left_out:
        warn(f"{why}; left out")
    if later and not classes:
        warn("--later: these models have no class in common that came after phase 0, so nothing is drawn")
    for path in write_views(analyses, findings, view):
        Console(soft_wrap=True).print(f"wrote {path}", markup=False, highlight=False)


def write_views(analyses: Sequence[Analysis], findings: Sequence[Finding], view: View) -> Iterator[Path]:
    """Every view that these analyses allow: the comparison as data, and the figures."""
    split, form, classes = view.split, view.form, view.classes
    caption = figure_caption(analyses, classes, later=view.later)
    if findings:
        path = view.path("comparison.json")
        write_findings(path, findings, split=split, form=form)
        yield path
    if classes:
        draw = partial(draw_alpha, analyses, split=split, form=form, classes=classes, caption=caption)
        yield from write_every_format(view.path("alpha"), draw)
    if len({cwd_weight(one) for one in analyses}) == 1:
        return
    if classes:
        draw = partial(draw_information, analyses, split=split, form=form, classes=classes, caption=caption)
        try:
            yield from write_every_format(view.path("information"), draw)
        except UserError as error:  # different floors
            warn(f"{error}; left out")
    if view.later:
        warn("--later: overlap is measured among all classes seen, so it is not drawn")
    else:
        draw = partial(draw_overlap, analyses, split=split, form=form, caption=figure_caption(analyses))
        yield from write_every_format(view.path("overlap"), draw)
