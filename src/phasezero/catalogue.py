"""What is registered, by name, with one line each: read off the source code, because importing torch takes a second.

A registration is a call of `register_method`, `register_initial`, `register_data` or `register_network` whose first two
arguments are texts. Where plug-ins are loaded or installed, the registries themselves are asked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from phasezero import plugins
from phasezero.errors import unknown

KINDS = {"methods": "methods", "initial": "initial", "data": "data", "networks": "nets"}
"""Kinds that are registered, and the folders of their files."""
FURTHER = ("orders", "presets", "targets")
"""Kinds of names that are not registered."""


def registered() -> dict[str, dict[str, str]]:
    """Return kind -> name -> one line; variants of methods are entries of their own."""
    if plugins.plugin_files() or plugins.installed():
        return from_registries()
    return {kind: dict(sorted(_scan(kind))) for kind in KINDS}


def from_registries() -> dict[str, dict[str, str]]:
    """Return the same from the registries."""
    from phasezero.data.catalog import DATA_SETS
    from phasezero.initial import TERMS
    from phasezero.methods import METHODS
    from phasezero.nets import NETWORKS
    from phasezero.presets import method_names

    found = {
        "initial": {name: TERMS.summaries[name] for name in TERMS},
        "data": {name: DATA_SETS.summaries[name] for name in DATA_SETS},
        "networks": {name: NETWORKS.summaries[name] for name in NETWORKS},
    }
    methods = {
        name: METHODS.summaries[one] if name == one else f"a variant of {one}"
        for one in METHODS
        for name in method_names(one)
    }
    return {"methods": dict(sorted(methods.items())), **found}


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


def _scan(kind: str) -> Iterator[tuple[str, str]]:
    register = f"register_{kind.removesuffix('s')}"
    for path in sorted((Path(__file__).parent / KINDS[kind]).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == register:
                texts = [one.value for one in node.args[:2] if isinstance(one, ast.Constant)]
                if len(texts) == 2:
                    yield str(texts[0]), str(texts[1])
            if kind == "methods" and isinstance(node, ast.ClassDef):
                yield from _variants(node)


def _variants(method: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the variants that a decorated method class lists."""
    calls = [one for one in method.decorator_list if isinstance(one, ast.Call) and one.args]
    listed = [node.value for node in method.body if isinstance(node, ast.Assign) and _names(node) == ["variants"]]
    for call, variants in zip(calls, listed, strict=False):
        name = ast.literal_eval(call.args[0])
        assert isinstance(variants, ast.Dict), f"the variants of {name} are not written as a dictionary"
        for key in variants.keys:
            yield f"{name}-{ast.literal_eval(key or call)}", f"a variant of {name}"


def _names(node: ast.Assign) -> list[str]:
    return [ast.unparse(target) for target in node.targets]
