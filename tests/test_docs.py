"""What the documentation shows is what works: links, names, presets, commands and Python blocks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
import yaml
from PIL import Image

from phasezero import load_plugin, preset, presets, read_record
from phasezero.cli.main import app

ROOT = Path(__file__).parents[1]
FOUND = [
    *ROOT.glob("*.md"),
    *(page for where in ("docs", "notebook", "examples") for page in ROOT.glob(f"{where}/**/*.md")),
]
PAGES = sorted(str(page.relative_to(ROOT)) for page in FOUND if page.name != "RESULTS.md")  # which has tests of its own
PLUGIN = ROOT / "examples" / "plugin" / "phasezero_example.py"
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]

pytestmark = [
    pytest.mark.usefixtures("own_registries"),
    pytest.mark.skipif(not (ROOT / "docs").exists(), reason="no documentation beside these tests"),
]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def execute(page: str, code: str, **names: object) -> dict[str, object]:
    space = {"__name__": "__main__", **names}
    exec(compile(code, page, "exec", dont_inherit=True), space)
    return space


def commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each command of a page, without `phasezero`; lines may be joined, and set variables first."""
    for block in blocks(page, "sh") + blocks(page, "bash"):
        for part in re.split(r"\n|&&", block):
            line = re.sub(r"^(\w+=\S+ )*|&$", "", part.strip())
            if line.startswith("phasezero "):
                yield shlex.split(line, comments=True)[1:]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere_and_presets_are_presets(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", text):
        target = (ROOT / page).parent / link if link else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"
    load_plugin(PLUGIN)
    load_plugin(write_keep(tmp_path))
    data = r"(?:glyphs|stripes|cifar100|imagenet[-0-9a-z]*|folder:\w+)"
    for name in re.findall(rf"\b[a-z]+[-+:.0-9a-z]*/{data}/(?:b\d|sizes)[^\s`\"')]*\w", text):
        assert preset(name).name == name


@pytest.mark.parametrize("page", [page for page in PAGES if any(commands(page))])
def test_commands_can_be_given(page: str, command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    """The parser reads each command. What `run` would do is printed, too, and plans of `reproduce` on glyphs."""
    plugins = ("--plugin", PLUGIN, "--plugin", write_keep(tmp_path))
    for name, *words in (one[2:] if one[0] == "--plugin" else one for one in commands(page)):
        COMMANDS[name].make_context(name, list(words))
        if name == "run":
            code, out, err = command(*plugins, name, *words, "--dry-run")
            assert (code, err) == (0, ""), words
            assert all(one["name"] for one in yaml.safe_load_all(out))
        elif name == "list" or (name == "reproduce" and "glyphs" in words):
            code, out, err = command(*plugins, name, *words, *(["--dry-run"] if name == "reproduce" else []))
            assert (code, err) == (0, ""), words
            assert out


def test_the_pages_have_commands() -> None:
    assert len([words for page in PAGES for words in commands(page)]) > 60
    assert {words[0] for page in PAGES for words in commands(page)} >= COMMANDS.keys()


def write_keep(folder: Path) -> Path:
    """Write the method of the tutorial to a file."""
    path = folder / "keep.py"
    path.write_text(blocks("docs/tutorials/method.md", "python")[0], encoding="utf-8")
    return path


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


def test_a_newcomer_follows_the_readme(
    works: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commands in their order: the first plot, a planned cell of Table 1, an own method, an own model served.

    The first run has fewer and smaller runs here, and the server is started without a port.
    """
    first, cell, plan, own, learn, serve = (words for words in commands("README.md") if words != ["list"])
    assert first == ["run"]
    small = [f"{method}/glyphs/sizes2-2,epochs=1,training.first.batch_size=512" for method in ("lucir", "ncm")]
    monkeypatch.setattr(presets, "FIRST_RUN", tuple(small))
    out, _ = works(*first, "--out", "first", "--parallel", "1")
    assert "curves.png" in out
    assert all(Path("first", name).is_file() for name in ("curves.png", "report.html", "results.md"))

    printed = [*yaml.safe_load_all(works(*cell)[0])]
    assert [(one["name"], one["seed"]) for one in printed] == [("lucir+cwd/cifar100/b50s10", seed) for seed in range(3)]
    assert "27 runs" in works(*plan)[0]

    assert own[:2] == ["--plugin", str(PLUGIN.relative_to(ROOT))]
    works("--plugin", PLUGIN, *own[2:], "--out", "own", "--parallel", "1")
    (record,) = Path("own").glob("*/*/record.json")
    assert read_record(record)["phases"][-1]["seen_classes"] == 8

    testclient = pytest.importorskip("starlette.testclient")
    from phasezero.serve.app import create_app
    from phasezero.serve.limits import Limits
    from phasezero.serve.state import Model

    draw_photos(tmp_path, {"photos": ["cat", "dog"]})
    works(*learn)
    assert serve == ["serve", "--model", "animals"]
    model = Model(Path("animals"), device="cpu", limits=Limits())
    with testclient.TestClient(create_app(model), base_url="http://127.0.0.1:8000") as client:
        model.ready.result()
        content = {"content": Path("new.jpg").read_bytes(), "headers": {"Content-Type": "image/jpeg"}}
        assert client.post("/predict", **content).json()["predictions"][0]["name"] in ("cat", "dog")


def test_the_readmes_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (photos,) = blocks("README.md", "python")
    assert len([line for line in photos.splitlines() if line]) == 5
    draw_photos(tmp_path, {"photos": ["cat", "dog"], "more": ["emu"]})
    execute("README.md", photos)
    assert (tmp_path / "animals" / "model.json").is_file()


def test_the_first_pages_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/getting-started.md"
    monkeypatch.chdir(tmp_path)
    training, term = blocks(page, "python")
    assert training.count("b50s10") == 1
    execute(page, training.replace("b50s10", "sizes2-2,epochs=1"))
    assert read_record("runs/mine")["phases"][-1]["seen_classes"] == 4
    features = torch.randn(12, 5, requires_grad=True)
    named = {"features": features, "logits": features[:, :3], "labels": torch.arange(12) % 3}
    execute(page, f"{term}\nloss.backward()", cross_entropy=torch.nn.functional.cross_entropy, **named)
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_the_method_of_the_tutorial_trains_and_its_test_passes(
    works: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    _, check = blocks("docs/tutorials/method.md", "python")
    keep = write_keep(tmp_path)
    assert len(keep.read_text().splitlines()) <= 40
    small = [f"{name}/glyphs/sizes2-2,epochs=1,training.first.batch_size=512" for name in ("keep", "lucir")]
    out, _ = works("--plugin", keep, "run", *small, "--out", "o", "--parallel", "1")
    assert "keep" in out
    records = {path: read_record(path) for path in Path("o").glob("*/*/record.json")}
    shared = [record["timing"]["reused_phase_zero"] for record in records.values()]
    assert sorted(shared) == [False, True]  # phase_zero_like
    execute("docs/tutorials/method.md", keep.read_text().replace('"keep"', '"kept"') + check)


def test_the_guides_plugin_trains(capsys: pytest.CaptureFixture[str]) -> None:
    page = "docs/how-to/extending.md"
    code = blocks(page, "python")
    assert "@register_method" in code[0]
    execute(page, "\n".join(code))
    assert "phase 2, train 2/2: loss" in capsys.readouterr().out
    assert preset("distil+cwd/glyphs/b50s10").name == "distil+cwd/glyphs/b50s10"


def test_the_study_of_the_analysis_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/how-to/analysis.md"
    (code,) = blocks(page, "python")
    for words, fewer in (
        ("(10, 25, 50, 100)", "(2, 3)"),
        ("b50s10", "b50s10,epochs=1,training.first.batch_size=512"),
        ('Path("runs/nested")', 'Path("runs/nested"), parallel=1'),
    ):
        assert code.count(words) == 1
        code = code.replace(words, fewer)
    monkeypatch.chdir(tmp_path)
    execute(page, code)
    assert "3 classes" in (tmp_path / "alpha.svg").read_text()


@pytest.mark.parametrize("page", ["docs/how-to/photos.md", "docs/how-to/serve.md", "docs/how-to/backbones.md"])
def test_the_python_of_a_guide_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where = "photos/train" if "photos/train" in blocks(page, "python")[0] else "photos"
    draw_photos(tmp_path, {where: ["cat", "dog"], "more": ["emu"]})
    for code in blocks(page, "python"):
        execute(page, code)


def test_every_python_block_is_run() -> None:
    """By a test of this file, or by tests/test_export.py."""
    run_here = {"README.md", "docs/getting-started.md", "docs/tutorials/method.md"}
    guides = ("analysis", "backbones", "export", "extending", "photos", "serve")
    run_here |= {f"docs/how-to/{name}.md" for name in guides}
    assert {page for page in PAGES if blocks(page, "python")} == run_here
