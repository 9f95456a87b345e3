"""A small model of coloured photos, and a copy of it for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from phasezero.learner import Learner
from samples import COLOURS, make_photo


@pytest.fixture(scope="package")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, with the embedded backbone and two kept photos of each."""
    photos = [(make_photo(COLOURS[name], seed), name) for name in ("red", "blue") for seed in range(4)]
    return Learner(memory="per_class:2", device="cpu").fit(photos).save(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture
def folder(taught: Path, tmp_path: Path) -> Path:
    return shutil.copytree(taught, tmp_path / "model")


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Any]]:
    """Return the client of an application that serves the folder, with limits."""
    from starlette.testclient import TestClient

    from phasezero.serve.app import create_app
    from phasezero.serve.limits import Limits
    from phasezero.serve.state import Model

    clients = []

    def start(where: Path = folder, *, host: str = "127.0.0.1", token: str | None = None, **limits: Any) -> Any:
        model = Model(where, device="cpu", limits=Limits(**limits))
        model.ready.result()
        client = TestClient(create_app(model, host=host, token=token), base_url="http://127.0.0.1:8000")
        clients.append(client.__enter__())
        client.app_state["model"] = model
        return client

    yield start
    for client in clients:
        client.__exit__()


@pytest.fixture
def client(serve: Callable[..., Any]) -> Any:
    return serve()
