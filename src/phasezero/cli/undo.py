"""`phasezero undo`: return a model to the version before the last change."""

from __future__ import annotations

import sys

from phasezero.cli.options import Model, counted
from phasezero.validation import printable


def undo(model: Model) -> None:
    """Return a model to the version before `learn` changed it last."""
    from phasezero.learner.folder import locked, read_model, undo as return_to_previous

    read_model(model)  # before the folder is locked, which makes it
    with locked(model, say=lambda message: print(message, file=sys.stderr)):
        before = read_model(model)
        return_to_previous(model)
        facts = read_model(model)
    names = {entry["name"] for entry in facts["classes"]}
    forgotten = [str(entry["name"]) for entry in before["classes"] if entry["name"] not in names]
    images = sum(entry["images"] for entry in facts["classes"])
    print(f"{model}: version {facts['version']}, {counted(len(names), 'class')}, {counted(images, 'photo')}")
    if forgotten:
        print(printable(f"forgotten: {', '.join(forgotten)}"))
