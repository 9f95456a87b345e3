"""`phasezero list`: list the names that commands and presets accept."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from phasezero.catalogue import FURTHER, KINDS, names_of, registered


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
        print(f"{title}:")
        for name, line in found.items():
            if name not in variants:
                print(f"  {name:<22}{line}".rstrip())
        if variants:
            print(f"  variants: {', '.join(variants)}")
    if not kind:
        print("more: phasezero list orders | targets | presets [WORD]...")
