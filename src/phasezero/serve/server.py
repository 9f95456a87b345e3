"""Start the server on a port of this machine."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import uvicorn

from phasezero.errors import UserError
from phasezero.serve.app import create_app
from phasezero.serve.guard import is_local
from phasezero.serve.limits import Limits
from phasezero.serve.state import Model


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    rate: float = Limits.rate,
    device: str = "auto",
) -> None:
    """Serve a model until Ctrl-C. Without a token, an address that others reach gets a random token."""
    if token is not None and (not token.isascii() or not token.isprintable() or " " in token):
        raise UserError("--token: letters, digits and punctuation are expected, without spaces")
    listening = _listen(host, port)
    with listening:
        model = Model(folder, device=device, limits=replace(Limits(), rate=rate))
        if token is None and not is_local(host):
            token = secrets.token_urlsafe(18)
        print(f"Serving {folder} ({len(model.version.learner.classes_)} classes). Stop with Ctrl-C.", flush=True)
        print(address(host, listening.getsockname()[1], token), flush=True)
        config = uvicorn.Config(
            create_app(model, host=host, token=token),
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        uvicorn.Server(config).run([listening])


def address(host: str, port: int, token: str | None) -> str:
    """Return the page's address. The token is in its fragment, which a browser does not send."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"#token={quote(token, safe='')}" if token else "")


def _listen(host: str, port: int) -> socket.socket:
    try:
        kind, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(kind, socket.SOCK_STREAM)
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(1024)  # from here on clients wait for the model
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"--host {host} --port {port}: cannot listen there ({reason}); choose another port") from None
    return listening
