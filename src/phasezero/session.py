"""Several runs, with progress, and what they leave in a folder."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from phasezero.analysis.record import analysis_name
from phasezero.config import RunConfig
from phasezero.data.catalog import load_data
from phasezero.data.images import ImageData
from phasezero.engine.checkpoint import read_facts, refuse_other_run
from phasezero.engine.deadline import Deadline
from phasezero.engine.listener import Listener, Listeners
from phasezero.engine.parallel import Job, run_jobs, stays_here, workers_for
from phasezero.engine.passes import DivergenceError
from phasezero.engine.persist import phase_checkpoint
from phasezero.engine.trainer import check
from phasezero.engine.workload import images_by_phase, trains_an_oracle
from phasezero.errors import UserError
from phasezero.progress import RunProgress, TotalProgress, make_progress
from phasezero.results.figures import draw_curves
from phasezero.results.files import remove_unfinished, write_whole
from phasezero.results.page import write_page
from phasezero.results.record import FILE_NAME, Record, read_record, write_record
from phasezero.results.tables import markdown_table

CHECKPOINT = "checkpoint.safetensors"
DIVERGED = "diverged.txt"
VIEWS = ("results.md", "curves.png", "report.html")
LONGEST = 180  # characters of a folder's name; most file systems allow 255 bytes


@dataclass(frozen=True)
class Written:
    """Where a session's results are."""

    folder: Path
    records: list[Record]
    """Of the runs that are finished, in the order of the configurations."""
    paths: dict[str, Path]
    unfinished: list[RunConfig]
    """Stopped, or not started, because time was up."""
    diverged: list[str]
    """What runs that diverged said, where the others went on."""


def run_all(
    configs: Sequence[RunConfig],
    *,
    root: Path | None = None,
    out: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    store: Path | None = None,
    keep_phases: bool = False,
    parallel: int | None = None,
    console: Console | None = None,
    watch: Callable[[RunConfig], Listener] | None = None,
    deadline: Deadline | None = None,
    seconds: Sequence[float] = (),
    go_on: bool = False,
    views: bool = True,
) -> Written:
    """Runs each configuration and writes record and configuration of each, then a table, a picture and a page of all.

    Everything that can be wrong with the input is found before the first epoch; then nothing is left behind.
    With `resume`, finished runs are kept as they are and a stopped one goes on after its last finished phase.
    `keep_phases` keeps a checkpoint of each phase. `parallel` runs go at once, by default as many as the cores
    carry. `watch` makes a further listener for each run. With a `deadline` a run starts only if its `seconds` fit,
    and stops after a phase when time is up; what is missing then is named in the result. With `go_on` a run that
    diverges leaves a file that says so, and the others go on. Without `views` there is no table and no picture.
    """
    console = console or Console(quiet=True)
    folder = out or Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    if store is None and any(map(trains_an_oracle, configs)):
        store = folder / "phase0"  # an oracle is trained once, and kept
    targets = [run_folder(folder, config) for config in configs]
    refuse_clashes(targets, allowed=overwrite or resume)
    data = {name: load_data(name, root) for name in {config.protocol.data for config in configs}}
    planned = [planned_images(config, data[config.protocol.data]) for config in configs]

    finished = finished_runs(configs, targets) if resume else {}
    waiting = [place for place in range(len(configs)) if place not in finished]
    for place in waiting:
        for oracle in filter(None, (term.file for term in configs[place].initial)):
            read_facts(Path(oracle))  # refuses what is no checkpoint
    left = [configs[place] for place in waiting]
    workers = min(parallel or workers_for(left or configs), len(left) or 1)
    if not stays_here(left, workers):
        data = {}  # each process loads its own
    with (
        writable(folder),
        writable(store if waiting else None, "--store"),
        make_progress(console) as progress,
    ):
        jobs = [
            Job(
                configs[place],
                root,
                targets[place] / CHECKPOINT,
                store,
                keep_phases,
                deadline,
                seconds[place] if seconds else 0.0,
                data.get(configs[place].protocol.data),
            )
            for place in waiting
        ]
        for place in waiting:
            remove_unfinished(targets[place])
        for name in VIEWS:
            remove_unfinished(folder, name)
        if not resume:
            make_room([folder / name for name in VIEWS] if views else [], targets)
        total = TotalProgress(progress, [planned[place] for place in waiting]) if len(jobs) > 1 else None

        def listen(at: int) -> Listener:
            config = jobs[at].config
            own = RunProgress(progress, config, waiting[at], len(configs))
            others = [total.watch(at)] if total else []
            return Listeners([own, *others, *([watch(config)] if watch else [])])

        def say(text: str) -> None:
            console.print(f"note: {text}", markup=False, soft_wrap=True)

        diverged: dict[int, str] = {}
        for at, outcome in run_jobs(jobs, workers, listen, go_on, say):
            place = waiting[at]
            write_whole(targets[place] / "config.yaml", configs[place].to_yaml())
            if isinstance(outcome, DivergenceError):
                diverged[place] = str(outcome)
                write_whole(targets[place] / DIVERGED, f"{outcome}\n")
            else:
                finished[place] = outcome
                (targets[place] / DIVERGED).unlink(missing_ok=True)  # what an earlier session said of it
                write_record(targets[place] / FILE_NAME, outcome)
        places = sorted(finished)
        records = [finished[place] for place in places]
        paths = {f"run {place + 1}": targets[place] / FILE_NAME for place in places}
        if views and records:
            paths |= write_views(folder, records)
        missing = [configs[place] for place in range(len(configs)) if place not in {*finished, *diverged}]
        return Written(folder, records, paths, missing, list(diverged.values()))


def finished_runs(configs: Sequence[RunConfig], targets: Sequence[Path]) -> dict[int, Record]:
    """The records that are there, by place; refuses records and checkpoints of other configurations."""
    finished = {}
    for place, (config, target) in enumerate(zip(configs, targets, strict=True)):
        if (target / FILE_NAME).exists():
            finished[place] = read_record(target)
            if finished[place]["config"] != config.to_dict():
                raise UserError(
                    f"{target} holds a run of another configuration; choose another --out, or say --overwrite"
                )
        else:
            refuse_other_run(target / CHECKPOINT, config)
    return finished


def planned_images(config: RunConfig, data: ImageData) -> int:
    """How many images a run will train on; refuses what cannot run on this data."""
    stream, *_ = check(config, data)
    sizes = np.bincount(data.train.labels, minlength=len(data.class_ids))[list(stream.order)].tolist()
    return sum(images_by_phase(config, stream, sizes))


def make_room(views: Sequence[Path], targets: Sequence[Path]) -> None:
    """Removes what earlier runs left where new ones begin: nothing of theirs may stand beside what is new."""
    of_phases = phase_checkpoint(Path(CHECKPOINT), "*").name
    patterns = (FILE_NAME, CHECKPOINT, DIVERGED, "config.yaml", of_phases, analysis_name("*"))
    for stale in (*views, *(found for target in targets for one in patterns for found in target.glob(one))):
        stale.unlink(missing_ok=True)


def write_views(folder: Path, records: Sequence[Record]) -> dict[str, Path]:
    table, picture, page = (folder / name for name in VIEWS)
    write_whole(table, markdown_table(records))
    draw_curves(records, picture)
    write_page(records, page, title=f"phasezero: {folder.resolve().name}")
    return {"table": table, "picture": picture, "page": page}


def run_folder(out: Path, config: RunConfig) -> Path:
    """Where a run of a session leaves its files."""
    return out / slug(config.name) / f"seed{config.seed}"


def divergence_of(config: RunConfig, out: Path) -> str:
    """What an earlier session wrote where a run of this very configuration diverged; else nothing."""
    folder = run_folder(out, config)
    try:
        same = (folder / "config.yaml").read_text() == config.to_yaml()
        return (folder / DIVERGED).read_text().strip() if same else ""
    except OSError:
        return ""


def slug(name: str) -> str:
    """A run's name as a folder's: letters, digits and +._- stay; one too long for a folder is cut."""
    plain = re.sub(r"[^A-Za-z0-9+._-]+", "-", name).strip("-.") or "run"
    if len(plain) <= LONGEST:
        return plain
    return f"{plain[:LONGEST]}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:12]}"


def refuse_clashes(targets: Sequence[Path], *, allowed: bool) -> None:
    if len(set(targets)) != len(targets):
        twice = next(target for target in targets if list(targets).count(target) > 1)
        raise UserError(f"two runs would write to {twice}; give them different names or seeds")
    for target in targets if not allowed else ():
        for name, what in ((FILE_NAME, "a record"), (CHECKPOINT, "an unfinished run")):
            if (target / name).exists():
                raise UserError(
                    f"{target} holds {what} already; choose another --out, or say --overwrite or --resume"
                )


@contextlib.contextmanager
def writable(folder: Path | None, option: str = "--out") -> Iterator[None]:
    """Makes the folder, if one is named, and proves it can be written; what was made and stayed empty goes again."""
    if folder is None:
        yield
        return
    made = [path for path in [folder, *folder.parents] if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        _remove_empty(made)
        raise UserError(
            f"folder {folder} cannot be written: {error.strerror or error}; choose another {option}"
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
