"""`phasezero serve`: a page and an HTTP API for a model."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from phasezero.cli.options import Device
from phasezero.errors import UserError

NEEDED = ("starlette", "uvicorn", "python-multipart")


def serve(
    model: Annotated[Path, typer.Option(help="Folder of the model.")],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free port.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="PHASEZERO_TOKEN", help="Token that requests must have.", show_envvar=False)
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="Requests per second of a client; 0 means any number.")] = 50.0,
    device: Device = "auto",
) -> None:
    """Serve a model: a page to try it and to teach it classes, and an HTTP API."""
    for name in NEEDED:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            raise UserError(f"serve needs {name}: pip install 'phasezero[serve]'") from None
    from phasezero.serve.server import serve as start

    try:
        start(model, host=host, port=port, token=token, rate=rate, device=device)
    except KeyboardInterrupt:
        print("stopped")
