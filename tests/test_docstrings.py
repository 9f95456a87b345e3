"""Every public name has a docstring with an example, and the example works."""

from __future__ import annotations

import ast
import doctest
import inspect

import pytest

import phasezero

pytestmark = pytest.mark.usefixtures("own_registries")
NAMES = [name for name in phasezero.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_works(name: str, request: pytest.FixtureRequest) -> None:
    thing = getattr(phasezero, name)
    assert inspect.getdoc(thing)
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [one for one in finder.find(thing, name, module=False, globs={}) if one.examples]
    assert found, f"{name} has no example"
    for test in found:
        test.globs = {"getfixture": request.getfixturevalue}
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        said: list[str] = []
        runner.run(test, out=said.append)
        assert not runner.failures, "".join(said)


def test_the_package_itself_has_an_example() -> None:
    assert doctest.testmod(phasezero).attempted >= 2


def test_public_names_are_what_type_checkers_see() -> None:
    """The lazy table and the imports under TYPE_CHECKING name the same things, from the same modules."""
    block = next(node for node in ast.parse(inspect.getsource(phasezero)).body if isinstance(node, ast.If))
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        assert all(one.name == one.asname for one in node.names)
        seen |= {one.name: str(node.module).removeprefix("phasezero.") for one in node.names}
    assert seen == phasezero._HOMES


def test_an_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = phasezero.runn
