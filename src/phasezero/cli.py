"""The command `phasezero`. Thin: it reads the words, calls the library, prints what comes back."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from phasezero import __version__
from phasezero.board import boards
from phasezero.commands.analyze import analyze
from phasezero.commands.bench import bench
from phasezero.commands.options import (
    parse_numbers,
    parse_parallel,
    refuse_empty,
    refuse_folder,
    those_with,
    warn,
)
from phasezero.commands.report import report
from phasezero.commands.reproduce import reproduce
from phasezero.commands.results import results
from phasezero.config import RunConfig, load_yaml, parse_assignments
from phasezero.data.catalog import DATA_SETS, default_root
from phasezero.data.stream import ORDER_NAMES
from phasezero.engine.passes import DivergenceError
from phasezero.engine.persist import phase_checkpoint
from phasezero.engine.store import PhaseZeroStore
from phasezero.errors import UserError, unknown
from phasezero.initial import TERMS
from phasezero.methods import METHODS
from phasezero.nets import NETWORKS
from phasezero.presets import PRESETS, build_config, method_names, preset, standard_name, with_terms
from phasezero.reproduce.targets import TARGETS
from phasezero.results.figures import draw_curves
from phasezero.results.grid import FORMATS, print_grid
from phasezero.results.record import FILE_NAME, Classifier, Record, load_records
from phasezero.results.tables import comparison_warnings, results_grid
from phasezero.session import CHECKPOINT, run_all, run_folder, writable

INTERRUPTED = 130
"""typer's exit code after Ctrl-C."""
INTERRUPTION = (
    "phasezero: stopped; finished phases and runs are kept: "
    "`run` goes on with --resume, `reproduce` with the same command"
)

app = typer.Typer(
    help="Class-incremental learning that starts right.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Data sets: which are there, and getting them.", rich_markup_mode=None)
app.add_typer(data_app, name="data")
app.command()(bench)


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"phasezero {__version__}")
        raise typer.Exit


@app.callback()
def phasezero(
    version: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True)] = False,
) -> None:
    pass


def choose_configs(
    presets: list[str],
    config_file: Path | None,
    data: str | None,
    method: str | None,
    initial: list[str],
    base: int | None,
    step: int | None,
    assignments: dict[str, Any],
) -> list[RunConfig]:
    """What to run: presets or a file, with overrides; or a method on a data set; or the default pair."""
    terms = [text for text in initial if text != "none"]
    if presets and config_file:
        raise UserError("give presets or --config, not both")
    if presets or config_file:
        if data is not None or method is not None:
            raise UserError(
                "--data and --method build a run of their own; leave out the preset (or --config)"
            )
        configs = [load_yaml(config_file)] if config_file else [preset(name) for name in presets]
        sizes = next((config.protocol.phase_sizes for config in configs if config.protocol.phase_sizes), ())
        refuse_both(assignments.get("protocol.phase_sizes", sizes), base, step)
        own_names = [config.name if config.name != standard_name(config) else "" for config in configs]
        if base is not None:
            assignments = {"protocol.base": base, **assignments}
        if step is not None:
            assignments = {"protocol.step": step, **assignments}
        if initial:
            configs = [with_terms(config, terms) for config in configs]
    else:
        sizes = assignments.get("protocol.phase_sizes", ())
        refuse_both(sizes, base, step)
        if sizes:  # they say all that B and S would
            base = step = 1
        # With neither a method nor a term named: the comparison that the paper is about.
        configs = [
            build_config(
                "lucir" if method is None else method,
                "glyphs" if data is None else data,
                initial=choice,
                base=base,
                step=step,
            )
            for choice in ([terms] if method is not None or initial else [[], ["cwd"]])
        ]
        own_names = [""] * len(configs)
    changed = [config.override(assignments) for config in configs]
    if "name" in assignments:
        return changed
    return [
        replace(config, name=own or standard_name(config))
        for config, own in zip(changed, own_names, strict=True)
    ]


def refuse_both(sizes: Sequence[int], base: int | None, step: int | None) -> None:
    if sizes and (base is not None or step is not None):
        raise UserError(
            f"protocol.phase_sizes is {list(sizes)}, so --base and --step would change nothing; "
            "leave them out, or add --set protocol.phase_sizes=[]"
        )


def parse_seeds(text: str | None, config: RunConfig) -> list[int]:
    if text is None:
        return [config.seed]
    return list(parse_numbers("--seeds", text))


@app.command()
def run(
    presets: Annotated[list[str] | None, typer.Argument(metavar="[PRESET]...")] = None,
    data: Annotated[
        str | None, typer.Option(help="glyphs, cifar100, imagenet100-cwd, folder:PATH, ...")
    ] = None,
    method: Annotated[str | None, typer.Option(help="The method; see phasezero list.")] = None,
    initial: Annotated[
        list[str] | None, typer.Option(help="A phase-0 term with its weight, cwd:0.5; none; may be repeated.")
    ] = None,
    base: Annotated[int | None, typer.Option(help="B: classes of phase 0.")] = None,
    step: Annotated[int | None, typer.Option(help="S: classes of each later phase.")] = None,
    memory: Annotated[str | None, typer.Option(help="per_class:20 or total:2000.")] = None,
    class_order: Annotated[str | None, typer.Option(help="seed1993, natural, podnet-1, ...")] = None,
    seeds: Annotated[str | None, typer.Option(help="One run for each: 0,1,2; else the preset's, 0.")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs of every phase; rate drops move with it.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32, tf32, bf16, fp16.")] = None,
    engine: Annotated[str | None, typer.Option(help="auto, eager, captured, compiled.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; else $PHASEZERO_DATA, ./data.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; else runs/<date and time>.")] = None,
    config: Annotated[Path | None, typer.Option(help="A configuration as YAML, instead of a preset.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any field, training.first.lr=0.2.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace records that are there.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what --out holds.")] = False,
    store: Annotated[
        Path | None,
        typer.Option(help="Keep and share finished phase-0 states here.", envvar="PHASEZERO_STORE"),
    ] = None,
    keep_phases: Annotated[
        bool, typer.Option("--keep-phases", help="Keep a checkpoint of every phase, for phasezero analyze.")
    ] = False,
    parallel: Annotated[
        str, typer.Option(help="Runs at once; auto: as many as the cores carry or the GPU gains from.")
    ] = "auto",
    tensorboard: Annotated[Path | None, typer.Option(help="Write TensorBoard's files here.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the configurations and stop.")] = False,
) -> None:
    """Train, phase by phase. Without a preset: LUCIR and LUCIR+CwD on the embedded glyphs."""
    named = {
        "protocol.memory": memory,
        "protocol.class_order": class_order,
        "engine.precision": precision,
        "engine.engine": engine,
        "engine.device": device,
    }
    assignments: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    assignments |= parse_assignments(settings or [])
    configs = choose_configs(presets or [], config, data, method, initial or [], base, step, assignments)
    if epochs is not None:
        configs = [with_epochs(one, epochs) for one in configs]
    jobs = [replace(one, seed=seed) for one in configs for seed in parse_seeds(seeds, one)]
    if resume and out is None:
        raise UserError("--resume goes on in the folder that --out names; say which")
    if resume and overwrite:
        raise UserError(
            "choose one of --resume, which keeps what is there, and --overwrite, which replaces it"
        )
    if dry_run:
        print("---\n".join(job.to_yaml() for job in jobs), end="")
        return
    watch = boards(tensorboard) if tensorboard else None
    with writable(tensorboard, "--tensorboard"):
        written = run_all(
            jobs,
            root=root,
            out=out,
            overwrite=overwrite,
            resume=resume,
            store=store,
            keep_phases=keep_phases,
            parallel=parse_parallel(parallel),
            console=Console(),
            watch=watch,
        )
    print_results(written.records)
    for label, path in written.paths.items():
        Console(soft_wrap=True).print(f"{label:>8}: {path}", markup=False, highlight=False)
    if keep_phases:
        for job, record in zip(jobs, written.records, strict=True):
            warn_of_lost_phases(run_folder(written.folder, job), len(record["phases"]))


def warn_of_lost_phases(folder: Path, phases: int) -> None:
    """--keep-phases keeps what is computed; a run that went on may have had phases before it was asked for."""
    kept = (phase_checkpoint(folder / CHECKPOINT, phase) for phase in range(phases - 1))  # the last always is
    if lost := [str(phase) for phase, path in enumerate(kept) if not path.exists()]:
        warn(f"{folder}: phase {', '.join(lost)} was finished without --keep-phases, so its state is gone")


def with_epochs(config: RunConfig, epochs: int) -> RunConfig:
    """Longer or shorter training of the same shape."""
    first, later = (s.stretched(epochs) for s in (config.training.first, config.training.later))
    return replace(config, training=replace(config.training, first=first, later=later))


@app.command("list")
def list_names(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Methods, phase-0 terms, data sets, networks, class orders, presets and targets, by name."""
    names = {
        "methods": [name for method in METHODS for name in method_names(method)],
        "initial": list(TERMS),
        "data": list(DATA_SETS),
        "networks": list(NETWORKS),
        "class_orders": list(ORDER_NAMES),
        "presets": list(PRESETS),
        "targets": list(TARGETS),
    }
    if as_json:
        print(json.dumps(names, indent=1))
        return
    for kind, entries in names.items():
        print(f"{kind}:")
        for name in entries:
            print(f"  {name}")


def print_results(records: Sequence[Record], classifier: Classifier | None = None) -> None:
    console = Console()
    print_grid(results_grid(records, classifier=classifier), "terminal", console)
    for warning in comparison_warnings(records, classifier):
        console.print(f"warning: {warning}", markup=False, highlight=False)


@app.command()
def show(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Record files, or folders of runs.")],
    head: Annotated[bool, typer.Option("--head", help="The head's numbers for all methods.")] = False,
    nearest_mean: Annotated[bool, typer.Option("--nearest-mean", help="That classifier's for all.")] = False,
    form: Annotated[str, typer.Option("--format", help=", ".join(FORMATS))] = "terminal",
    figure: Annotated[Path | None, typer.Option(help="Draw the curves: .png, .svg or .pdf.")] = None,
) -> None:
    """Tables (and a picture) of finished runs, by each method's own classifier: iCaRL's is the nearest mean."""
    if head and nearest_mean:
        raise UserError("choose one of --head and --nearest-mean")
    if form not in FORMATS:
        raise unknown("table format", form, FORMATS)
    if figure is not None:
        refuse_folder("--figure", figure)
    records = [record for _, record in load_records(those_with(FILE_NAME, runs), warn)]
    classifier: Classifier | None = "nearest_mean" if nearest_mean else "head" if head else None
    if figure is not None:  # first: it may be refused
        draw_curves(records, figure, classifier=classifier)
    if form == "terminal":
        print_results(records, classifier)
    else:
        print_grid(results_grid(records, classifier=classifier), form, Console())
        for warning in comparison_warnings(records, classifier):
            warn(warning)


app.command()(report)
app.command()(reproduce)
app.command()(results)


@data_app.callback(invoke_without_command=True)
def data_sets(
    context: typer.Context,
    root: Annotated[Path | None, typer.Option(help="Where to look; else $PHASEZERO_DATA, ./data.")] = None,
) -> None:
    """Which data sets there are, and whether their files are found."""
    if context.invoked_subcommand:
        return
    where = root or default_root()
    table = Table("name", "found", "what it is", box=None)
    for name in DATA_SETS:
        found = "" if name == "folder" else "yes" if DATA_SETS[name].present(where) else "no"
        table.add_row(name, found, DATA_SETS[name].summary)
    Console().print(table)
    print(f"looked in {where}; get one with: phasezero data get cifar100 --root {where}")


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="cifar100")],
    root: Annotated[Path | None, typer.Option(help="Where to put it; else $PHASEZERO_DATA, ./data.")] = None,
) -> None:
    """Download a data set from its official home, verified."""
    data_set = DATA_SETS[name]
    if data_set.download is None:
        raise UserError(f"data set {name!r} cannot be downloaded: {data_set.summary}")
    data_set.download(root or default_root())


@app.command()
def store(
    folder: Annotated[Path, typer.Argument(envvar="PHASEZERO_STORE", help="The store's folder.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every entry and check its digest.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove the damaged entries.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Remove all entries.")] = False,
) -> None:
    """What a store of finished phase-0 states holds."""
    shelf = PhaseZeroStore(folder)
    damaged = 0
    for entry in list(shelf.entries()):
        sound = entry.sound if verify or prune else True
        damaged += not sound
        size = entry.path.stat().st_size / 2**20 if entry.path.exists() else 0.0
        state = ("sound" if sound else "DAMAGED") if verify or prune else ""
        facts = f"{entry.note.get('name', 'unknown')} seed {entry.note.get('seed', '?')}"
        print(f"{entry.key[:12]}  {size:7.1f} MiB  {facts}  {state}".rstrip())
        if empty or (prune and not sound):
            shelf.remove(entry)
    if damaged and not prune:
        raise UserError(f"{damaged} damaged entries in {folder}; they are never used; --prune removes them")


app.command()(analyze)


def main() -> None:
    """Errors for people: a message and an exit code, no traceback for a user's mistake."""
    try:
        refuse_empty(sys.argv[1:])
        app()
    except UserError as error:
        print(f"phasezero: {error}", file=sys.stderr)
        sys.exit(2)
    except DivergenceError as error:
        print(f"phasezero: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if error.filename is None:  # not about a file or folder that somebody named
            raise
        print(f"phasezero: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print(INTERRUPTION, file=sys.stderr)
        raise
