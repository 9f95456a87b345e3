"""The figures of the paper's claims on CIFAR100, from records and analyses alone: nothing is run for them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from phasezero.reproduce.conduct import Wish, attach, plan
from phasezero.reproduce.pictures import Folders, draw
from phasezero.reproduce.targets import CIFAR100
from phasezero.results.record import Record

FIGURES = {
    "cwd-gain": "fig5",
    "more-classes": "fig3",
    "larger-eta": "fig4",
    "information": "fig7",
    "mimic": "fig2",
    "eta-curve": "fig6",
}
"""By a claim's key: the paper's figure that shows it."""

FOLDER = "figures"
"""Beside the records, where `phasezero results` puts them and looks for them."""


def figures_of(claim: str, folder: Path) -> list[Path]:
    """Those of a claim that were drawn; a figure with several panels is several files."""
    return sorted((folder / FOLDER).glob(f"{FIGURES[claim]}-{CIFAR100}*.svg"))


def draw_figures(folder: Path, records: Sequence[tuple[Path, Record]]) -> list[Path]:
    """Draws every figure that has something to show, as SVG; those of an earlier time go."""
    target = folder / FOLDER
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for shown in attach(plan(Wish(tuple(FIGURES.values()), (CIFAR100,))), records):
            draw(shown, Folders(place), place / f"{shown.target.name}-{CIFAR100}")
        for old in (old for claim in FIGURES for old in figures_of(claim, folder)):
            old.unlink()
        drawn = sorted(place.glob("*.svg"))
        if drawn:
            target.mkdir(exist_ok=True)
        return [Path(shutil.copy(path, target)) for path in drawn]
