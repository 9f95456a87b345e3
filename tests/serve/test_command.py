"""`phasezero serve`: what it prints, what it refuses, and a server that answers until it is stopped."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")

Command = Callable[..., tuple[int, str, str]]


def test_a_server_answers_until_it_is_stopped(folder: Path) -> None:
    words = [sys.executable, "-m", "phasezero", "serve", "--model", str(folder), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert "(2 classes)" in server.stdout.readline()
            port = int(server.stdout.readline().rstrip("/\n").rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", "/classes")
            assert [one["name"] for one in json.load(connection.getresponse())["classes"]] == ["blue", "red"]
            connection.close()
            server.send_signal(signal.SIGINT)
            rest, complaints = server.communicate(timeout=20)
        finally:
            server.kill()
    assert (server.returncode, rest, complaints) == (0, "stopped\n", "")


def test_an_open_address_gets_a_token(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    monkeypatch.delenv("PHASEZERO_TOKEN", raising=False)
    printed = [command("serve", "--model", folder, "--host", "0.0.0.0", "--port", "0")[1] for _ in range(2)]
    tokens = {text.strip().rpartition("#token=")[2] for text in printed}
    assert len(tokens) == 2
    assert all(len(token) >= 24 for token in tokens)
    _, out, _ = command("serve", "--model", folder, "--host", "0.0.0.0", "--port", "0", "--token", "mine")
    assert out.endswith("#token=mine\n")
    _, out, _ = command("serve", "--model", folder, "--port", "0")
    assert "token" not in out


def test_what_cannot_be_served(command: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*words: str | Path) -> str:
        code, _, err = command("serve", "--port", "0", *words)
        assert code == 2
        return err

    assert "there is no model here" in refused("--model", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    assert "--token" in refused("--model", folder, "--token", "two words")
    assert "cannot listen there" in refused("--model", folder, "--host", "256.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "choose another port" in command("serve", "--model", folder, "--port", port)[2]

    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert "pip install 'phasezero[serve]'" in refused("--model", folder)
