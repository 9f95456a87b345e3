"""Several runs in a row, with progress, and what they leave in a folder."""

from __future__ import annotations

import contextlib
import datetime
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.engine.trainer import check
from phasezero.errors import UserError
from phasezero.experiment import run
from phasezero.progress import RunProgress, make_progress
from phasezero.results.figures import draw_curves
from phasezero.results.record import FILE_NAME, Record, read_record, write_record
from phasezero.results.tables import markdown_table


@dataclass
class Written:
    """Where a session's results are."""

    folder: Path
    records: list[Record] = field(default_factory=list)
    paths: dict[str, Path] = field(default_factory=dict)


def run_all(
    jobs: Sequence[RunConfig],
    *,
    root: Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    store: Path | None = None,
    console: Console | None = None,
) -> Written:
    """Runs each configuration and writes record and configuration of each, then a table and a picture of all.

    Everything that can be wrong with the input is found before the first epoch; then nothing is left behind.
    With `resume`, finished runs are kept as they are and a stopped one goes on after its last finished phase.
    """
    console = console or Console(quiet=True)
    folder = out or Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    targets = [folder / slug(job.name) / f"seed{job.seed}" for job in jobs]
    refuse_clashes(targets, allowed=overwrite or resume)
    data = {name: load_data(name, root) for name in {job.protocol.data for job in jobs}}
    for job in jobs:
        check(job, data[job.protocol.data])

    with writable(folder):
        written = Written(folder)
        with make_progress(console) as progress:
            for number, (job, target) in enumerate(zip(jobs, targets, strict=True), start=1):
                listener = RunProgress(progress, job, f"[{number}/{len(jobs)}]")
                if resume and (target / FILE_NAME).exists():
                    record = read_record(target)
                else:
                    checkpoint = target / "checkpoint.safetensors"
                    if not resume:
                        checkpoint.unlink(missing_ok=True)
                    record = run(
                        job,
                        data=data[job.protocol.data],
                        listener=listener,
                        checkpoint=checkpoint,
                        store=store,
                    )
                    write_record(target / FILE_NAME, record)
                    (target / "config.yaml").write_text(job.to_yaml())
                listener.finished()
                written.records.append(record)
                written.paths[f"run {number}"] = target / FILE_NAME
        written.paths |= write_views(folder, written.records)
    return written


def write_views(folder: Path, records: Sequence[Record]) -> dict[str, Path]:
    table, picture = folder / "results.md", folder / "curves.png"
    table.write_text(markdown_table(records))
    draw_curves(records, picture)
    return {"table": table, "picture": picture}


def slug(name: str) -> str:
    """A run's name as a folder's: letters, digits and +._- stay."""
    return re.sub(r"[^A-Za-z0-9+._-]+", "-", name).strip("-.") or "run"


def refuse_clashes(targets: Sequence[Path], *, allowed: bool) -> None:
    if len(set(targets)) != len(targets):
        twice = next(target for target in targets if list(targets).count(target) > 1)
        raise UserError(f"two runs would write to {twice}; give them different names or seeds")
    there = [target for target in targets if (target / FILE_NAME).exists()]
    if there and not allowed:
        raise UserError(
            f"{there[0]} holds a record already; choose another --out, or say --overwrite or --resume"
        )


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Makes the folder and proves that it can be written; what was made and stayed empty goes again."""
    made = [path for path in [folder, *folder.parents] if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _remove_empty(made)
        raise UserError(
            f"output folder {folder} cannot be written: {error.strerror or error}; choose another --out"
        ) from None
    try:
        yield
    except BaseException:
        _remove_empty(made)
        raise


def _remove_empty(paths: Sequence[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.rmdir()
