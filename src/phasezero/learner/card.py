"""The model card: what a model knows, what it was made from, and how much of the old images it contains."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def card(facts: Mapping[str, Any]) -> str:
    """Return README.md of a model folder, from the content of model.json."""
    classes, backbone = facts["classes"], facts["backbone"]
    phases = 1 + max(entry["phase"] for entry in classes)
    kept = sum(len(entry["exemplars"]) for entry in classes)
    method = facts["config"]["method"]
    name = "-".join(filter(None, [method["name"], method["variant"]]))
    held_out = [entry["held_out_accuracy"] for entry in facts["history"] if entry.get("held_out_accuracy") is not None]
    own = (
        "trained from scratch on these images"
        if backbone is None
        else f"{_plain(backbone['name'])} ({_plain(backbone['source'])}, licence: {_plain(backbone['licence'])})"
    )
    images = sum(entry["images"] for entry in classes)
    lines = [
        f"# Image classifier of {len(classes)} classes",
        "",
        f"Made by phasezero {facts['phasezero']}, version {facts['version']} of {facts['written']}.",
        "",
        f"- Method: `{name}`, {phases} phase{'s' if phases > 1 else ''}",
        f"- Backbone: {own}",
        f"- Images learned: {images}",
        f"- Old images in this folder: {kept or 'none'}"
        + (" (exemplars, without metadata)" if kept else ". Sums over features are kept instead."),
        "- Also kept: a 63-bit hash of each image, to recognise it when it is given again",
    ]
    if held_out:
        lines += [
            "",
            "Accuracy on held-out images of the classes of each phase, among all classes known then, when they were "
            f"learned: {', '.join(f'{100 * value:.1f} %' for value in held_out)}.",
        ]
    lines += ["", "| class | phase | images | exemplars |", "|---|---:|---:|---:|"]
    lines += [f"| {_plain(e['name'])} | {e['phase']} | {e['images']} | {len(e['exemplars'])} |" for e in classes]
    return "\n".join(
        [
            *lines,
            "",
            "```python",
            "from phasezero import Learner",
            "",
            'Learner.load(".").predict(["photo.jpg"])',
            "```",
            "",
        ]
    )


def _plain(text: object) -> str:
    """Escape what Markdown or HTML would read as markup."""
    return re.sub(r"([\\`*_{}\[\]<>|#&])", r"\\\1", str(text))
