"""The routes as a table, from which the application and its OpenAPI document are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

from phasezero import __version__
from phasezero.serve.limits import Limits
from phasezero.serve.state import LONGEST_NAME

FILE = {"type": "string", "format": "binary"}
EVERYWHERE = (403, 429, 503)
UPLOAD = (400, 408, 413, 415)


@dataclass(frozen=True)
class Route:
    """A path and what it does. `handler` is a method of the service."""

    method: Literal["GET", "POST"]
    path: str
    handler: str
    summary: str
    kind: str = "application/json"
    """The type of the response."""
    query: dict[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    """Parameters after the question mark: schema and what they mean."""
    body: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By content type: the schema of the request."""
    errors: tuple[int, ...] = ()
    open: bool = False
    """Whether it answers without a token."""


def _form(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


IMAGES = {"type": "array", "items": FILE, "minItems": 1}

ROUTES = (
    Route("GET", "/", "page", "The page.", "text/html", open=True),
    Route("GET", "/page.css", "style", "The page's style.", "text/css", open=True),
    Route("GET", "/page.js", "script", "The page's script.", "text/javascript", open=True),
    Route("GET", "/health", "health", "Whether the server answers.", open=True),
    Route("GET", "/openapi.json", "openapi", "This document.", open=True),
    Route("GET", "/classes", "classes", "Classes and phases, with counts and accuracy on held-out images."),
    Route("GET", "/progress", "progress", "What is being learned, and how far it is."),
    Route(
        "GET",
        "/exemplars/{index}/{n}",
        "exemplar",
        "A kept photo: its class as an index of /classes, and its number.",
        "image/jpeg",
        errors=(404,),
    ),
    Route(
        "POST",
        "/predict",
        "predict",
        "Name the class of each image.",
        query={
            "top": ({"type": "integer", "minimum": 1, "maximum": 100, "default": 5}, "number of classes"),
            "similar": (
                {"type": "integer", "minimum": 0, "maximum": 20, "default": 0},
                "number of similar kept photos",
            ),
            "reject": (
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                "say unknown below the probability that this share of held-out images did not reach",
            ),
        },
        body={"multipart/form-data": _form({"image": IMAGES}, ["image"]), "image/*": FILE},
        errors=UPLOAD,
    ),
    Route(
        "POST",
        "/learn",
        "learn",
        "Learn a new class, or more photos of a known class.",
        body={
            "multipart/form-data": _form(
                {"name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}, "image": IMAGES},
                ["name", "image"],
            )
        },
        errors=(*UPLOAD, 409),
    ),
    Route("POST", "/undo", "undo", "Return to the version before the last change.", errors=(409,)),
)


def openapi(limits: Limits) -> dict[str, Any]:
    """Return the OpenAPI document of the routes."""
    paths: dict[str, Any] = {}
    for route in ROUTES:
        statuses = sorted({*EVERYWHERE, *route.errors, *(() if route.open else (401,))})
        operation: dict[str, Any] = {
            "operationId": route.handler,
            "summary": route.summary,
            "security": [] if route.open else [{}, {"token": []}],
            "parameters": [
                *(_parameter(name, "query", schema, text) for name, (schema, text) in route.query.items()),
                *(
                    _parameter(part[1:-1], "path", {"type": "integer", "minimum": 0}, "")
                    for part in route.path.split("/")
                    if part.startswith("{")
                ),
            ],
            "responses": {"200": {"description": "OK", "content": {route.kind: {}}}}
            | {str(status): _error(status) for status in statuses},
        }
        if route.body:
            content = {kind: {"schema": schema} for kind, schema in route.body.items()}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    about = (
        f"At most {limits.predict_files} images and {limits.predict_bytes:,} bytes per prediction, "
        f"{limits.learn_files} and {limits.learn_bytes:,} per class, {limits.file_bytes:,} bytes per image."
    )
    error = {"type": "object", "properties": {"status": {"type": "integer"}, "error": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "phasezero", "version": __version__, "description": about},
        "paths": paths,
        "components": {"schemas": {"Error": error}, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _parameter(name: str, place: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, "description": text}


def _error(status: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": HTTPStatus(status).phrase, "content": content}
