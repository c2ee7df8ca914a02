"""What a model reads of what an MCP server answered: text as it is, everything else as a note of what it is."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import orjson

from turnyard.errors import ToolError
from turnyard.tools.detailed import Detailed

MOST_BLOCKS = 256
Keep = Callable[[bytes, str, str], Awaitable[str]]
_MOST_DETAILS_BYTES = 16_000


async def read_result(result: types.CallToolResult, *, keep: Keep | None = None) -> str | Detailed:
    """Return what the tool says. `keep` stores the bytes of a file and returns how the model may speak of it.

    Structured content stands in for text where there is none, and is kept beside it, for whoever watches, where there is.

    Raises:
        ToolError: the server says that the call failed; its text is what the model reads.
    """
    said = [await _block(block, keep) for block in result.content[:MOST_BLOCKS]]
    if len(result.content) > MOST_BLOCKS:
        said.append(f"[{len(result.content) - MOST_BLOCKS} more pieces are left out]")
    text = "\n".join(piece for piece in said if piece)
    structured = result.structured_content
    if result.is_error:
        raise ToolError(text or _json(structured) or "the server says that the call failed, and nothing more")
    if structured is None:
        return text
    raw = _json(structured)
    if not text:
        return raw
    return Detailed(text, structured) if len(raw) <= _MOST_DETAILS_BYTES else text


async def _block(block: Any, keep: Keep | None) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return await _file(block.type, block.data, block.mime_type, block.type, keep)
        case types.ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return await _file(f"resource {resource.uri}", resource.blob, resource.mime_type, "resource", keep)
        case _:
            return f"[{getattr(block, 'type', 'something')} that this client cannot read]"


async def _file(what: str, data: str, media_type: str | None, name: str, keep: Keep | None) -> str:
    media_type = media_type or "application/octet-stream"
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{what} ({media_type}) that is not base64]"
    kept = f": {await keep(raw, name, media_type)}" if keep is not None else ""
    return f"[{what} ({media_type}, {len(raw):,} bytes){kept}]"


def _json(value: Any) -> str:
    return "" if value is None else orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
