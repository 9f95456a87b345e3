"""`phasezero list`: what there is, by name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from phasezero.errors import unknown

KINDS = ("methods", "initial", "data", "networks", "orders", "presets", "targets")


def list_names(
    kind: Annotated[str, typer.Argument(metavar="[KIND]", help=", ".join(KINDS))] = "",
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Only names with these words in them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Methods, phase-0 strategies, data sets and networks; of one kind: all names, such as `list presets lucir`."""
    from phasezero.catalogue import registered

    if kind and kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    entries = names_of(kind, words or []) if kind else registered()
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


def names_of(kind: str, words: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the entries of one kind whose names have all these words in them."""
    from phasezero.catalogue import registered

    if kind == "presets":
        from phasezero.presets import published_presets

        found = dict.fromkeys(published_presets(), "")
    elif kind == "orders":
        from phasezero.data.stream import ORDER_NAMES

        found = dict.fromkeys(ORDER_NAMES, "")
    elif kind == "targets":
        from phasezero.paper.targets import TARGETS

        found = {name: target.title for name, target in TARGETS.items()}
    else:
        found = registered()[kind]
    return {kind: {name: line for name, line in found.items() if all(word in name for word in words)}}
