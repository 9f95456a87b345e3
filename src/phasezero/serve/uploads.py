"""Read photos from a request, within limits. Uploads stay in memory: nothing is written to a temporary file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from phasezero.serve.limits import Limits, Problem

FIELD = "image"
RAW = "application/octet-stream"


class _InMemory(MultiPartParser):
    spool_max_size = max_file_size = 1 << 40  # the second is its name in older versions


@dataclass(frozen=True)
class Upload:
    """The text fields and image files of a request, and the names of the files."""

    fields: dict[str, str]
    photos: list[bytes]
    names: list[str]


async def read_upload(
    request: Request, limits: Limits, hold: Callable[[int], None], files: int, total: int, *, raw: bool
) -> Upload:
    """Return what a request uploads; with `raw`, also an image as the whole body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    multipart = kind == "multipart/form-data"
    if not multipart and not (raw and (kind.startswith("image/") or kind == RAW)):
        also = ", or an image as the whole body with its type, such as image/jpeg" if raw else ""
        raise Problem(415, f"send multipart/form-data with the field {FIELD}{also}; got {kind or 'no content type'}")
    allowed = total if multipart else limits.file_bytes
    try:
        async with asyncio.timeout(limits.body_seconds):
            body = _counted(request, allowed, hold)
            upload = await _form(request, body, files) if multipart else await _raw(body)
    except TimeoutError:
        raise Problem(408, f"the request was not received within {limits.body_seconds:g} s") from None
    except ClientDisconnect:
        raise Problem(400, "the request ended early") from None
    for at, photo in enumerate(upload.photos, 1):
        if len(photo) > limits.file_bytes:
            raise Problem(413, f"image {at} has {len(photo):,} bytes, at most {limits.file_bytes:,} are allowed")
        if not photo:
            raise Problem(400, f"image {at} is empty")
    return upload


async def _counted(request: Request, allowed: int, hold: Callable[[int], None]) -> AsyncGenerator[bytes, None]:
    """Yield the body; stop where it is longer than allowed."""
    message = f"the request is too large: at most {allowed:,} bytes are allowed"
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > allowed:
        raise Problem(413, message)
    found = 0
    async for chunk in request.stream():
        found += len(chunk)
        if found > allowed:
            raise Problem(413, message)
        hold(len(chunk))
        yield chunk


async def _raw(body: AsyncGenerator[bytes, None]) -> Upload:
    return Upload({}, [b"".join([chunk async for chunk in body])], [""])


async def _form(request: Request, body: AsyncGenerator[bytes, None], files: int) -> Upload:
    try:
        form = await _InMemory(request.headers, body, max_files=files, max_fields=10).parse()
    except MultiPartException as error:
        if "Too many" in error.message:
            raise Problem(413, f"too many parts: at most {files} images and 10 fields are allowed") from None
        raise Problem(400, f"the form cannot be read: {error.message}") from None
    except Problem:
        raise
    except ValueError:  # of older versions of the parser
        raise Problem(400, "the form cannot be read: it is not multipart/form-data") from None
    fields, photos, names = dict[str, str](), list[bytes](), list[str]()
    try:
        for key, value in form.multi_items():
            if isinstance(value, str):
                fields[key] = value
            elif isinstance(value, UploadFile) and key == FIELD:
                photos.append(await value.read())
                names.append((value.filename or "")[:100])
            else:
                raise Problem(400, f"unknown file field {key[:100]!r}; the field of images is called {FIELD}")
    finally:
        await form.close()
    return Upload(fields, photos, names)
