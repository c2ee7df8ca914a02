"""What a client may send, whichever door it uses.

Ids are taken as they are or refused, never repaired: a repaired id would be somebody else's. Text is repaired, never
refused: a lone surrogate or a NUL becomes U+FFFD, because no store or model takes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from turnyard.errors import InvalidInput
from turnyard.text import scrub

MAX_ID_CHARS = 255
MAX_METADATA = 16
MAX_METADATA_CHARS = 1024
MAX_WAIT_S = 60

# Controls, lone surrogates, and U+FFFD, which is what a broken decoder leaves behind.
_UNFIT_IN_ID = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]")


def check_id(value: str, *, pointer: str) -> str:
    """Return a tenant, session, user or group id as it is.

    Any printable character is allowed: ids are hashed before they become part of a key.

    Raises:
        InvalidInput: the id is empty, over 255 characters, or has a control character or broken text in it; or it is
            . or .., which no path can name.
    """
    if not value:
        raise InvalidInput("an id must have at least one character", pointer=pointer)
    if len(value) > MAX_ID_CHARS:
        raise InvalidInput(f"an id has at most {MAX_ID_CHARS} characters; this one has {len(value)}", pointer=pointer)
    if _UNFIT_IN_ID.search(value):
        raise InvalidInput("an id must not contain control characters or broken Unicode", pointer=pointer)
    if value in (".", ".."):
        raise InvalidInput(f"an id must not be {value!r}: no path could name it", pointer=pointer)
    return value


def check_metadata(metadata: Mapping[str, str], *, pointer: str = "/metadata") -> dict[str, str]:
    """Return metadata that is small enough to travel with every copy of a message.

    Raises:
        InvalidInput: more than 16 entries, or a key or value that is too long.
    """
    if len(metadata) > MAX_METADATA:
        raise InvalidInput(f"metadata has at most {MAX_METADATA} entries; this one has {len(metadata)}", pointer=pointer)
    for key, value in metadata.items():
        check_id(key, pointer=f"{pointer}/{escape_pointer(key)}")
        if len(value) > MAX_METADATA_CHARS:
            raise InvalidInput(f"a metadata value has at most {MAX_METADATA_CHARS} characters", pointer=f"{pointer}/{escape_pointer(key)}")
    return {key: scrub(value) for key, value in metadata.items()}


def message_body(content: str | Sequence[Mapping[str, Any]], *, pointer: str = "/input") -> dict[str, Any]:
    """Return the log body of a message: {"text"} for a string, {"parts"} for a list of text parts.

    Raises:
        InvalidInput: there is nothing to read in it, or a part of a kind that no agent takes.
    """
    if isinstance(content, str):
        if not content.strip():
            raise InvalidInput("a message must have some text", pointer=pointer)
        return {"text": scrub(content)}
    parts = [_text_part(part, pointer=f"{pointer}/{i}") for i, part in enumerate(content)]
    if not any(part["text"].strip() for part in parts):
        raise InvalidInput("a message must have some text", pointer=pointer)
    return {"parts": parts}


def notice_body(
    text: str, *, tag: str | None = None, origin: str | None = None, metadata: Mapping[str, str] | None = None, pointer: str = "/input"
) -> dict[str, Any]:
    """Return the log body of a notice, or of context: {"text"}, and what else was said of it.

    `tag` stands before the text where a model reads it; `origin` says where it comes from, for whoever looks at the log.

    Raises:
        InvalidInput: there is nothing to read in it, or a tag, an origin or metadata that cannot be taken.
    """
    body: dict[str, Any] = dict(message_body(text, pointer=pointer))
    if tag:
        body["tag"] = check_id(tag, pointer="/tag")
    if origin:
        body["origin"] = check_id(origin, pointer="/origin")
    if metadata:
        body["metadata"] = check_metadata(metadata)
    return body


def _text_part(part: Mapping[str, Any], *, pointer: str) -> dict[str, Any]:
    kind, text = part.get("type"), part.get("text")
    if kind != "text":
        raise InvalidInput(f"a part has the type 'text'; {kind!r} is not supported", pointer=f"{pointer}/type")
    if not isinstance(text, str):
        raise InvalidInput("a text part has a string in 'text'", pointer=f"{pointer}/text")
    unknown = sorted(set(part) - {"type", "text"})
    if unknown:
        raise InvalidInput(f"a text part has no field {unknown[0]!r}", pointer=f"{pointer}/{escape_pointer(unknown[0])}")
    return {"type": "text", "text": scrub(text)}


def escape_pointer(token: str) -> str:
    """Return a field name as a segment of a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")
