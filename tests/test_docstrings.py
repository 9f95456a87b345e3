"""Every public name has a docstring with an example, and the example works."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

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


def test_type_checkers_see_every_public_name() -> None:
    """A stub exports a name only if it is imported as itself."""
    stub = Path(phasezero.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert set(re.findall(r"(\w+) as \1\b", stub)) == set(NAMES)


def test_an_unknown_public_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = phasezero.runn
