"""List registered names with a line of text each. They are read from the source code, which avoids importing torch.

A registration is a call of `register_method` and the like whose first two arguments are strings. If plug-ins are
loaded or installed, the registries are read instead.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from phasezero import plugins
from phasezero.errors import unknown

KINDS = {
    "methods": ("methods", "register_method"),
    "initial": ("initial", "register_initial"),
    "data": ("data", "register_data"),
    "networks": ("nets", "register_network"),
}
"""The folder of each kind, and the function that registers it."""
FURTHER = ("orders", "presets", "targets")
"""Kinds of names that have no registry."""


def registered() -> dict[str, dict[str, str]]:
    """Return kind -> name -> line of text; variants of methods are separate entries."""
    if plugins.plugin_files() or plugins.installed():
        return from_registries()
    return {kind: dict(sorted(_scan(*where))) for kind, where in KINDS.items()}


def from_registries() -> dict[str, dict[str, str]]:
    """Return the same from the registries."""
    from phasezero.data.catalog import DATA_SETS
    from phasezero.initial import STRATEGIES
    from phasezero.methods import METHODS
    from phasezero.nets import NETWORKS
    from phasezero.presets import method_names

    registries: dict[str, Any] = {"methods": METHODS, "initial": STRATEGIES, "data": DATA_SETS, "networks": NETWORKS}
    found = {kind: {name: registry.summaries[name] for name in registry} for kind, registry in registries.items()}
    variants = {name: f"a variant of {method}" for method in METHODS for name in method_names(method)[1:]}
    return {**found, "methods": dict(sorted({**found["methods"], **variants}.items()))}


def names_of(kind: str, words: Sequence[str]) -> dict[str, str]:
    """Return the entries of one kind whose names contain all of these words."""
    if kind not in (*KINDS, *FURTHER):
        raise unknown("kind", kind, [*KINDS, *FURTHER])
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
    return {name: line for name, line in found.items() if all(word in name for word in words)}


def _scan(folder: str, function: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the line of each registration in a folder, and the variants of methods."""
    for path in sorted((Path(__file__).parent / folder).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == function:
                texts = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
                if len(texts) == 2:
                    yield str(texts[0]), str(texts[1])
            elif isinstance(node, ast.ClassDef):
                yield from _variants(node)


def _variants(method: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the variants that a registered method class lists."""
    names = [ast.literal_eval(one.args[0]) for one in method.decorator_list if isinstance(one, ast.Call) and one.args]
    for node in method.body:
        if names and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "variants":
            assert isinstance(node.value, ast.Dict), f"the variants of {names[0]} are not written as a dictionary"
            for key in filter(None, node.value.keys):
                yield f"{names[0]}-{ast.literal_eval(key)}", f"a variant of {names[0]}"
