"""The command `phasezero`: its subcommands, plug-ins, and error messages without tracebacks."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from phasezero import __version__, plugins
from phasezero.cli.analyze import analyze
from phasezero.cli.bench import bench
from phasezero.cli.data import data_app
from phasezero.cli.evaluate import evaluate
from phasezero.cli.export import export
from phasezero.cli.info import info
from phasezero.cli.learn import learn
from phasezero.cli.list import list_names
from phasezero.cli.options import check_empty
from phasezero.cli.predict import predict
from phasezero.cli.report import report
from phasezero.cli.reproduce import reproduce
from phasezero.cli.results import results
from phasezero.cli.run import run
from phasezero.cli.serve import serve
from phasezero.cli.show import show
from phasezero.cli.store import store
from phasezero.cli.undo import undo
from phasezero.cli.verify import verify
from phasezero.engine import interrupt
from phasezero.errors import DivergenceError, UserError
from phasezero.steps import in_lines
from phasezero.validation import printable

QUICK = ("predict", "info", "list")
"""Commands that start no thread or process that outlives them, and have nothing to clean up."""
LONGEST = 4000
"""The most characters of an error message."""
INTERRUPTED = 130
"""Exit code of typer after Ctrl-C."""
STOPPING = "phasezero: stopping, the state of training is being saved; press Ctrl-C again to stop at once"
INTERRUPTION = (
    "phasezero: stopped; what was saved is kept: "
    "`run` continues with --resume, `reproduce` with the same command; `learn` leaves the model as it was"
)

app = typer.Typer(
    help="Class-incremental learning that starts right.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
using = (learn, predict, evaluate, info, undo, export, serve)
training = (run, show, report, analyze, reproduce, verify, results, store, bench)
for command in (*using, *training):
    app.command()(command)
app.command("list")(list_names)
app.add_typer(data_app, name="data")


def show_version(wanted: bool) -> None:
    if wanted:
        print(f"phasezero {__version__}")
        raise typer.Exit


@app.callback()
def phasezero(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=show_version, is_eager=True)
    ] = False,
    plugin: Annotated[list[Path] | None, typer.Option(help="Load a Python file as a plug-in. Repeatable.")] = None,
) -> None:
    for path in plugin or []:
        plugins.load_plugin(path)


def one_line(message: object) -> str:
    """Return a message as one line of printable text, without the middle of a very long one."""
    text = printable(str(message))
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def entry() -> None:
    """Run the command of the shell.

    Quick commands end without Python's tear-down of torch (half a second) and without collecting garbage, which is
    mostly looked for while torch is imported.
    """
    if not {*sys.argv[1:2]} <= {*QUICK}:
        main()
        return
    gc.disable()
    code: str | int | None = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):  # a reader such as `head` has left
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def main() -> None:
    """Run the command; print a user's mistake as a message without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name may be no UTF-8; stderr does this already
    try:
        check_empty(sys.argv[1:])
        with interrupt.graceful(STOPPING):
            app()
    except (UserError, DivergenceError) as error:
        print(in_lines(f"phasezero: {one_line(error)}", sys.stderr), file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except OSError as error:
        if error.filename is None:  # not an error about a file or folder
            raise
        print(f"phasezero: {one_line(error.filename)}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print(in_lines(INTERRUPTION, sys.stderr), file=sys.stderr)
            sys.exit(interrupt.exit_code())
        raise
