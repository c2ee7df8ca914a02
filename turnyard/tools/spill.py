"""How a result that is too long for a model is kept: whole in the store of files, its two ends in the log.

A store that fails, or none at all, costs the middle of the text and never the turn.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from turnyard.errors import TurnyardError
from turnyard.records.blobs import BlobRef
from turnyard.text import OUTPUT_BYTES, both_ends, scrub
from turnyard.tools.files import Files

log = logging.getLogger("turnyard.tools")

_PUT_S = 20.0
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a model is shown of a result. `ref` is the file that holds the whole, of `size` bytes; None when nothing was left out.

    `media_type` is set when the result is no text.
    """

    content: str
    ref: str | None = None
    size: int | None = None
    media_type: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a result body has to say of the whole; nothing when it is all there."""
        found = {"ref": self.ref, "size": self.size, "media_type": self.media_type}
        return {name: value for name, value in found.items() if value is not None}


async def shown_text(text: str, files: Files | None, *, name: str, limit_bytes: int = OUTPUT_BYTES) -> Shown:
    """Return what is shown of a text, having kept it whole when that is less than all of it. `name` is what the file is called.

    Never raises, except CancelledError.
    """
    if len(text) <= limit_bytes and len((whole := scrub(text)).encode()) <= limit_bytes:
        return Shown(whole)
    ref = await _kept(text, files, name)
    return Shown(both_ends(text, limit_bytes, lost=ref is None), ref.id if ref else None, ref.size if ref else None)


async def shown_body(body: dict[str, Any], files: Files | None, *, name: str, limit_bytes: int = OUTPUT_BYTES) -> dict[str, Any]:
    """Return a result body with its content as `shown_text` shows it; one that is cut already stays as it is."""
    if "ref" in body or not isinstance(body.get("content"), str):
        return body
    shown = await shown_text(body["content"], files, name=name, limit_bytes=limit_bytes)
    return body | {"content": shown.content} | shown.facts


async def shown_bytes(data: bytes, files: Files | None, *, name: str) -> Shown:
    """Return what is shown of bytes that are no text: the file that holds them now. Never raises, except CancelledError."""
    ref = await _kept(data, files, name)
    if ref is None:
        return Shown(f"[{len(data):,} bytes that are no text; they could not be kept]")
    return Shown(f"[file {ref.id}: {ref.media_type}, {ref.size:,} bytes]", ref.id, ref.size, ref.media_type)


async def _kept(data: str | bytes, files: Files | None, name: str) -> BlobRef | None:
    """Return the file that holds the data now; None when it could not be kept."""
    if files is None or files.blobs is None or len(data) > files.blobs.max_bytes:
        return None
    raw, media_type = (scrub(data).encode(), _TEXT) if isinstance(data, str) else (data, None)
    try:
        async with asyncio.timeout(_PUT_S):
            return await files.put(raw, name=name, media_type=media_type)
    except (TurnyardError, TimeoutError) as error:
        log.warning("a long result could not be kept whole", extra={"tenant": files.tenant, "file": name, "reason": str(error)})
    except Exception:  # a store of somebody else's making
        log.exception("a long result could not be kept whole", extra={"tenant": files.tenant, "file": name})
    return None
