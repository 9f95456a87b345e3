"""What the documentation shows is what works: links, names, presets, commands and Python blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
import yaml
from PIL import Image

import phasezero
from phasezero import load_plugin, preset, read_record
from phasezero.cli.main import app

ROOT = Path(__file__).parents[1]
FOUND = [page for where in (".", "docs", "notebook", "examples") for page in sorted((ROOT / where).glob("*.md"))]
PAGES = [str(page.relative_to(ROOT)) for page in FOUND if page.name != "RESULTS.md"]  # which has tests of its own
PLUGIN = ROOT / "examples" / "plugin" / "phasezero_example.py"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

pytestmark = [
    pytest.mark.usefixtures("own_registries"),
    pytest.mark.skipif(not (ROOT / "docs").exists(), reason="no documentation beside these tests"),
]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def execute(page: str, code: str, **names: object) -> None:
    exec(compile(code, page, "exec", dont_inherit=True), {"__name__": "__main__", **names})


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_and_presets_are_presets(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"
    load_plugin(PLUGIN)
    data = r"(?:glyphs|stripes|cifar100|imagenet[-0-9a-z]*|folder:\w+)"
    for name in re.findall(rf"\b[a-z]+[-+:.0-9a-z]*/{data}/(?:b\d|sizes)[^\s`\"')]*\w", text):
        assert preset(name).name == name


def test_commands_can_be_given(command: Callable[..., tuple[int, str, str]]) -> None:
    """The parser reads each command of the documentation; what `run` would do is also printed, as a configuration."""
    lines = [part.strip() for page in PAGES for block in blocks(page, "sh") for part in re.split(r"\n|&&", block)]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("phasezero ")]
    assert len(commands) > 20
    for name, *words in (one[2:] if one[0] == "--plugin" else one for one in commands):
        COMMANDS[name].make_context(name, list(words))
        if name == "run":
            code, out, err = command("--plugin", PLUGIN, name, *words, "--dry-run")
            assert (code, err) == (0, ""), words
            assert all(one["name"] for one in yaml.safe_load_all(out))


def draw_photos(folder: Path, classes: dict[str, list[str]]) -> None:
    """Write three noisy photos of each class, and new.jpg."""
    rng = np.random.default_rng(0)
    for place, (part, names) in enumerate(classes.items()):
        for colour, name in enumerate(names):
            (folder / part / name).mkdir(parents=True)
            for number in range(3):
                pixels = rng.integers(0, 80, (40, 60, 3)) + np.eye(3, dtype=int)[(colour + 2 * place) % 3] * 150
                Image.fromarray(pixels.astype(np.uint8)).save(folder / part / name / f"{number}.jpg")
    Image.fromarray(pixels.astype(np.uint8)).save(folder / "new.jpg")


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    photos, training, term = blocks("README.md", "python")
    draw_photos(tmp_path, {"photos": ["cat", "dog"], "more": ["emu"]})
    execute("README.md", photos)
    assert (tmp_path / "animals" / "model.json").is_file()
    assert training.count("b50s10") == 1
    execute("README.md", training.replace("b50s10", "sizes2-2,epochs=1"))
    assert read_record("runs/mine")["phases"][-1]["seen_classes"] == 4
    features = torch.randn(12, 5, requires_grad=True)
    named = {"features": features, "logits": features[:, :3], "labels": torch.arange(12) % 3}
    execute("README.md", f"{term}\nloss.backward()", cross_entropy=torch.nn.functional.cross_entropy, **named)
    assert features.grad.isfinite().all()


def test_the_guides_plugin_trains(capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks("docs/extending.md", "python")
    assert "@register_method" in code[0]
    execute("docs/extending.md", "\n".join(code))
    assert "phase 2, train 2/2: loss" in capsys.readouterr().out
    assert preset("distil+cwd/glyphs/b50s10").name == "distil+cwd/glyphs/b50s10"


def test_the_study_of_the_analysis_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks("docs/analysis.md", "python")
    for words, fewer in (
        ("(10, 25, 50, 100)", "(2, 3)"),
        ("b50s10", "b50s10,epochs=1,training.first.batch_size=512"),
        ('Path("runs/nested")', 'Path("runs/nested"), parallel=1'),
    ):
        assert code.count(words) == 1
        code = code.replace(words, fewer)
    monkeypatch.chdir(tmp_path)
    execute("docs/analysis.md", code)
    assert "3 classes" in (tmp_path / "alpha.svg").read_text()


def test_the_api_page_lists_every_public_name_where_it_is() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    homes = {name: f"../src/{home.replace('.', '/')}.py" for name, home in phasezero._HOMES.items()}
    assert set(re.findall(r"^\| \[`(\w+)`\]\((\S+)\)", text, re.MULTILINE)) == set(homes.items())
