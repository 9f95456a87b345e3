"""`phasezero reproduce`: plan tables and figures, train missing runs, show the results."""

from __future__ import annotations

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
    make_callback: Callable[[RunConfig], Callback] | None = None,
    console: Console,
    clock: Callable[[], float] = time.time,
) -> list[RunConfig]:
    """Plan, train runs without a record, and show the results; return the runs that the time limit left."""
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)

    def with_records(table: Table) -> Table:
        table = attach(table, index)
        return replace(table, diverged=sum(bool(divergence_of(config, out)) for config in table.missing))

    deadline = None if time_limit is None else Deadline(clock() + time_limit, clock)
    tables = plan(request)
    folders = [out, *records] if any(out.rglob(FILE_NAME)) else records
    index = RecordIndex(sound_records(folders, lambda text: say(f"note: {text}")))
    tables = [with_records(table) for table in tables]
    missing = missing_runs(tables)
    todo = [config for config in missing if not divergence_of(config, out)]
    workers = workers_for(todo, parallel)
    store = store or out / "phase0"
    guess = estimate(todo, [record for _, record in index.all], out, workers, store)
    print_plan(tables, todo, guess, workers, console)
    if time_limit is not None and (long := sum(seconds > time_limit for seconds in guess.next_phase)):
        say(f"note: the next phase of {long} of them takes longer than the time limit: not started")
    for text in dict.fromkeys(used_of_repeats(tables)):
        say(f"note: {text}")
    for text in index.damaged:
        say(f"note: {text}; ignored")
    for text in filter(None, (divergence_of(config, out) for config in missing)):
        say(f"note: not run again because it diverged ({DIVERGED} in its folder): {text}")
    if dry_run:
        return todo
    left: list[RunConfig] = []
    if todo:
        check_data(todo, root or default_root())
        check_folders(todo, out)
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
    for table in map(with_records, tables):
        base = out / f"{table.target.name}-{slug(table.data)}"
        out.mkdir(parents=True, exist_ok=True)
        output = draw(table, index, base, measure=partial(analyse_run, root=root, store=store))
        for grid in (output.grid, *output.further):
            print_grid(grid, "terminal", console)
        for path in (*write_texts(table, output, base), *output.files):
            say(f"  {path}")
        console.print()
    return left


def print_plan(
    tables: Sequence[Table], todo: Sequence[RunConfig], guess: Estimate, workers: int, console: Console
) -> None:
    """Print the number of runs of each target, remarks, and the missing runs with estimated times."""
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    lines = []
    for table in tables:
        exist = sum(len(row.records) for row in table.rows)
        lines.append([table.target.name, table.data, str(len(table.rows) * len(table.seeds)), str(exist)])
    print_grid(Grid(["target", "data", "runs", "exist"], lines, words=2), "terminal", console)
    for remark in dict.fromkeys(remark for table in tables for remark in table.remarks):
        say(f"note: {remark}")
    for config, seconds in zip(todo, guess.seconds, strict=True):
        say(f"to run: {config.name} seed {config.seed}, about {in_words(seconds)}")
    if todo:
        total = max(sum(guess.seconds) / workers, *guess.seconds)
        basis = "partly guessed, without records of this machine" if guess.guessed else "by records"
        runs = "1 run" if len(todo) == 1 else f"{len(todo)} runs"
        say(f"{runs}, {workers} at once: about {in_words(total)} ({basis})")


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
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def check_data(todo: Sequence[RunConfig], root: Path) -> None:
    """Raise UserError if data is missing, before anything starts. Data is never replaced silently."""
    names = dict.fromkeys(config.protocol.data for config in todo)
    if gone := [name for name in names if not find_data_set(name).present(root)]:
        other = "--data cifar100 (phasezero data get cifar100) or --data glyphs, which is always there"
        raise UserError(f"{', '.join(gone)} not found under {root}; give --root, or use {other}")


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
