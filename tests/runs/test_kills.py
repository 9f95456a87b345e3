"""Runs that are killed at random moments within phases, twenty times and more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "kill_runs.py"


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="the tool forks")
def test_killed_runs_continue_to_the_same_records(tmp_path: Path) -> None:
    out = tmp_path / "kills.json"
    words = [sys.executable, TOOL, "--kills", "21", "--only", "lucir", "aanet", "ridge", "--out", out]
    done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert (found["kills"], found["all_equal"]) == (21, True)
    assert all(run["left_files"] == [] for run in found["runs"].values())
