"""The tables and figures that `phasezero analyze` makes of analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from phasezero.analysis.compare import Finding, compare, write_findings
from phasezero.errors import UserError
from phasezero.identity import cwd_weight
from phasezero.records.analysis import Analysis, Form, Split
from phasezero.report.analyses import analysis_caption, analysis_cells, figure_caption, findings_grid
from phasezero.report.grid import Grid, print_grid
from phasezero.report.spectra import draw_alpha, draw_information, draw_overlap
from phasezero.report.style import write_every_format


@dataclass(frozen=True)
class View:
    """What tables and figures show, and where they go."""

    folder: Path
    split: Split
    form: Form
    later: bool
    phases: Sequence[int]  # those asked for, or found where a run has several
    classes: Sequence[str]  # those that all models share

    def path(self, name: str) -> Path:
        """Return the path of a file; its name tells what is not the default, so that views do not clash."""
        stem, dot, suffix = name.partition(".")
        parts = [stem, *(f"phase{phase}" for phase in self.phases), *["later"] * self.later]
        parts += [self.split] * (self.split != "train") + [self.form] * (self.form != "raw")
        return self.folder / f"{'-'.join(parts)}{dot}{suffix}"


def show_analyses(
    analyses: Sequence[Analysis], view: View, ks: Sequence[int] | None, warn: Callable[[str], None]
) -> None:
    """Print tables, then write files; warn of what cannot be shown."""
    split, form, later, classes = view.split, view.form, view.later, view.classes or None
    cells = analysis_cells(analyses, split=split, form=form, ks=ks, classes=classes)
    caption = analysis_caption(analyses, split, form, classes=classes, later=later, columns=cells[0])
    print_grid(Grid(*cells, caption), "terminal", Console())
    left_out: list[str] = []
    findings = compare(analyses, ks=ks, split=split, form=form, later=later, left_out=left_out)
    if findings:
        print_grid(findings_grid(findings), "terminal", Console())
    for why in left_out:
        warn(f"{why}; left out")
    if later and not classes:
        warn("--later: these models have no class in common that came after phase 0, so nothing is drawn")
    for path in _write_files(analyses, findings, view, warn):
        Console(soft_wrap=True).print(f"wrote {path}", markup=False, highlight=False)


def _write_files(
    analyses: Sequence[Analysis], findings: Sequence[Finding], view: View, warn: Callable[[str], None]
) -> Iterator[Path]:
    """Write every view that these analyses allow: the comparison as data, and the figures."""
    split, form, classes = view.split, view.form, view.classes
    caption = figure_caption(analyses, classes, later=view.later)
    if findings:
        write_findings(path := view.path("comparison.json"), findings, split=split, form=form)
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
