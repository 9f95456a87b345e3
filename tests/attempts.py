"""Run the command on the bad inputs of damage.py, in this process, and judge what it does.

`tools/bad_inputs.py` runs thousands of them; the hypothesis strategy in cli/test_bad_inputs.py runs a few.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest import mock

from damage import KINDS, Case

import phasezero.report.style  # noqa: F401  # matplotlib writes a cache of fonts when it is first imported
from phasezero.cli import main as cli
from phasezero.engine.stage import StagePass

LIMIT = 60  # seconds for a case; a loaded machine takes some for the imports of the first


class StartedError(BaseException):
    """Training began, so the input was accepted."""


class HangError(BaseException):
    """The command did not end in time; no `except Exception` of the program can take it for a damaged file."""


@contextlib.contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    """Raise HangError after some seconds, also while a system call waits."""

    def late(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Outcome:
    case: Case
    result: str
    """rejected, failed (exit code 1), accepted, traceback, hang, no message, or wrote outside."""
    told: str


@contextlib.contextmanager
def no_training() -> Iterator[None]:
    """Stop with StartedError where an epoch would begin."""

    def started(*_: object) -> None:
        raise StartedError

    with mock.patch.object(StagePass, "epoch", started):
        yield


def run_case(kind: str, rng: Random, folder: Path) -> Outcome:
    """Make a bad input in an empty folder, run the command on it in this process, and judge what it did."""
    before = Path.cwd()
    (folder / "in").mkdir(parents=True)
    (folder / "home").mkdir()
    os.chdir(folder)
    changed = {"HOME": str(folder / "home"), "COLUMNS": "100", "PHASEZERO_DATA": str(folder / "none")}
    try:
        with mock.patch.dict(os.environ, changed):
            os.environ.pop("PHASEZERO_STORE", None)
            case = KINDS[kind](rng)
            inputs = listing(folder / "in")
            result, told = run_command(case.arguments)
        known = {"in", "home", "out", *named_outputs(case)}
        strays = sorted({path.name for path in folder.iterdir()} - known)
        shutil.rmtree(folder / "home" / ".cache", ignore_errors=True)  # onnxruntime writes there when it is imported
        if strays or listing(folder / "home") or (inputs != listing(folder / "in") and case.kind != "options"):
            result, told = "wrote outside", f"{strays} {told}"
        return Outcome(case, result, told)
    finally:
        os.chdir(before)


def named_outputs(case: Case) -> set[str]:
    """What the command line names as a place to write, or the command writes next to its input by default."""
    words = case.arguments
    after = {"--out", "--model", "--store", "--tensorboard", "--figure"}
    named = {Path(value).parts[0] for word, value in pairwise(words) if word in after and value}
    return named | {"runs"} if case.kind == "options" else named


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """The files of a folder with their sizes and times; locks and folders do not count."""
    found = []
    for inner, _, files in os.walk(folder):
        for name in files:
            facts = os.lstat(os.path.join(inner, name))
            if name != ".lock":
                found.append((os.path.join(inner, name), facts.st_size, facts.st_mtime_ns))
    return sorted(found)


def run_command(arguments: tuple[str, ...]) -> tuple[str, str]:
    """Run `phasezero ARGUMENTS` and return the result and what it said on stderr."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
    code: object = 0
    try:
        with (
            no_longer_than(LIMIT),
            no_training(),
            mock.patch.object(sys, "argv", ["phasezero", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            cli.main()
    except SystemExit as end:
        code = end.code
    except StartedError:
        return "accepted", ""
    except HangError:
        return "hang", ""
    except BaseException:
        return "traceback", traceback.format_exc()[-1500:]
    err.flush()
    told = err.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    if code in (0, None):
        return "accepted", told
    if "Traceback" in told:
        return "traceback", told[-1500:]
    last = told.strip().splitlines()[-1:] or [""]
    if not (last[0].startswith(("phasezero: ", "Error: ", "Usage: ")) and len(last[0]) < 12_000):
        return "no message", told
    return {2: "rejected", 1: "failed"}.get(code if isinstance(code, int) else -1, f"exit code {code}"), last[0]
