"""Imports go one way: no module imports anything downstream of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import phasezero

PACKAGE = Path(phasezero.__file__).parent

LAYERS = (
    "phasezero",  # __init__.py: its constants; what it offers lazily is no import
    "errors",
    "validation",
    "plugins steps",
    "registry schedule seeding",
    "records",
    "data nets",
    "memory",
    "methods",
    "initial",
    "config",
    "presets",
    "identity",
    "engine",
    "runs benchmarks",
    "learner",
    "export serve",
    "analysis",
    "report",
    "paper",
    "catalogue",
    "cli",
    "__main__",
)
"""From the bottom up. Names on one line do not import each other."""

HEIGHTS = {name: height for height, names in enumerate(LAYERS) for name in names.split()}


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of this package that a file imports, also within functions and for type checkers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert all(one.name != "phasezero" for one in node.names), f"{path}: say which names, with from"
            yield from (one.name for one in node.names if one.name.startswith("phasezero."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            module = node.module or ""
            if module == "phasezero":  # a public name counts as the module that it is loaded from
                yield from (str(phasezero._HOMES.get(one.name, f"phasezero.{one.name}")) for one in node.names)
            elif module.startswith("phasezero."):
                yield module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            name = node.args[0]
            yield from [str(name.value)] if isinstance(name, ast.Constant) and "phasezero" in str(name.value) else []


def top(module: str) -> str:
    """Return the package or file below phasezero that a module is in; constants of __init__.py are its own."""
    name = module.removeprefix("phasezero").lstrip(".").split(".")[0]
    return name if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() else "phasezero"


def edges() -> set[tuple[str, str, str]]:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        own = place.parts[0].removesuffix(".py")
        if own != "__init__":
            found |= {(str(place), own, top(module)) for module in imported(path)}
    return found


@pytest.mark.parametrize(
    "code",
    [
        "import phasezero.report.tables",
        "def f():\n    from phasezero.report import tables",
        "if TYPE_CHECKING:\n    from phasezero import report",
        "import importlib\nimportlib.import_module('phasezero.report')",
    ],
)
def test_an_import_is_found_wherever_it_is(code: str, tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(code)
    assert list(map(top, imported(file))) == ["report"]
    file.write_text("from phasezero import __version__, alpha, run")
    assert list(map(top, imported(file))) == ["phasezero", "analysis", "runs"]


def test_every_part_has_a_layer() -> None:
    parts = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert parts - {"__init__"} == set(HEIGHTS) - {"phasezero"}


def test_no_module_imports_anything_downstream() -> None:
    wrong = [
        f"{place} imports {other}" for place, own, other in edges() if own != other and HEIGHTS[own] <= HEIGHTS[other]
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_no_package_is_part_of_a_cycle() -> None:
    """What the layers imply, shown without them: every part can be taken away after all that it imports."""
    left = {own: {other for _, one, other in edges() if one == own} - {own} for own in HEIGHTS}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    assert not left, f"a cycle among {', '.join(sorted(left))}"


def test_methods_and_strategies_neither_loop_over_epochs_nor_touch_devices_or_files() -> None:
    for path in [*(PACKAGE / "methods").glob("*.py"), *(PACKAGE / "initial").glob("*.py")]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not {name for name in called if name.split(".")[-1] in ("open", "cuda", "cpu", "backward", "item")}, path
        assert "pathlib" not in path.read_text(), path
