"""What a model reads of what an MCP server answered: text as it is, everything else as a note of what it is."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import mcp_types as types
import orjson

from turnyard.errors import ToolError, TurnyardError
from turnyard.tools.detailed import Detailed
from turnyard.tools.files import Files

MOST_BLOCKS = 256
_MOST_DETAILS_BYTES = 16_000


async def read_result(result: types.CallToolResult, files: Files | None = None) -> str | Detailed:
    """Return what the tool says. What is no text is kept among `files`, where there is a store of them and it takes it.

    Structured content stands in for text where there is none, and is kept beside it, for whoever watches, where there is.

    Raises:
        ToolError: the server says that the call failed; its text is what the model reads.
    """
    said = [await _block(block, files) for block in result.content[:MOST_BLOCKS]]
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


async def _block(block: Any, files: Files | None) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return await _file(block.type, block.data, block.mime_type, block.type, files)
        case types.ResourceLink():
            return f"[resource {block.name}: {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[resource {resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as resource):
            return await _file(f"resource {resource.uri}", resource.blob, resource.mime_type, "resource", files)
        case _:
            return f"[{getattr(block, 'type', 'something')} that this client cannot read]"


async def _file(what: str, data: str, media_type: str | None, name: str, files: Files | None) -> str:
    media_type = media_type or "application/octet-stream"
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{what} ({media_type}) that is not base64]"
    kept = await _kept(raw, name, media_type, files)
    return f"[{what} ({media_type}, {len(raw):,} bytes){kept}]"


async def _kept(raw: bytes, name: str, media_type: str, files: Files | None) -> str:
    try:
        ref = await files.put(raw, name=name, media_type=media_type) if files is not None else None
    except TurnyardError:
        return ""  # what the call did is done, whether its picture can be kept or not
    return f": file {ref.id}" if ref is not None else ""


def _json(value: Any) -> str:
    return "" if value is None else orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
