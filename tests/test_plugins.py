"""Outside code works like built-in code: a method, a strategy, a data set and a network, in every command."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from phasezero import UserError, load_plugin, plugins
from phasezero.methods.ridge import ridge
from phasezero.records.run import read_record

Command = Callable[..., tuple[int, str, str]]
EXAMPLES = Path(__file__).parents[1] / "examples"
PLUGIN = EXAMPLES / "plugin" / "phasezero_example.py"
RUN = ["run", "distil+spread/stripes/b4s2", "lucir/stripes/b4s2", "--parallel", "1", "--memory", "per_class:5"]

pytestmark = [
    pytest.mark.usefixtures("own_registries"),
    pytest.mark.skipif(not EXAMPLES.exists(), reason="no examples beside these tests"),
]


def test_a_plugin_file_works_in_every_command(command: Command, tmp_path: Path) -> None:
    def call(*words: str | Path) -> str:
        code, out, err = command("--plugin", PLUGIN, *words)
        assert (code, err) == (0, ""), (words, err)
        return out

    listed = call("list")
    for line in ("distil ", "spread ", "stripes ", "tiny "):
        assert line in listed
    assert "distil+spread/stripes/b4s2" in call("list", "presets", "stripes")
    assert "stripes" in call("data")
    call(*RUN, "--out", "runs", "--store", "store", "--keep-phases", "--tensorboard", "board")
    folder = tmp_path / "runs" / "distil+spread-stripes-b4s2r5" / "seed0"
    record = read_record(folder)
    assert (record["method"], record["initial"], record["config"]["network"]["name"]) == (
        "distil",
        ["spread:0.1"],
        "tiny",
    )
    assert record["phases"][-1]["seen_classes"] == 8
    assert record["environment"]["plugins"] == plugins.loaded_plugins()
    assert "distil+spread " in call("show", "runs")
    call("report", "runs", "-o", "page.html")
    assert "alpha_1" in call("analyze", "runs", "--phase", "0", "--future")
    assert "distil+spread/stripes" in call("store", "store", "--verify")
    table = call(
        "reproduce", "table1", "--data", "stripes", "--method", "lucir,distil+spread", "--seeds", "0", "--out", "x"
    )
    assert "Distil" in table
    assert json.loads(next((tmp_path / "x").rglob("distil*/seed0/record.json")).read_text())["method"] == "distil"
    call("results", "x", "-o", "RESULTS.md")
    # A built-in on the outside network, and an outside method on built-in data.
    call(
        "run", "--method", "icarl", "--set", "network.name=tiny", "--set", "protocol.phase_sizes=[3,1]", "--epochs", "1"
    )
    call("run", "distil/glyphs/sizes3-1,epochs=1")


def test_records_of_a_plugin_can_be_shown_without_it(command: Command, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "phasezero", "--plugin", str(PLUGIN), *RUN, "--out", str(tmp_path / "runs")]
    subprocess.run(words, check=True, capture_output=True)
    shown = {"show": "distil+spread", "report": "", "results": "Not listed: 2 of data sets that plug-ins add."}
    for name, text in shown.items():
        code, out, err = command(name, "runs")
        assert (code, err) == (0, "")
        assert text in out
    code, _, err = command("analyze", "runs")
    assert code == 2
    assert err.startswith("phasezero: unknown ")


def test_an_installed_plugin_is_found(tmp_path: Path) -> None:
    """Also by worker processes; and the list, which is then read off the registries, has it."""
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(EXAMPLES / "plugin", source)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))

    def call(*words: str) -> str:
        program = [sys.executable, "-m", "phasezero", *words]
        done = subprocess.run(
            program, capture_output=True, text=True, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
        )
        return done.stdout

    assert "spread " in call("list")
    call("run", *RUN[1:3], "--parallel", "2", "--memory", "per_class:5", "--out", "runs", "--set", "engine.threads=1")
    record = read_record(tmp_path / "runs" / "distil+spread-stripes-b4s2r5" / "seed0")
    assert list(record["environment"]["plugins"]) == ["example"]


def test_a_plugin_file_reaches_worker_processes(command: Command, tmp_path: Path) -> None:
    words = ["--parallel", "2", "--memory", "per_class:5", "--set", "engine.threads=1", "--out", "runs"]
    code, _, err = command("--plugin", PLUGIN, *RUN[:3], *words)
    assert (code, err) == (0, "")
    records = [read_record(path) for path in (tmp_path / "runs").rglob("record.json")]
    assert [record["environment"]["plugins"] for record in records] == [plugins.loaded_plugins()] * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "a Python file is expected"),
        ("def broken(:\n", "SyntaxError"),
        ("x = 1\ny = undefined\n", "NameError: name 'undefined' is not defined"),
        ("import phasezero\nphasezero.register_method('lucir')(object)\n", "method 'lucir' is already registered"),
    ],
)
def test_a_plugin_that_cannot_be_loaded(text: str | None, words: str, command: Command, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    code, _, err = command("--plugin", "mine.py", "list")
    assert code == 2
    assert words in err
    assert "mine.py" in err
    assert "Traceback" not in err


def test_a_plugin_is_loaded_once(tmp_path: Path) -> None:
    file = tmp_path / "counted.py"
    file.write_text("from pathlib import Path\nPath(__file__).with_suffix('.n').open('a').write('x')\n")
    load_plugin(file)
    load_plugin(str(file))
    assert file.with_suffix(".n").read_text() == "x"
    with pytest.raises(UserError, match="a Python file is expected"):
        load_plugin(tmp_path)


def run_example(name: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, Any]]:
    """Return what an example prints, and its names."""
    names = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out, names


def test_the_example_of_arrays_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert "the first test images are: top," in run_example("train_and_predict.py", capsys)[0]


def test_the_example_of_a_plain_loop_runs(capsys: pytest.CaptureFixture[str]) -> None:
    out, names = run_example("decorrelation_anywhere.py", capsys)
    shares, accuracies = ([float(word) for word in re.findall(rf"{what} ([\d.]+)", out)] for what in ("_1", "classes"))
    assert shares[1] < shares[0] / 2
    assert accuracies[1] > 0.8
    assert_ridge_of_all_classes(ridge(names["products"], names["sums"], 0.01), names["features"], names["labels"])


def test_the_lightning_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lightning")
    out, names = run_example("lightning_module.py", capsys)
    assert float(out.split("accuracy on six classes: ")[1].split()[0]) > 0.8
    assert_ridge_of_all_classes(names["classifier"], names["features"], names["labels"])


def test_the_avalanche_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("avalanche.training", reason="avalanche-lib, or torchvision that it needs, is not installed")
    out, names = run_example("avalanche_plugin.py", capsys)
    assert float(out.split("accuracy on six classes: ")[1].split()[0]) > 0.8
    with torch.no_grad():
        features = names["backbone"](names["images"])
    assert_ridge_of_all_classes(names["model"].train_classifier.weight.detach(), features, names["labels"])


def assert_ridge_of_all_classes(weights: torch.Tensor, features: torch.Tensor, labels: torch.Tensor) -> None:
    """The classifier of sums that were added phase by phase is that of all images at once."""
    own, truth = features.double(), torch.nn.functional.one_hot(labels).double()
    system = own.T @ own
    system += 0.01 * system.trace() / len(system) * torch.eye(len(system))
    assert torch.allclose(weights.double(), torch.linalg.solve(system, own.T @ truth).T, atol=1e-4)
