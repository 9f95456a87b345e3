"""What every request passes: who may ask, how often, how many at once; and headers of every response."""

from __future__ import annotations

import hmac
import ipaddress
import math
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from phasezero.serve.limits import Limits, Problem, RateLimit, busy

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
LOCAL = ("localhost", "127.0.0.1", "::1")


def is_local(host: str) -> bool:
    """Tell whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def problem_response(problem: Problem) -> JSONResponse:
    """Return an error as JSON."""
    return JSONResponse(
        {"status": problem.status, "error": str(problem)}, problem.status, {**HEADERS, **problem.headers}
    )


class Guard:
    """Check each request before the application sees it. `open_paths` need no token."""

    def __init__(
        self, app: ASGIApp, *, host: str, token: str | None, limits: Limits, open_paths: Collection[str]
    ) -> None:
        self.app, self.token, self.limits, self.open_paths = app, token, limits, open_paths
        self.hosts = {*LOCAL, host} if is_local(host) else None
        self.rates = RateLimit(limits.rate, limits.burst)
        self.requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        self.requests += 1
        try:
            self._check(scope)
            await self.app(scope, receive, send_with_headers)
        except Problem as problem:
            await problem_response(problem)(scope, receive, send)
        finally:
            self.requests -= 1

    def _check(self, scope: Scope) -> None:
        headers, client = Headers(scope=scope), scope.get("client")
        if self.requests > self.limits.requests:
            raise busy("too many requests at the same time; try again later")
        host = headers.get("host", "")
        # A web page whose domain is made to point to this machine would send its own name (DNS rebinding).
        if self.hosts is not None and _hostname(f"//{host}") not in self.hosts:
            raise Problem(403, "this server answers to localhost alone; start it with --host to reach it by name")
        if wait := self.rates.wait(client[0] if client else ""):
            raise Problem(429, "too many requests; try again later", Retry_After=str(math.ceil(wait)))
        if self.token is None:
            # A form of another web site may be sent here without asking the browser's user.
            origin = headers.get("origin")
            if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
                raise Problem(403, "requests of other web sites are not answered")
            if headers.get("sec-fetch-site") == "cross-site" and scope["path"] not in self.open_paths:
                raise Problem(403, "requests of other web sites are not answered")
        elif scope["path"] not in self.open_paths:
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
                raise Problem(401, "a token is needed: Authorization: Bearer TOKEN", WWW_Authenticate="Bearer")


def _hostname(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
