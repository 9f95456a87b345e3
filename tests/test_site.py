"""The site: its reference has every command, field and public name, and its links lead to its files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import phasezero
from phasezero import preset
from phasezero.config import leaves
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS

pytest.importorskip("build_site", reason="no tools beside these tests")
from build_site import collect
from site_reference import generate, prose, sentence

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "source"
    collect(folder)
    return folder


@pytest.fixture(scope="module")
def configuration() -> str:
    return "\n".join(generate(kind, "") for kind in ("sections", "methods", "strategies"))


def section(text: str, title: str) -> str:
    """Return the lines below a heading, up to the next heading of its level."""
    level = title.split(" ")[0]
    found = re.search(rf"^{re.escape(title)}\n(.*?)(?=^{level} |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of all rows of tables by the text of the first cell."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_the_reference_has_every_option_that_help_prints(works: Callable[..., tuple[str, str]]) -> None:
    text = generate("commands", "")
    helped = works("--help")[0]
    names = re.findall(r"^  (\w+)  ", helped.partition("Commands:")[2], re.MULTILINE)
    assert len(names) > 15
    for words in ([], *([name] for name in names), ["data", "get"]):
        found = section(text, " ".join(["## phasezero", *words]))
        options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", works(*words, "--help")[0], re.MULTILINE)) - {"--help"}
        assert {option for option in options if f"`{option}`" not in found} == set()
        assert set(re.findall(r"`(--[\w-]+)`", found)) <= options
        assert all(cells[0] for cells in rows(found).values()), "an option without a text"


@pytest.mark.parametrize("name", ["lucir+cwd/cifar100/b50s10", "podnet+sdc+mimic/glyphs/b10s5"])
def test_the_reference_has_every_field_of_a_configuration(name: str, configuration: str) -> None:
    known = rows(configuration)
    for key, _ in leaves(preset(name).to_dict()):
        plain = re.sub(r"initial\.\d", "initial.N", key).replace("training.later.", "training.first.")
        if plain not in ("method.name", "method.variant", "initial.N.name"):
            assert plain in known, key


@pytest.mark.parametrize("registry", [METHODS, STRATEGIES], ids=["method", "initial.N"])
def test_the_reference_has_every_option_of_every_method_and_strategy(
    registry: object, configuration: str, request: pytest.FixtureRequest
) -> None:
    prefix = request.node.callspec.id
    for name in registry:  # type: ignore[attr-defined]
        shown = {key for key in rows(section(configuration, f"### `{name}`")) if key.startswith(f"{prefix}.")}
        fields = registry[name].Options.__dataclass_fields__  # type: ignore[index]
        assert shown == {f"{prefix}.{field}" for field in fields if field not in ("name", "variant")}


def test_every_field_says_what_it_means(configuration: str) -> None:
    fields = {key: cells for key, cells in rows(configuration).items() if re.match(r"name|seed|\w+\.", key)}
    assert len(fields) > 60
    assert [key for key, cells in fields.items() if not cells[-1] or cells[-1] == "Only later phases read it."] == []
    assert fields["training.first.milestones"][:2] == ["list of integer from 0", "`[80, 120]`"]
    assert fields["engine.photos"][0] == "`auto`, `resident`, `files`"


def test_the_reference_of_python_has_every_public_name_once() -> None:
    text = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    names = [name for found in re.findall(r"<!-- generated: api (.+) -->", text) for name in found.split()]
    assert sorted(names) == sorted(set(phasezero.__all__) - {"__version__"})


def test_the_section_of_a_public_name_has_its_signature_text_and_example() -> None:
    text = generate("api", "Schedule load_data")
    assert "class Schedule(" in text
    assert "    epochs: int = 160," in text
    assert "#### `Schedule.stretched`" in text
    assert "load_data(name: str, root: str | Path | None = None) -> ImageData" in text
    assert "```pycon\n>>> from phasezero import load_data" in text
    assert prose("A.\n\n>>> 1\n1\n\nB.") == "A.\n\n\n```pycon\n>>> 1\n1\n```\n\nB.\n"
    assert [sentence(text) for text in ("auto takes it", "T of x", "Done.")] == ["Auto takes it.", "T of x.", "Done."]


def test_links_of_the_site_lead_to_its_files(site: Path) -> None:
    pages = [page for page in site.rglob("*.md") if page.name != "RESULTS.md"]
    assert len(pages) > 30
    for page in [*pages, site / "RESULTS.md"]:
        text = re.sub(r"```.*?```|~~~~.*?~~~~", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", text):
            target = (page.parent / link).resolve()
            assert target.is_file(), f"{page.relative_to(site)}: {link}"
            assert target.is_relative_to(site.resolve())
        assert "<!-- generated" not in text


def test_the_navigation_lists_every_page_of_the_guide(site: Path) -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = set(re.findall(r": (\S+\.md)$", text, re.MULTILINE))
    assert {page for page in listed if not (site / page).is_file()} == set()
    guide = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert guide <= listed


def test_the_pages_load_nothing_from_other_servers(site: Path) -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in config
    shown = [*site.rglob("*.css"), *site.rglob("*.svg")]
    assert len(shown) > 5
    for file in shown:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"(?:@import|url\()\s*[\"']?https?:|<(?:script|image)[^>]+href=[\"']https?:", text), file
