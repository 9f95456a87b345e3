"""One command for a table or figure: the plan, the runs that are missing, the views."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from phasezero.config import RunConfig
from phasezero.data.catalog import DATA_SETS, default_root, split_name
from phasezero.engine.deadline import Deadline
from phasezero.engine.listener import Listener
from phasezero.engine.parallel import workers_for
from phasezero.errors import UserError, unknown
from phasezero.reproduce.beginnings import Beginnings
from phasezero.reproduce.estimate import Estimate, estimate
from phasezero.reproduce.pictures import (
    MODEL_VIEWS,
    SPHERES,
    Folders,
    can_be_shown,
    damaged_analyses,
    draw,
    is_analysed,
)
from phasezero.reproduce.plan import (
    Filters,
    Shelf,
    choose_data,
    expand,
    missing_runs,
    usual_precision,
    with_records,
)
from phasezero.reproduce.targets import TARGETS, Target
from phasezero.reproduce.views import Shown, write_texts
from phasezero.results.grid import Grid, print_grid
from phasezero.results.record import FILE_NAME, Record, read_record, sound_records
from phasezero.session import DIVERGED, divergence_of, run_all, run_folder, slug

NOT_SET = {
    "seed": "say --seeds",
    "name": "a table or figure names its runs itself",
    "protocol.data": "say --data, so that every output tells what stands in",
}
"""What a run is, and not how it is made: settings that would make tables tell of other runs than they show."""


@dataclass(frozen=True)
class Wish:
    """What was asked for."""

    targets: tuple[str, ...]
    data: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    filters: Filters = Filters()
    settings: Mapping[str, Any] | None = None
    full: bool = False


def choose_targets(names: Sequence[str]) -> list[Target]:
    for name in names:
        if name not in TARGETS and name != "all":
            raise unknown("table or figure", name, [*TARGETS, "all"])
    return list(TARGETS.values()) if "all" in names else [TARGETS[name] for name in dict.fromkeys(names)]


def plan(wish: Wish) -> list[Shown]:
    """What to show, with no record yet."""
    settings = wish.settings or {}
    for key, instead in NOT_SET.items():
        if key in settings:
            raise UserError(f"--set {key}: {instead}")
    planned = []
    targets = choose_targets(wish.targets)
    wish.filters.refuse_unknown(
        [
            line.config
            for target in targets
            for data in choose_data(target, wish.data)
            for line in expand(target, data, {})
        ]
    )
    for target in targets:
        for data in choose_data(target, wish.data):
            every = expand(target, data, settings, full=wish.full)
            lines = [line for line in every if wish.filters.admit(line.config)]
            if lines:
                filters = wish.filters if len(lines) < len(every) else Filters()  # which left out nothing
                planned.append(Shown(target, data, lines, settings, wish.seeds or target.seeds, filters))
    if not planned:
        raise UserError("nothing is left of these tables and figures; loosen --method or --step")
    return planned


def attach(
    planned: Sequence[Shown], records: Sequence[tuple[Path, Record]], *, states: bool = True
) -> list[Shown]:
    """The same with the records that are there. A figure of models wants the model's state, too, or its analysis.

    Without `states` it must be the analysis. Of a seed in several precisions the one is taken that most records of
    the table or figure have.
    """
    attached = []
    for shown in planned:
        view = shown.target.view
        shelf = Shelf(one for one in records if can_be_shown(view, *one, states=states))
        # Spheres show classes to come, too.
        alone = view in MODEL_VIEWS and view not in SPHERES
        begun = Beginnings(one for one in records if alone and is_analysed(view, one[0], 0))
        found = []
        for line in shown.lines:
            own = dict(shelf.of(line.config))
            others = [one for one in begun.of(line, shown.seeds) if one[0] not in own]
            found.append([*own.items(), *others])
        usual = usual_precision(one for some in found for one in some)
        lines = [
            with_records(line, shown.seeds, some, usual)
            for line, some in zip(shown.lines, found, strict=True)
        ]
        attached.append(replace(shown, lines=lines))
    return attached


def find(
    out: Path, folders: Sequence[Path], complain: Callable[[str], None] = lambda _: None
) -> list[tuple[Path, Record]]:
    """Damaged records are left out, and `complain` hears of them."""
    own = [out] if any(out.rglob(FILE_NAME)) else []
    return sound_records([*own, *folders], complain)


def reproduce(
    wish: Wish,
    *,
    out: Path,
    records: Sequence[Path] = (),
    root: Path | None = None,
    store: Path | None = None,
    parallel: int | None = None,
    time_limit: float | None = None,
    dry_run: bool = False,
    watch: Callable[[RunConfig], Listener] | None = None,
    console: Console,
    clock: Callable[[], float] = time.time,
) -> list[RunConfig]:
    """Plans, runs what has no record, shows; returns what the time limit left over."""
    deadline = None if time_limit is None else Deadline(clock() + time_limit, clock)
    found = find(out, records, lambda said: console.print(f"note: {said}", markup=False, soft_wrap=True))
    planned = [with_divergences(shown, out) for shown in attach(plan(wish), found)]
    missing = missing_runs((line, shown.seeds) for shown in planned for line in shown.lines)
    before = [said for config in missing if (said := divergence_of(config, out))]
    todo = [config for config in missing if not divergence_of(config, out)]
    workers = min(parallel or (workers_for(todo) if todo else 1), max(len(todo), 1))
    store = store or out / "phase0"
    guess = estimate(todo, [record for _, record in found], out, workers, store)
    print_plan(planned, todo, guess, workers, console)
    too_long = sum(seconds > time_limit for seconds in guess.next_phase) if time_limit is not None else 0
    if too_long:
        console.print(
            f"note: the next phase of {too_long} of them takes longer than the time limit: not started"
        )
    if any(shown.target.view in MODEL_VIEWS for shown in planned):
        for said in damaged_analyses(found):
            console.print(f"note: {said}; counted as not there", markup=False)
    for said in before:
        console.print(f"note: not run again, {DIVERGED} in its folder says why: {said}", markup=False)
    if dry_run:
        return todo
    left: list[RunConfig] = []
    if todo:
        refuse_missing(todo, root or default_root())
        refuse_occupied(todo, out)
        written = run_all(
            todo,
            root=root,
            out=out,
            resume=True,
            store=store,
            parallel=workers,
            console=console,
            watch=watch,
            deadline=deadline,
            seconds=guess.next_phase,
            go_on=True,
            views=False,
        )
        left = written.unfinished
        for said in written.diverged:
            console.print(f"left out: {said}", markup=False)
    place = Folders(out, root, store)
    for shown in attach(plan(wish), find(out, records)):
        show(with_divergences(shown, out), place, console)
    return left


def with_divergences(shown: Shown, out: Path) -> Shown:
    """The same, with how many of the runs that have no record have left word of why."""
    missing = (line.seeded(seed) for line in shown.lines for seed in shown.seeds if seed not in line.records)
    return replace(shown, diverged=sum(bool(divergence_of(config, out)) for config in missing))


def show(shown: Shown, place: Folders, console: Console) -> None:
    base = place.out / f"{shown.target.name}-{slug(shown.data)}"
    place.out.mkdir(parents=True, exist_ok=True)
    drawn = draw(shown, place, base)
    for grid in (drawn.grid, *drawn.further):
        print_grid(grid, "terminal", console)
    for path in [*write_texts(shown, drawn, base), *drawn.files]:
        console.print(f"  {path}", markup=False, highlight=False, soft_wrap=True)
    console.print()


def print_plan(
    planned: Sequence[Shown], todo: Sequence[RunConfig], guess: Estimate, workers: int, console: Console
) -> None:
    rows = [
        [
            shown.target.name,
            shown.data,
            str(len(shown.lines) * len(shown.seeds)),
            str(sum(len(line.records) for line in shown.lines)),
        ]
        for shown in planned
    ]
    print_grid(Grid(["target", "data", "runs", "there"], rows, words=2), "terminal", console)
    said = list(dict.fromkeys(remark for shown in planned for remark in shown.remarks))
    for remark in said:
        console.print(f"note: {remark}", markup=False, highlight=False, soft_wrap=True)
    for config, seconds in zip(todo, guess.seconds, strict=True):
        line = f"to run: {config.name} seed {config.seed}, about {in_words(seconds)}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if todo:
        total = max([sum(guess.seconds) / workers, *guess.seconds])
        basis = "partly guessed, no record of this machine tells" if guess.guessed else "by records"
        runs = "1 run" if len(todo) == 1 else f"{len(todo)} runs"
        console.print(
            f"{runs}, {workers} at once: about {in_words(total)} ({basis})",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def in_words(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def refuse_missing(todo: Sequence[RunConfig], root: Path) -> None:
    """Before anything starts: all data must be there, and nothing stands in unasked."""
    names = dict.fromkeys(config.protocol.data for config in todo)
    gone = [name for name in names if not DATA_SETS[split_name(name)[0]].present(root)]
    if gone:
        fetched = "phasezero data get cifar100"
        instead = f"fetch it ({fetched}), or choose what stands in: "
        if "cifar100" not in gone:
            instead = f"choose what stands in: --data cifar100 ({fetched}), or "
        raise UserError(
            f"{', '.join(gone)} not found under {root}; say --root, or {instead}--data glyphs, which is always there"
        )


def refuse_occupied(todo: Sequence[RunConfig], out: Path) -> None:
    """A run that is to be made, though a record is in its place.

    It is damaged, of other settings, or a figure wants its model, which is gone.
    """
    for config in todo:
        folder = run_folder(out, config)
        if not (folder / FILE_NAME).exists():
            continue
        try:
            record = read_record(folder)
        except UserError as error:
            raise UserError(f"{error}; remove this file, and the same command makes it anew") from None
        same = record["config"] == config.to_dict()
        what = "a record without its model" if same else "a run of another configuration"
        raise UserError(f"{folder} holds {what}; remove it, or choose another --out")
