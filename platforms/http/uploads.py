"""How the content of a file arrives: as a body, or as the one file of a form; counted while it does, and never all in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from turnyard.errors import InvalidRequest, TooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import Request

    from turnyard.ports import Clock

_FORM_BYTES = 65_536  # what a form may have around its file
_WHOLE_S = 900.0
_PIECE_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that arrives. `name` and `media_type` are what its sender says."""

    name: str
    media_type: str | None
    pieces: Callable[[], AsyncIterator[bytes]]


@asynccontextmanager
async def read_upload(request: Request, clock: Clock, *, limit_bytes: int, idle_s: float) -> AsyncGenerator[Upload]:
    """Give the file that a request brings.

    Raises:
        TooLarge: there is more of it than `limit_bytes`; reading stops there.
        InvalidRequest: it is compressed, a form without exactly one file, or nothing of it came for `idle_s`.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidRequest("a compressed body is not taken: send it as it is")
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    is_form = kind == b"multipart/form-data"
    most = limit_bytes + (_FORM_BYTES if is_form else 0)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > most:
        raise _too_large(limit_bytes)
    body = _counted(request, clock, most, limit_bytes, idle_s)
    async with contextlib.aclosing(body):
        if not is_form:
            _, named = parse_options_header(request.headers.get("content-disposition", ""))
            said = kind.decode("latin-1") or None
            yield Upload(named.get(b"filename", b"").decode("utf-8", "replace"), said, lambda: body)
            return
        if b"boundary" not in options:
            raise InvalidRequest("a form says in its content type what stands between its parts: boundary=...")
        async with _form_file(request, body) as file:
            yield Upload(file.filename or "", file.content_type, lambda: _pieces(file))


@asynccontextmanager
async def _form_file(request: Request, body: AsyncGenerator[bytes]) -> AsyncGenerator[UploadFile]:
    """Give the one file of a form; what is large of it lies in a temporary file meanwhile."""
    try:
        form = await MultiPartParser(request.headers, body, max_files=1, max_fields=10, max_part_size=_FORM_BYTES).parse()
    except MultiPartException as error:
        raise InvalidRequest(f"the form cannot be read: {error.message}") from None
    try:
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        if len(files) != 1:
            raise InvalidRequest("a form brings exactly one file; or send the file itself as the body, with ?name=...")
        yield files[0]
    finally:
        await form.close()


async def _pieces(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(_PIECE_BYTES):
        yield piece


async def _counted(request: Request, clock: Clock, most_bytes: int, limit_bytes: int, idle_s: float) -> AsyncGenerator[bytes]:
    # No timeout is held over a yield: whoever takes the pieces may do so in another task.
    seen, until_s = 0, clock.monotonic() + _WHOLE_S
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(max(0.0, min(idle_s, until_s - clock.monotonic()))):
                piece = await anext(stream, None)
        except TimeoutError:
            raise InvalidRequest(f"the file did not arrive: nothing came for {idle_s:g} seconds, or it took over {_WHOLE_S:g}") from None
        except ClientDisconnect:
            raise InvalidRequest("the connection ended before the file did") from None
        if piece is None:
            return
        seen += len(piece)
        if seen > most_bytes:
            raise _too_large(limit_bytes)
        yield piece


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"a file may have at most {limit_bytes:,} bytes here")
