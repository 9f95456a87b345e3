"""`phasezero info`: what a model knows, and what it was made from."""

from __future__ import annotations

from phasezero.cli.options import Model, counted
from phasezero.validation import printable


def info(model: Model) -> None:
    """Show the classes of a model, what it was made from, and which photos it contains."""
    from rich.console import Console

    from phasezero.learner.folder import PREVIOUS, read_model
    from phasezero.report.grid import Grid, print_grid

    facts = read_model(model)
    classes, backbone, method = facts["classes"], facts["backbone"], facts["config"]["method"]
    kept = sum(len(entry["exemplars"]) for entry in classes)
    learned = counted(sum(entry["images"] for entry in classes), "photo")
    phases = 1 + max(entry["phase"] for entry in classes)
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 2**20
    accuracies = [
        entry["held_out_accuracy"] for entry in facts["history"] if entry.get("held_out_accuracy") is not None
    ]
    lines = {
        "version": f"{facts['version']}, written {facts['written']} by phasezero {facts['phasezero']}",
        "method": "-".join(filter(None, [method["name"], method["variant"]])),
        "backbone": "trained from scratch on these photos"
        if backbone is None
        else f"{backbone['name']} ({backbone['source']}; licence: {backbone['licence']})",
        "learned": f"{counted(len(classes), 'class')} in {counted(phases, 'phase')}, {learned}",
        "contains": f"{counted(kept, 'photo') if kept else 'no photos'}, and a hash of each photo",
        "accuracy": ", ".join(f"{100 * value:.1f} %" for value in accuracies)
        + " (held-out photos of each phase, when it was learned)"
        if accuracies
        else "not measured",
        "size": f"{size:.1f} MiB",
        "undo": "possible" if (model / PREVIOUS).exists() else "no earlier version",
    }
    for title, text in lines.items():
        print(printable(f"{title:<10}{text}"))
    rows = [
        [printable(str(entry["name"])), str(entry["phase"]), str(entry["images"]), str(len(entry["exemplars"]))]
        for entry in classes
    ]
    print_grid(Grid(["class", "phase", "photos", "kept"], rows), "terminal", Console())
