"""How many tokens a text, a message or a list of tools is, about.

An estimate decides when history is shortened, never whether a request is sent: the model's own count is the last word.
Whatever counts texts can be replaced; what of a message is counted cannot, so that no part of a request is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import orjson

from turnyard.ports import ToolSpec

TokenEstimator = Callable[[str], int]
"""Returns the tokens of a text; 0 for an empty one."""

BYTES_PER_TOKEN = 4
MESSAGE_TOKENS = 4
IMAGE_TOKENS = 1_200
_MAX_RESERVE_PCT = 99


def estimate(text: str) -> int:
    """Return a quarter of the text's UTF-8 bytes, rounded up."""
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size_bytes // BYTES_PER_TOKEN)


def budget(context_tokens: int, reserve_pct: int) -> int:
    """Return what of a model's context is left when `reserve_pct` per cent are kept free; 0 for no context.

    A share outside of 0 to 99 is cut to it.
    """
    return max(0, context_tokens) * (100 - min(max(reserve_pct, 0), _MAX_RESERVE_PCT)) // 100


def message_tokens(message: Mapping[str, Any], count: TokenEstimator = estimate) -> int:
    """Return the tokens of one message in the shape of requests: role, name, content, calls, and a constant."""
    tokens = MESSAGE_TOKENS + count(message["role"]) + count(message.get("name") or "")
    for call in message.get("tool_calls") or ():
        tokens += count(call["function"]["name"]) + count(call["function"]["arguments"])
    content = message.get("content") or ""
    return tokens + (count(content) if isinstance(content, str) else _parts_tokens(content, count))


def list_tokens(messages: Iterable[Mapping[str, Any]], count: TokenEstimator = estimate) -> int:
    """Return the tokens of these messages together."""
    return sum(message_tokens(message, count) for message in messages)


def tools_tokens(tools: Sequence[ToolSpec], count: TokenEstimator = estimate) -> int:
    """Return the tokens that the description of these tools takes from every request."""
    return sum(count(t.name) + count(t.description) + count(orjson.dumps(t.schema).decode()) for t in tools)


def _parts_tokens(parts: Any, count: TokenEstimator) -> int:
    """Return the tokens of content in parts; what is no text costs what an image does, however many bytes it has."""
    texts = [part.get("text") for part in cast("list[dict[str, Any]]", parts)]
    return sum(count(text) if isinstance(text, str) else IMAGE_TOKENS for text in texts)
