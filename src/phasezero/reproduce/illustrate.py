"""The paper's figures on CIFAR100, from records and analyses alone: nothing is run for them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from phasezero.errors import UserError
from phasezero.reproduce.conduct import Wish, attach, plan
from phasezero.reproduce.pictures import Folders, draw
from phasezero.reproduce.targets import CIFAR100, TARGETS
from phasezero.reproduce.views import Shown
from phasezero.results.files import write_whole
from phasezero.results.record import Record

FIGURES = {
    "cwd-gain": "fig5",
    "more-classes": "fig3",
    "larger-eta": "fig4",
    "later-lower": "fig10",
    "information": "fig7",
    "mimic": "fig2",
    "eta-curve": "fig6",
}
"""By a claim's key: the paper's figure that shows it."""

PICTURES = ("fig1", "fig8")
"""Figures that show no number: features on the sphere."""

FOLDER = "figures"
"""Beside the records, where `phasezero results` puts them and looks for them."""


def figures_of(claim: str, folder: Path) -> list[Path]:
    """Those of a claim that were drawn; a figure with several panels is several files."""
    return _drawn(FIGURES[claim], folder) if claim in FIGURES else []


def pictures(folder: Path) -> dict[str, list[Path]]:
    """Those of no claim that were drawn, by their titles."""
    drawn = {TARGETS[name].title: _drawn(name, folder) for name in PICTURES}
    return {title: paths for title, paths in drawn.items() if paths}


def _drawn(target: str, folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).glob(f"{target}-{CIFAR100}*.svg"))


def draw_figures(folder: Path, records: Sequence[tuple[Path, Record]]) -> list[Path]:
    """Draws every figure that has something to show, of all seeds there are, as SVG; others of an earlier time go."""
    seeds = tuple(sorted({record["seed"] for _, record in records}))
    names = (*FIGURES.values(), *PICTURES)
    wish = Wish(names, (CIFAR100,), seeds)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for shown in filter(_tells_something, attach(plan(wish), records, states=False)):
            draw(shown, Folders(place), place / f"{shown.target.name}-{CIFAR100}", (".svg",))
        texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(place.glob("*.svg"))}
    try:
        if texts:
            (folder / FOLDER).mkdir(exist_ok=True)
        for name, text in texts.items():
            write_whole(folder / FOLDER / name, text)
        for old in (old for target in names for old in _drawn(target, folder)):
            if old.name not in texts:
                old.unlink()
    except OSError as error:
        told = error.strerror or error
        raise UserError(f"{folder / FOLDER} cannot be written: {told}; do without --figures") from None
    return [folder / FOLDER / name for name in texts]


def _tells_something(shown: Shown) -> bool:
    """More than the run without a term, where the figure is about terms."""
    about_terms = any(line.config.initial for line in shown.lines)
    return any(line.records for line in shown.lines if line.config.initial or not about_terms)
