"""What the documentation shows is what works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import phasezero
from phasezero import class_wise_decorrelation, run
from phasezero.data.images import ImageData
from phasezero.methods import METHODS
from phasezero.presets import PRESETS, build_config

ROOT = Path(__file__).parents[1]


def code_blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


def test_the_method_of_the_guide_trains(toy_data: ImageData) -> None:
    (method,) = code_blocks(ROOT / "docs" / "extending.md", "python")
    try:
        exec(compile(method, "extending.md", "exec", dont_inherit=True), {"__name__": "guide"})
        settings = {"training.first.epochs": 1, "training.later.epochs": 1, "protocol.memory": "per_class:2"}
        config = build_config("distil", "glyphs", initial=["cwd"], base=4, step=4).override(settings)
        assert len(run(config, data=toy_data)["phases"]) == 2
    finally:
        METHODS._entries.pop("distil", None)


def test_the_study_of_the_analysis_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = code_blocks(ROOT / "docs" / "analysis.md", "python")
    quick = '{"training.first.epochs": 1, "training.first.batch_size": 512}'
    for words, fewer in (
        ("(10, 25, 50, 100)", "(2, 3)"),
        ('b50s10")', f'b50s10").override({quick})'),
        ('Path("runs/nested")', 'Path("runs/nested"), parallel=1'),
    ):
        assert code.count(words) == 1
        code = code.replace(words, fewer)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "analysis.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert "3 classes" in (tmp_path / "alpha.svg").read_text()


def test_the_readmes_names_exist() -> None:
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"from phasezero import (.+)", text):
        assert all(hasattr(phasezero, part.strip()) for part in name.split(","))
    for name in re.findall(r"phasezero run ([a-z]+[-+/][^ ]+)", text):
        assert name in PRESETS
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / link).exists(), link


def test_the_readmes_term_alone() -> None:
    features = torch.randn(12, 5, requires_grad=True)
    (0.5 * class_wise_decorrelation(features, torch.arange(12) % 3)).backward()
    assert features.grad is not None
    assert bool(features.grad.isfinite().all())
