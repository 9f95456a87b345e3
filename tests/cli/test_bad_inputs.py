"""Bad inputs of every kind end with a message: no traceback, no endless wait, nothing written elsewhere."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from attempts import no_longer_than, run_case
from damage import KINDS, keep_photos, keep_record
from hypothesis import HealthCheck, given, settings, strategies as st

Command = Callable[..., tuple[int, str, str]]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(kind=st.sampled_from(list(KINDS)), rng=st.randoms(use_true_random=True))
def test_generated_bad_inputs_are_rejected_with_a_message(kind: str, rng: Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outcome = run_case(kind, rng, Path(folder))
    assert outcome.result in ("rejected", "accepted"), outcome


def rejected(command: Command, *arguments: str | Path) -> str:
    with no_longer_than(60):
        code, _, err = command(*arguments)
    assert code == 2
    (line,) = [line for line in err.splitlines() if not line.startswith("phasezero: warning")]
    assert line.startswith("phasezero: ")
    return line


@pytest.mark.parametrize("text", ["a: " + "[" * 1000, "\n".join(" " * depth + "a:" for depth in range(1000))])
def test_deeply_nested_yaml(command: Command, text: str) -> None:
    Path("deep.yaml").write_text(text)
    assert "not YAML: it is nested too deeply" in rejected(command, "run", "--config", "deep.yaml")
    assert "nested too deeply" in rejected(command, "run", "--set", f"seed={'[' * 1000}")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--data", "folder:~nobody_x", "--base", "1", "--step", "1"),
        ("run", "lucir/cifar100/b50s10", "--root", "~nobody_x"),
        ("--plugin", "~nobody_x/plugin.py", "list"),
    ],
)
def test_an_unknown_user(command: Command, words: tuple[str, ...]) -> None:
    assert "there is no such user" in rejected(command, *words)


@pytest.mark.parametrize("words", [("show",), ("analyze", "--read"), ("run", "--config")])
def test_pipes_and_devices_are_not_read(command: Command, words: tuple[str, ...]) -> None:
    os.mkfifo("pipe")
    for name in ("pipe", "/dev/zero"):
        assert name in rejected(command, *words, name)


def test_a_pipe_among_the_photos_and_in_a_model(command: Command) -> None:
    os.mkfifo("pipe.jpg")
    assert "pipe.jpg cannot be read" in rejected(command, "predict", "pipe.jpg", "--model", "m")
    Path("m").mkdir()
    os.mkfifo("m/model.json")
    assert "there is no model here" in rejected(command, "info", "--model", "m")


@pytest.mark.parametrize("option", ["--out", "--store", "--tensorboard"])
def test_a_path_that_is_not_utf8_is_rejected_before_training(command: Command, option: str) -> None:
    keep = () if option == "--out" else ("--out", "out")
    words = ("run", "lucir/glyphs/b50s10", "--set", "protocol.phase_sizes=[2]", "--epochs", "1", *keep)
    assert f"{option}: 'a\\udcff' has a character that cannot be printed" in rejected(
        command, *words, option, "a\udcff"
    )
    assert not list(Path().iterdir())


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_figure_on_a_full_disk(command: Command, suffix: str) -> None:
    keep_record("run")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))  # as a full disk, with another number
    try:
        told = rejected(command, "show", "run", "--figure", f"plot.{suffix}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert told == f"phasezero: plot.{suffix}: File too large"
    assert [path.name for path in Path().iterdir()] == ["run"]


def test_a_message_is_one_printable_line(command: Command) -> None:
    told = rejected(command, "run", f"lucir\x1b[2J\n{'x' * 100_000}/glyphs/b50s10")
    assert "\\x1b[2J\\n" in told
    assert len(told) < 5000


def test_a_truncated_photo_of_a_later_class_stops_a_run_before_training(command: Command) -> None:
    last = keep_photos("photos", classes=3)[-1]
    last.write_bytes(last.read_bytes()[:-100])
    words = ("--data", "folder:photos", "--base", "1", "--step", "1", "--method", "lucir", "--out", "out")
    assert "class2/2.jpg cannot be read: image file is truncated" in rejected(command, "run", *words)
    assert not Path("out").exists()
