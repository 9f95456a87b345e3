"""`phasezero list`: list the names that commands and presets accept."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from phasezero.catalogue import FURTHER, KINDS, names_of, registered
from phasezero.steps import in_lines


def list_names(
    kind: Annotated[str, typer.Argument(metavar="[KIND]", help=", ".join([*KINDS, *FURTHER]))] = "",
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Show only names that contain all these words.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List methods, phase-0 strategies, data sets and networks, or names of one kind: `list presets lucir`."""
    entries = {kind: names_of(kind, words or [])} if kind else registered()
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    for title, found in entries.items():
        variants = [] if kind else [name for name, line in found.items() if line.startswith("a variant of ")]
        room = 2 + max((len(name) for name in found if name not in variants), default=0)
        print(f"{title}:")
        for name, line in found.items():
            if name not in variants:
                print(in_lines(f"  {name:<{room}}{line}".rstrip(), sys.stdout, " " * (room + 2)))
        if variants:
            print(in_lines(f"  variants: {', '.join(variants)}", sys.stdout, " " * 12))
    if not kind:
        print("more: phasezero list orders | targets | presets [WORD]...")
