"""`phasezero analyze`: what the models of finished runs have learned, as data, tables and figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from phasezero.analysis.tables import Cells, analysis_caption, analysis_cells, findings_grid
from phasezero.commands.options import parse_numbers, warn
from phasezero.errors import UserError
from phasezero.results.grid import Grid, print_grid
from phasezero.results.record import FILE_NAME, find_records
from phasezero.results.style import write_every_format
from phasezero.session import slug, writable


def analyze(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs; with --read, of analyses.")
    ],
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; else $PHASEZERO_DATA, ./data.")
    ] = None,
    phase: Annotated[
        list[int] | None, typer.Option(help="The model after this phase, else the last; may be repeated.")
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
    if not floor > 0:
        raise UserError(f"--floor {floor:g}: must be above zero")

    def make(folder: Path, at: int) -> Analysis:
        wanted = (*DEFAULT_K, *(ks or ()))
        return analyse_run(
            folder, phase=at, root=root, store=store, device=device, ks=wanted, floor=floor, future=future
        )

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
        cells = analysis_cells(analyses, split=split, form=features, ks=ks)
        show_table(cells, analysis_caption(analyses, split, features), words=1)
        findings = compare(analyses, ks=ks, split=split, form=features, later=later)
        if findings:
            print_grid(findings_grid(findings), "terminal", Console())
        classes = shared_classes(analyses, later=later)
        if later and not classes:
            warn("--later: these models have no class in common that came after phase 0, so nothing is drawn")
        for path in write_views(folder, analyses, findings, classes, split, features):
            Console(soft_wrap=True).print(f"wrote {path}", markup=False, highlight=False)


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
            if path in written:
                raise UserError(f"{folder} and {written[path]} would both write {path}; analyse them apart")
            written[path] = folder
            write_analysis(path, analysis)
            yield analysis


def write_views(
    folder: Path,
    analyses: Sequence[Analysis],
    findings: Sequence[Finding],
    classes: Sequence[str],
    split: Split,
    form: Form,
) -> Iterator[Path]:
    """Every view that these analyses allow: the comparison as data, and the figures (alpha_k: of these classes)."""
    if findings:
        write_findings(folder / "comparison.json", findings, split=split, form=form)
        yield folder / "comparison.json"
    if classes:
        draw = partial(draw_alpha, analyses, split=split, form=form, classes=classes)
        yield from write_every_format(folder / "alpha", draw)
    if len({cwd_weight(one) for one in analyses}) > 1:
        information = partial(draw_information, analyses, split=split, form=form)
        yield from write_every_format(folder / "information", information)
        overlap = partial(draw_overlap, analyses, split=split, form=form)
        yield from write_every_format(folder / "overlap", overlap)


def show_table(cells: Cells, caption: str, words: int) -> None:
    print_grid(Grid(*cells, caption, words), "terminal", Console())
