"""Files over HTTP: what a client gives its agents to read, and what they made, the whole of long results among it.

What comes back is never shown by a browser as a page of ours: it is a download, of a type that the content decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from turnyard.errors import NotFound
from turnyard.records.blobs import BlobRef
from turnyard.wire.views import rfc3339

from .desk import At, Desk, Tenant
from .problems import problem
from .replies import page, reply
from .requests import binary_body
from .uploads import read_upload

if TYPE_CHECKING:
    from turnyard.ports import Blobs

router = APIRouter(prefix="/v1/files", tags=["files"])

_PIECE_BYTES = 1_048_576
# What a browser would run as a page of this server, were it ever shown.
_ACTIVE = ("text/html", "image/svg+xml", "application/xml")
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "Cache-Control": "private, no-transform",
    "Accept-Ranges": "bytes",
}
_EXAMPLE = {
    "id": "file_7zzy2d1b4k0000000000000000000000000",
    "object": "file",
    "name": "report.pdf",
    "size": 48211,
    "media_type": "application/pdf",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "created_at": "2026-11-30T10:00:00Z",
    "expires_at": "2026-12-30T10:00:00Z",
    "links": {
        "self": "/v1/files/file_7zzy2d1b4k0000000000000000000000000",
        "content": "/v1/files/file_7zzy2d1b4k0000000000000000000000000/content",
    },
}
_SHOWN: dict[str, Any] = {"content": {"application/json": {"example": _EXAMPLE}}}


@router.post("", status_code=201, openapi_extra=binary_body(), responses={201: _SHOWN}, response_model=None)
async def post_file(request: Request, desk: At, tenant: Tenant, name: Annotated[str | None, Query(max_length=1024)] = None) -> Response:
    """Keep a file: the request's body as it is, or the one file of a form. Its type is what the content shows."""
    blobs = _blobs(desk)
    async with read_upload(request, desk.clock, limit_bytes=blobs.max_bytes, idle_s=desk.options.body_timeout_s) as upload:
        ref = await blobs.put(tenant, upload.pieces(), name=name or upload.name, media_type=upload.media_type)
    return reply(file_shape(ref), status=201, headers={"Location": f"/v1/files/{ref.id}"})


@router.get("", response_model=None)
async def get_files(
    desk: At, tenant: Tenant, limit: Annotated[int, Query(ge=1, le=100)] = 50, after: Annotated[str | None, Query()] = None
) -> Response:
    """List files, newest first."""
    refs = await _blobs(desk).page(tenant, limit=limit + 1, after=after)
    return page([file_shape(ref) for ref in refs[:limit]], after=refs[limit - 1].id if len(refs) > limit else None)


@router.get("/{file}", responses={200: _SHOWN}, response_model=None)
async def get_file(file: str, desk: At, tenant: Tenant) -> Response:
    """Return what is known of a file."""
    return reply(file_shape(await _blobs(desk).stat(tenant, file)))


@router.get("/{file}/content", responses={206: {"description": "the part that Range asks for"}}, response_model=None)
async def get_content(file: str, request: Request, desk: At, tenant: Tenant) -> Response:
    """Return the content of a file, or one range of its bytes."""
    blobs = _blobs(desk)
    ref = await blobs.stat(tenant, file)
    headers = {**_SAFE, "Content-Disposition": disposition(ref.name), "ETag": f'"{ref.sha256}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    span = read_range(request.headers.get("range"), ref.size)
    if span is None:
        detail = f"the file has {ref.size} bytes, and none of that range"
        return problem(request, status=416, code="invalid-range", detail=detail, headers={"Content-Range": f"bytes */{ref.size}"})
    start, end = span
    partial = end - start < ref.size
    if partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{ref.size}"
    headers["Content-Length"] = str(end - start)
    kind = "application/octet-stream" if ref.media_type.startswith(_ACTIVE) else ref.media_type
    return StreamingResponse(await _content(blobs, tenant, ref, start, end), 206 if partial else 200, headers=headers, media_type=kind)


@router.delete("/{file}", status_code=204, response_model=None)
async def delete_file(file: str, desk: At, tenant: Tenant) -> Response:
    """Delete a file; whoever reads it next is told that there is none."""
    await _blobs(desk).delete(tenant, file)
    return Response(status_code=204)


def _blobs(desk: Desk) -> Blobs:
    if desk.blobs is None:
        raise NotFound("this server keeps no files: set files.url")
    return desk.blobs


async def _content(blobs: Blobs, tenant: str, ref: BlobRef, start: int, end: int) -> AsyncIterator[bytes]:
    """Return the bytes of a file in pieces; the first one is read now, so that what is wrong shows before the status is sent."""
    first = await blobs.read(tenant, ref.id, offset=start, length=min(_PIECE_BYTES, end - start))

    async def pieces() -> AsyncIterator[bytes]:
        yield first
        for at in range(start + len(first), end, _PIECE_BYTES):
            yield await blobs.read(tenant, ref.id, offset=at, length=min(_PIECE_BYTES, end - at))

    return pieces()


def file_shape(ref: BlobRef) -> dict[str, Any]:
    """Return a file as clients see it."""
    return {
        "id": ref.id,
        "object": "file",
        "name": ref.name,
        "size": ref.size,
        "media_type": ref.media_type,
        "sha256": ref.sha256,
        "created_at": rfc3339(ref.created_ms),
        "expires_at": rfc3339(ref.expires_ms),
        "links": {"self": f"/v1/files/{ref.id}", "content": f"/v1/files/{ref.id}/content"},
    }


def disposition(name: str) -> str:
    """Return the header that makes a download of an answer, with a name as RFC 6266 has it: in ASCII, and as it is."""
    plain = "".join(char if char.isascii() and char.isprintable() and char not in '"\\%' else "_" for char in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return which bytes of a file a Range header asks for, from and up to; all of them without one, or one that is not understood.

    None: the file has none of them.
    """
    unit, _, ranges = (header or "").partition("=")
    first, dash, last = ranges.strip().partition("-")
    if unit.strip().lower() != "bytes" or not dash or not _is_number(first) or not _is_number(last) or not first + last:
        return 0, size
    if not first:
        tail = min(int(last), size)
        return (size - tail, size) if tail else None
    start, end = int(first), min(int(last) + 1, size) if last else size
    if last and int(last) < start:
        return 0, size
    return (start, end) if start < size else None


def _is_number(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and len(text) < 20)
