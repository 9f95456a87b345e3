"""Several runs with progress, and their files in a folder."""

from __future__ import annotations

import contextlib
import datetime
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from phasezero.config import RunConfig, complete
from phasezero.data.catalog import load_data
from phasezero.engine.callbacks import Callback, CallbackList
from phasezero.engine.checkpoint import newest_facts, phase_checkpoint, read_facts
from phasezero.engine.deadline import Deadline
from phasezero.engine.resume import Saving
from phasezero.engine.setup import check, teachers_of, trains_an_oracle
from phasezero.engine.store import phase_zero_of
from phasezero.errors import DivergenceError, UserError
from phasezero.records.analysis import analysis_name
from phasezero.records.files import remove_unfinished, slug, writable, write_whole
from phasezero.records.locks import locked
from phasezero.records.run import FILE_NAME, Record, read_record, write_record
from phasezero.runs.parallel import run_jobs, shared_device, workers_for
from phasezero.runs.progress import Display
from phasezero.runs.run import Job

CHECKPOINT = "checkpoint.safetensors"
STATES = "checkpoint*.safetensors"
"""The checkpoint, and the states that are kept next to it."""
LOCK = ".lock"
DIVERGED = "diverged.txt"


@dataclass(frozen=True)
class Session:
    """Hold the results of several runs."""

    folder: Path
    records: list[Record]
    """Records of the finished runs, in the order of the configurations."""
    paths: dict[str, Path]
    unfinished: list[RunConfig]
    """Runs that were stopped or not started because time was up."""
    diverged: list[str]
    """Messages of runs that diverged while the others continued."""


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
    make_callback: Callable[[RunConfig], Callback] | None = None,
    deadline: Deadline | None = None,
    seconds: Sequence[float] = (),
    keep_going: bool = False,
    views: Sequence[str] = (),
    save_every: float = 60.0,
    allow_changes: bool = False,
) -> Session:
    """Run each configuration; write record and configuration of each.

    Bad input is found before the first epoch, and then nothing is written. With `resume`, finished runs are kept and a
    stopped run continues from its last saved state (`save_every` seconds), under other conditions only with
    `allow_changes`. A folder in which another process writes the same run is an error. Up to `parallel` runs are
    trained at once, by default as many as fit the cores. With a `deadline` a run starts only if its `seconds` fit, and
    stops after a phase when time is up; the result then names the missing runs. With `keep_going` a run that diverges
    writes a file with the reason, and the other runs continue. `views` are files made from runs, which are removed when
    new runs begin.
    """
    console = console or Console(quiet=True)
    folder = out or Path("runs") / datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    phase_zeros = [(config.seed, phase_zero_of(config)) for config in configs]
    shared = len(set(phase_zeros)) < len(configs)
    if store is None and (shared or any(trains_an_oracle(config) or teachers_of(config) for config in configs)):
        store = folder / "phase0"  # a shared phase 0, an oracle or a teacher is trained only once
    targets = [run_folder(folder, config) for config in configs]
    check_clashes(targets, allowed=overwrite or resume)
    data = {name: load_data(name, root) for name in dict.fromkeys(config.protocol.data for config in configs)}
    setups = [check(config, data[config.protocol.data]) for config in configs]

    finished = finished_runs(configs, targets) if resume else {}
    waiting = {place: config for place, config in enumerate(configs) if place not in finished}
    for oracle in (term.file for config in waiting.values() for term in config.initial if term.file):
        read_facts(Path(oracle))  # raises for a file that is not a checkpoint
    left = list(waiting.values())
    workers = workers_for(left, parallel)
    if workers > 1 and shared_device(left) is None:
        data = {}  # each process loads its own
    jobs = {
        place: Job(
            config,
            Saving(
                targets[place] / CHECKPOINT, store, keep_phases, deadline, every=save_every, allow_changes=allow_changes
            ),
            root,
            data.get(config.protocol.data),
            setups[place],
            seconds[place] if seconds else 0.0,
        )
        for place, config in waiting.items()
    }
    display = Display(
        console,
        configs,
        setups,
        waiting=list(waiting),
        reusing=[place for place in waiting if store is not None and phase_zeros[place] in phase_zeros[:place]],
        at_once=workers,
    )
    with writable(folder), writable(store if waiting else None, "--store"), contextlib.ExitStack() as locks, display:
        for place in waiting:
            locks.enter_context(locked(targets[place] / LOCK, "writes this run", wait=0))
            remove_unfinished(targets[place], abandoned=True)
        check_clashes(targets, allowed=overwrite or resume)  # again, because another process may have just ended
        for name in views:
            remove_unfinished(folder, name)
        if not resume:
            make_room([folder / name for name in views], targets)
        if left:
            runs = jobs[next(iter(jobs))].title if len(left) == 1 else f"{len(left)} runs, {workers} at once"
            display.say(f"{runs}, into {folder}")

        def callback_of(place: int) -> Callback:
            followed = display.run(place)
            return CallbackList([followed, make_callback(configs[place])]) if make_callback else followed

        say = functools.partial(console.print, "note:", markup=False, soft_wrap=True)
        diverged: dict[int, str] = {}
        for place, outcome in run_jobs(jobs, workers, callback_of, keep_going, say):
            display.active.pop(place, None)  # a run that diverged has no last phase
            write_whole(targets[place] / "config.yaml", configs[place].to_yaml())
            if isinstance(outcome, DivergenceError):
                diverged[place] = str(outcome)
                write_whole(targets[place] / DIVERGED, f"{outcome}\n")
            else:
                finished[place] = outcome
                (targets[place] / DIVERGED).unlink(missing_ok=True)  # from before the resume
                write_record(targets[place] / FILE_NAME, outcome)
    return Session(
        folder,
        [finished[place] for place in sorted(finished)],
        {f"run {place + 1}": targets[place] / FILE_NAME for place in sorted(finished)},
        [config for place, config in waiting.items() if place not in {*finished, *diverged}],
        list(diverged.values()),
    )


def finished_runs(configs: Sequence[RunConfig], targets: Sequence[Path]) -> dict[int, Record]:
    """Return existing records by position; raise UserError for files of other configurations."""
    finished = {}
    for place, (config, target) in enumerate(zip(configs, targets, strict=True)):
        if (target / FILE_NAME).exists():
            finished[place] = read_record(target)
            if not same_config(finished[place], config):
                raise UserError(f"{target} holds a run of another configuration; use another --out or --overwrite")
        else:
            newest_facts(target / CHECKPOINT, config)  # raises for another configuration
    return finished


def same_config(record: Record, config: RunConfig) -> bool:
    """Tell whether a record has exactly this configuration, including seed and engine."""
    return complete(record["config"]) == config.to_dict()


def make_room(views: Sequence[Path], targets: Sequence[Path]) -> None:
    """Remove the files of earlier runs before new runs begin, so that old and new files do not mix."""
    patterns = (FILE_NAME, STATES, DIVERGED, "config.yaml", analysis_name("*"))
    for stale in (*views, *(path for target in targets for pattern in patterns for path in target.glob(pattern))):
        stale.unlink(missing_ok=True)


def run_folder(out: Path, config: RunConfig) -> Path:
    """Return the folder of a run."""
    return out / slug(config.name) / f"seed{config.seed}"


def lost_phases(folder: Path, record: Record) -> list[int]:
    """Return the phases whose state was not kept, because they were finished without --keep-phases."""
    last = len(record["phases"]) - 1  # always in the checkpoint itself
    return [phase for phase in range(last) if not phase_checkpoint(folder / CHECKPOINT, phase).exists()]


def divergence_of(config: RunConfig, out: Path) -> str:
    """Return the message of an earlier run of the same configuration that diverged, or an empty text."""
    folder = run_folder(out, config)
    try:
        same = (folder / "config.yaml").read_text(encoding="utf-8") == config.to_yaml()
        return (folder / DIVERGED).read_text(encoding="utf-8").strip() if same else ""
    except (OSError, ValueError):
        return ""


def check_clashes(targets: Sequence[Path], *, allowed: bool) -> None:
    """Raise UserError if two runs would write to the same folder, or if a folder already contains a run."""
    if len(set(targets)) != len(targets):
        twice = next(target for target in targets if list(targets).count(target) > 1)
        raise UserError(f"two runs would write to {twice}; give them different names or seeds")
    for target in targets if not allowed else ():
        for pattern, what in ((FILE_NAME, "a record"), (STATES, "an unfinished run")):
            if any(target.glob(pattern)):
                raise UserError(f"{target} already contains {what}; use another --out, --overwrite or --resume")
