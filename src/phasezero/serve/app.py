"""The HTTP application: handlers of the routes, and errors as JSON."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as StarletteRoute

from phasezero import __version__
from phasezero.errors import UserError
from phasezero.learner.folder import PNG
from phasezero.learner.learner import UNKNOWN
from phasezero.serve.guard import Guard, problem_response
from phasezero.serve.limits import Memory, Problem
from phasezero.serve.routes import ROUTES, openapi
from phasezero.serve.state import Answer, Model
from phasezero.serve.uploads import read_upload
from phasezero.validation import whole_number


def create_app(model: Model, *, host: str = "127.0.0.1", token: str | None = None) -> Starlette:
    """Return the application that serves a model at this address; with a token, only to who has it."""
    service = Service(model)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(model.close)

    guard = Middleware(
        Guard, host=host, token=token, limits=model.limits, open_paths={route.path for route in ROUTES if route.open}
    )
    return Starlette(
        routes=[StarletteRoute(one.path, getattr(service, one.handler), methods=[one.method]) for one in ROUTES],
        middleware=[guard],
        exception_handlers={Problem: _problem, UserError: _damaged, HTTPException: _known, Exception: _unknown},
        lifespan=lifespan,
    )


class Service:
    """The handlers, named in the table of routes."""

    def __init__(self, model: Model) -> None:
        self.model, self.memory = model, Memory(model.limits.held_bytes)
        self.limits = model.limits

    async def page(self, request: Request) -> Response:
        return Response(_part("page.html"), media_type="text/html")

    async def style(self, request: Request) -> Response:
        return Response(_part("page.css"), media_type="text/css")

    async def script(self, request: Request) -> Response:
        return Response(_part("page.js"), media_type="text/javascript")

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "phasezero": __version__})

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(openapi(self.limits))

    async def classes(self, request: Request) -> Response:
        limits = {name: getattr(self.limits, name) for name in ("file_bytes", "learn_files", "learn_bytes")}
        return JSONResponse(self.model.version.describe() | {"can_undo": self.model.can_undo, "limits": limits})

    async def progress(self, request: Request) -> Response:
        return JSONResponse({"learning": self.model.progress, "version": self.model.version.number})

    async def exemplar(self, request: Request) -> Response:
        index, number = (whole_number(request.path_params[name][:20]) for name in ("index", "n"))
        if index is None or number is None:
            raise Problem(404, "a kept photo has the path /exemplars/INDEX/N, with whole numbers")
        content = self.model.version.exemplar(index, number)
        return Response(content, media_type="image/png" if content.startswith(PNG) else "image/jpeg")

    async def predict(self, request: Request) -> Response:
        query, limits = request.query_params, self.limits
        top, similar = _whole(query, "top", 5, 1, 100), _whole(query, "similar", 0, 0, 20)
        share = _share(query)
        with self.memory.hold() as hold:
            upload = await read_upload(request, limits, hold, limits.predict_files, limits.predict_bytes, raw=True)
            if not upload.photos:
                raise Problem(400, "no images: send the field image at least once")
            answers = await self.model.predict(upload.photos)
        found = [_shown(answer, top, similar, share) for answer in answers]
        named = [{"file": name} | one for name, one in zip(upload.names, found, strict=True)]
        return JSONResponse({"version": answers[0].version.number, "predictions": named})

    async def learn(self, request: Request) -> Response:
        limits = self.limits
        self.model.check_idle()  # before the photos are received
        with self.memory.hold() as hold:
            upload = await read_upload(request, limits, hold, limits.learn_files, limits.learn_bytes, raw=False)
            return JSONResponse(await self.model.learn(upload.fields.get("name", ""), upload.photos))

    async def undo(self, request: Request) -> Response:
        return JSONResponse(await self.model.undo())


def _shown(answer: Answer, top: int, similar: int, share: float | None) -> dict[str, Any]:
    best = answer.top(top)
    name = best[0]["name"]
    if share is not None:
        try:
            threshold = answer.version.learner._calibration.threshold(share)
        except UserError as error:
            raise Problem(400, str(error)) from None
        name = UNKNOWN if best[0]["probability"] < threshold else name
    return {"name": name, "top": best, "similar": answer.similar(similar)}


def _whole(query: Mapping[str, str], name: str, usual: int, least: int, most: int) -> int:
    if name not in query:
        return usual
    found = whole_number(query[name])
    if found is None or not least <= found <= most:
        raise Problem(400, f"{name}: a whole number from {least} to {most} is expected")
    return found


def _share(query: Mapping[str, str]) -> float | None:
    if "reject" not in query:
        return None
    try:
        share = float(query["reject"])
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise Problem(400, "reject: a share between 0 and 1 is expected, such as 0.05")
    return share


def _part(name: str) -> str:
    return resources.files("phasezero.serve").joinpath(name).read_text(encoding="utf-8")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem_response(error)


async def _damaged(request: Request, error: Exception) -> Response:
    """Answer where the model's folder is not as expected; its path is not for clients."""
    print(f"phasezero: {error}", file=sys.stderr)
    return problem_response(Problem(500, "the model on disk cannot be used; the server's terminal shows why"))


async def _known(request: Request, error: Exception) -> Response:
    """Answer for the framework: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    texts = {404: "there is nothing here; /openapi.json lists the paths", 405: "this path has another method"}
    found = Problem(error.status_code, texts.get(error.status_code, str(error.detail)))
    found.headers = dict(error.headers or {})
    return problem_response(found)


async def _unknown(request: Request, error: Exception) -> Response:
    return problem_response(Problem(500, "the server failed; its terminal shows why"))
