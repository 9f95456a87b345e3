"""`phasezero list` and `--help`: complete, on one screen, and without loading torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from phasezero.catalogue import from_registries, registered
from phasezero.presets import published_presets

Command = Callable[..., tuple[int, str, str]]
Works = Callable[..., tuple[str, str]]


def test_the_source_code_tells_what_the_registries_hold() -> None:
    assert registered() == from_registries()
    assert all(line for kind in registered().values() for line in kind.values())


def test_the_list_fits_on_one_screen(works: Works) -> None:
    out, _ = works("list")
    lines = out.splitlines()
    assert len(lines) <= 45
    assert all(len(line) <= 80 for line in lines if "variants:" not in line)
    assert all(name in out for kind in registered().values() for name in kind)


@pytest.mark.parametrize("kind", ["methods", "initial", "data", "networks", "orders", "presets", "targets"])
def test_one_kind_narrowed_by_words(kind: str, command: Command) -> None:
    _, out, _ = command("list", kind, "--json")
    (names,) = json.loads(out).values()
    assert names
    if kind == "presets":
        assert set(names) == set(published_presets())
        _, out, _ = command("list", kind, "lucir", "glyphs")
        shown = [line.strip() for line in out.splitlines()[1:]]
        assert shown == [name for name in names if "lucir" in name and "glyphs" in name]
        assert "lucir+cwd/glyphs/b50s10" in shown


@pytest.mark.parametrize(
    "words", [["--help"], ["list"], ["list", "targets"], ["run", "--help"], ["--version"], ["data"]]
)
def test_quick_commands_load_neither_torch_nor_matplotlib(words: list[str]) -> None:
    program = (
        "import sys\nfrom phasezero.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("[]")


def test_a_quick_command_ends_with_its_whole_output_and_its_exit_code() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "phasezero", *words], capture_output=True, text=True)

    listed = run("list")
    assert (listed.returncode, listed.stderr) == (0, "")
    lines = listed.stdout.splitlines()
    assert (lines[0], lines[-1][:20]) == ("methods:", "more: phasezero list")
    missing = run("info", "--model", "nowhere")
    assert missing.returncode == 2
    assert missing.stderr.startswith("phasezero: nowhere: there is no model here")
    assert run("predict", "--nonsense").returncode == 2
