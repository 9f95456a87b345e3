"""`phasezero reproduce`: plan tables and figures, train missing runs, show the results."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from phasezero.analysis.measure import analyse_run
from phasezero.config import RunConfig
from phasezero.data.catalog import default_root, find_data_set
from phasezero.engine.callbacks import Callback
from phasezero.engine.deadline import Deadline
from phasezero.engine.device import Device
from phasezero.errors import UserError
from phasezero.paper.estimate import Estimate, estimate
from phasezero.paper.figures import draw
from phasezero.paper.plan import RecordIndex, Request, attach, missing_runs, plan
from phasezero.paper.tables import Table, write_texts
from phasezero.records.files import relative, slug
from phasezero.records.run import FILE_NAME, read_record, sound_records
from phasezero.report.grid import Grid, print_grid
from phasezero.runs.parallel import workers_for
from phasezero.runs.session import DIVERGED, divergence_of, run_all, run_folder, same_config
from phasezero.steps import Steps, working

HOUR = 3600.0
LONG = 12 * HOUR
"""Seconds from which runs without a GPU come with a remark."""
SMALL = "glyphs"
"""The data set that a CPU can do, and that every machine has."""


def reproduce(
    request: Request,
    *,
    out: Path,
    records: Sequence[Path] = (),
    root: Path | None = None,
    store: Path | None = None,
    parallel: int | None = None,
    time_limit: float | None = None,
    dry_run: bool = False,
    save_every: float = 60.0,
    allow_changes: bool = False,
    listed: bool = False,
    make_callback: Callable[[RunConfig], Callback] | None = None,
    console: Console,
    clock: Callable[[], float] = time.time,
) -> list[RunConfig]:
    """Plan, train runs without a record, and show the results; return the runs that the time limit left.

    `listed` also prints each missing run with its estimated time.
    """
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    note = partial(console.print, "note:", markup=False, highlight=False, soft_wrap=not console.is_terminal)

    def with_records(table: Table) -> Table:
        table = attach(table, index)
        return replace(table, diverged=sum(bool(divergence_of(config, out)) for config in table.missing))

    deadline = None if time_limit is None else Deadline(clock() + time_limit, clock)
    unreadable: list[str] = []
    with working("reading records"):
        tables = plan(request)
        folders = [out, *records] if any(out.rglob(FILE_NAME)) else records
        index = RecordIndex(sound_records(folders, unreadable.append))
        tables = [with_records(table) for table in tables]
        missing = missing_runs(tables)
        todo = [config for config in missing if not divergence_of(config, out)]
        workers = workers_for(todo, parallel)
        store = store or out / "phase0"
        guess = estimate(todo, [record for _, record in index.all], out, workers, store)
    without_gpu = about_no_gpu(request, todo, guess.total(workers))
    if not dry_run:
        check_data(todo, root or default_root(), without_gpu)
        check_folders(todo, out)
    print_plan(tables, todo, guess, workers, console, listed)
    for text in unreadable:
        note(text)
    for text in without_gpu:
        note(text)
    if time_limit is not None and (long := sum(seconds > time_limit for seconds in guess.next_phase)):
        note(f"the next phase of {long} of them takes longer than the time limit: not started")
    for text in dict.fromkeys(used_of_repeats(tables)):
        note(text)
    for text in index.damaged:
        note(f"{text}; ignored")
    for text in filter(None, (divergence_of(config, out) for config in missing)):
        note(f"not run again because it diverged ({DIVERGED} in its folder): {text}")
    if dry_run:
        return todo
    left: list[RunConfig] = []
    if todo:
        session = run_all(
            todo,
            root=root,
            out=out,
            resume=True,
            store=store,
            parallel=workers,
            console=console,
            make_callback=make_callback,
            deadline=deadline,
            seconds=guess.next_phase,
            keep_going=True,
            save_every=save_every,
            allow_changes=allow_changes,
        )
        left = session.unfinished
        for text in session.diverged:
            say(f"left out: {text}")
        paths = [path.resolve() for path in session.paths.values()]
        index.add(zip(paths, session.records, strict=True))
    with Steps() as steps:
        measure = partial(analyse_run, root=root, store=store, progress=steps)
        for table in map(with_records, tables):
            base = out / f"{table.target.name}-{slug(table.data)}"
            out.mkdir(parents=True, exist_ok=True)
            output = draw(table, index, base, measure=measure)
            for grid in (output.grid, *output.further):
                print_grid(grid, "terminal", console)
            for path in (*write_texts(table, output, base), *output.files):
                say(f"  {path}")
            console.print()
    return left


def print_plan(
    tables: Sequence[Table],
    todo: Sequence[RunConfig],
    guess: Estimate,
    workers: int,
    console: Console,
    listed: bool = False,
) -> None:
    """Print the time of all runs, the number of runs of each target, and remarks; `listed` adds a line for each run."""
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    if todo:
        basis = "partly guessed" if guess.guessed else "by records of this machine"
        runs = "1 run" if len(todo) == 1 else f"{len(todo)} runs, {workers} at once"
        say(f"{runs}: about {in_words(guess.total(workers))} ({basis})")
    lines = []
    for table in tables:
        exist = sum(len(row.records) for row in table.rows)
        lines.append([table.target.name, table.data, str(len(table.rows) * len(table.seeds)), str(exist)])
    print_grid(Grid(["target", "data", "runs", "exist"], lines, words=2), "terminal", console)
    for remark in dict.fromkeys(remark for table in tables for remark in table.remarks):
        console.print("note:", remark, markup=False, highlight=False, soft_wrap=not console.is_terminal)
    for config, seconds in zip(todo, guess.seconds, strict=True) if listed else ():
        say(f"to run: {config.name} seed {config.seed}, about {in_words(seconds)}")
    if len(todo) > 1 and not listed:
        say("(--list prints each run with its time)")


def about_no_gpu(request: Request, todo: Sequence[RunConfig], seconds: float) -> list[str]:
    """Return what to say if long runs would be computed on a CPU: that, and the small version of the request."""
    if seconds < LONG or any(Device.choose(config.engine).torch.type != "cpu" for config in todo):
        return []
    said = f"no GPU is used, and without one these runs take about {in_words(seconds)}"
    small = replace(request, data=(SMALL,))
    with contextlib.suppress(UserError):  # not every target is defined on it
        configs = missing_runs(plan(small))
        workers = workers_for(configs)
        total = estimate(configs, [], Path(), workers).total(workers)
        if total < seconds:
            return [f"{said}; the small version, --data {SMALL}, takes about {in_words(total)}"]
    return [said]


def used_of_repeats(tables: Sequence[Table]) -> Iterator[str]:
    """Yield which run is used of each seed that was run more than once."""
    for row in (row for table in tables for row in table.rows):
        for seed in row.again:
            path = relative(row.records[seed][0], Path())
            yield f"{row.config.name}: seed {seed} was run more than once and counts once: {path} is used"


def in_words(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3 * HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.0f} h" if seconds < 72 * HOUR else f"{seconds / 24 / HOUR:,.0f} days"


def check_data(todo: Sequence[RunConfig], root: Path, also: Sequence[str] = ()) -> None:
    """Raise UserError if data is missing, before anything starts. Data is never replaced silently."""
    names = dict.fromkeys(config.protocol.data for config in todo)
    if gone := [name for name in names if not find_data_set(name).present(root)]:
        loads = [f"download it (phasezero data get {name})" for name in gone if find_data_set(name).download]
        ways = ", ".join([*loads, "give --root"])
        where = f"{', '.join(gone)} not found under {root}: {ways}, or use --data {SMALL}, which is always there"
        raise UserError("; ".join([where, *also]))


def check_folders(todo: Sequence[RunConfig], out: Path) -> None:
    """Raise UserError if a run's folder has a record that is damaged, has other settings or lacks the model."""
    for folder, config in ((run_folder(out, config), config) for config in todo):
        if not (folder / FILE_NAME).exists():
            continue
        try:
            record = read_record(folder)
        except UserError as error:
            raise UserError(f"{error}; remove this file and repeat the command") from None
        what = "a record without its model" if same_config(record, config) else "a run of another configuration"
        raise UserError(f"{folder} holds {what}; remove it, or choose another --out")
