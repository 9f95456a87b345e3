"""`phasezero evaluate`: how accurate a model is on photos of known classes, and which classes it confuses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import Device, Model, Photos, check_file, counted, load_torch, warn
from phasezero.cli.photos import check_readable
from phasezero.errors import UserError
from phasezero.steps import Steps

WORST, CONFUSIONS = 20, 10
"""Numbers of classes and of confusions that are printed; the page has all."""


def evaluate(
    photos: Photos,
    model: Model,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write an HTML page of confusions.")] = None,
    device: Device = "auto",
) -> None:
    """Measure the accuracy in all, by phase and by class. PHOTOS/test or PHOTOS/val is used if it has class folders."""
    load_torch()
    from rich.console import Console

    from phasezero.data.folder import class_folders, first_few
    from phasezero.learner import Learner
    from phasezero.learner.folder import read_model
    from phasezero.learner.labelled import labelled
    from phasezero.records.files import write_whole
    from phasezero.report.confusion import Confusion, confusion_page
    from phasezero.report.grid import print_grid

    if out is not None:
        check_file("--out", out)
    where = next((photos / side for side in ("test", "val") if class_folders(photos / side)), photos)
    data = labelled(where)
    with Steps() as steps:
        learner = Learner.load(model, device=device)
        learner.progress = steps
        names = {str(name): name for name in learner.classes_.tolist()}
        if unknown := sorted({str(name) for name in data.names} - names.keys()):
            left = sum(str(name) in unknown for name in data.names)
            message = f"the model does not know these classes: {first_few(unknown)}"
            if left == len(data.names):
                raise UserError(f"{where}: {message}; `phasezero learn` teaches them")
            warn(f"{message}; {counted(left, 'photo')} left out")
        pairs = [
            (item, names[str(name)]) for item, name in zip(data.items, data.names, strict=True) if str(name) in names
        ]
        check_readable([item for item, _ in pairs], steps)
        compared = learner.compare(pairs)
        learned = sum(map(len, compared.known.values())) + sum(one.learned for one in compared.conflicts)
        if learned:
            warn(
                f"{learned:,} of {counted(len(pairs), 'photo')} were learned by this model, so the accuracy is too high"
            )
        found = learner.evaluate(pairs)
    phases = [entry["phase"] for entry in read_model(model)["classes"]]
    confusion = Confusion([*names], phases, found["confusion"])
    console = Console()
    print(f"{where}: {100 * confusion.accuracy:.2f} % of {counted(found['images'], 'photo')}")
    if max(phases):
        print_grid(confusion.phase_grid(), "terminal", console)
    print_grid(confusion.class_grid(WORST), "terminal", console)
    if confusion.pairs():
        print_grid(confusion.pair_grid(CONFUSIONS), "terminal", console)
    if out is not None:
        write_whole(out, confusion_page(confusion, f"{model.resolve().name} on {where}"))
        print(out)
