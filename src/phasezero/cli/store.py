"""`phasezero store`: list, check and clean a store of finished phase-0 states."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phasezero.errors import UserError


def store(
    folder: Annotated[Path, typer.Argument(envvar="PHASEZERO_STORE", help="Folder of the store.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check the sha256 of every entry.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Remove damaged entries, and what killed runs left.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Remove all entries.")] = False,
) -> None:
    """List the finished phase-0 states in a store."""
    from phasezero.engine.store import PhaseZeroStore

    states = PhaseZeroStore(folder)
    damaged = 0
    for entry in list(states.entries()):
        sound = entry.sound if verify or prune else True
        damaged += not sound
        size = entry.path.stat().st_size / 2**20 if entry.path.exists() else 0.0
        state = ("sound" if sound else "DAMAGED") if verify or prune else ""
        facts = f"{entry.note.get('name', 'unknown')} seed {entry.note.get('seed', '?')}"
        print(f"{entry.key[:12]}  {size:7.1f} MiB  {facts}  {state}".rstrip())
        if empty or (prune and not sound):
            states.remove(entry)
    if prune or empty:
        states.clean(states=empty)
    if damaged and not prune:
        raise UserError(f"{damaged} damaged entries in {folder} (never used); --prune removes them")
