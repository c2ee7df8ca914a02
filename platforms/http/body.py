"""How a request's body becomes a value, before anything looks at it.

The bytes are counted while they arrive; nesting, number of keys, duplicate keys, numbers that would change and text
that no store takes are dealt with here, so nothing behind this module meets them.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any, TypeVar, cast

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from turnyard.errors import InvalidRequest, TooLarge
from turnyard.text import scrub

from .problems import from_validation

MAX_DEPTH = 32
MAX_KEYS = 1_000
_MAX_INT = 2**63

M = TypeVar("M", bound=BaseModel)


async def read_body(request: Request, *, limit_bytes: int, timeout_s: float) -> bytes:
    """Return the whole body.

    Raises:
        TooLarge: it has more bytes than `limit_bytes`; reading stops there.
        InvalidRequest: it is compressed, which would evade the limit, or it did not arrive, or not in time.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise InvalidRequest("a compressed body is not taken: send it as it is")
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit_bytes:
        raise TooLarge(f"a body has at most {limit_bytes} bytes; this one has {declared[:20]}")
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit_bytes:
                    raise TooLarge(f"a body has at most {limit_bytes} bytes: send less, or put large content in a file and refer to it")
    except TimeoutError:
        raise InvalidRequest(f"the body did not arrive within {timeout_s:g} seconds") from None
    except ClientDisconnect:
        raise InvalidRequest("the connection ended before the body did") from None
    return bytes(body)


def parse_json(raw: bytes) -> Any:
    """Return the value of a JSON text with its strings scrubbed.

    Raises:
        InvalidRequest: it is not JSON, nests deeper than 32, has over 1,000 keys or one twice, or a number that no
            other program would read alike.
    """
    try:
        # A lone surrogate is let through here, whole or escaped, and scrubbed below.
        text = raw.decode("utf-8", "surrogatepass")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, parse_int=_int, parse_float=_float)
    except RecursionError:
        raise InvalidRequest(f"the body nests deeper than {MAX_DEPTH}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidRequest(f"the body is not JSON: {_where(error)}") from None
    return _Cleaner().clean(value, 1)


def _where(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "it is not UTF-8"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidRequest("an object of the body has the same key twice")
    return found


def _no_constant(name: str) -> Any:
    raise InvalidRequest(f"{name} is not a JSON number")


def _int(digits: str) -> int:
    if len(digits) > 20 or not -_MAX_INT <= (value := int(digits)) < _MAX_INT:
        raise InvalidRequest("an integer of the body has over 64 bits: send ids as strings")
    return value


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise InvalidRequest("a number of the body is too large")
    return value


class _Cleaner:
    def __init__(self) -> None:
        self._keys = 0

    def clean(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise InvalidRequest(f"the body nests deeper than {MAX_DEPTH}")
        if isinstance(value, str):
            return scrub(value)
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value)
            self._keys += len(pairs)
            if self._keys > MAX_KEYS:
                raise InvalidRequest(f"the body has over {MAX_KEYS} keys")
            return {scrub(key): self.clean(item, depth + 1) for key, item in pairs.items()}
        if isinstance(value, list):
            return [self.clean(item, depth + 1) for item in cast("list[Any]", value)]
        return value


async def read_json(request: Request, *, limit_bytes: int, timeout_s: float) -> Any:
    """Return the value of a request's JSON body.

    Raises:
        InvalidRequest: as `read_body` and `parse_json`, or the content type is not JSON. A browser can send other
            types across sites without asking first, so they are not read as JSON.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise InvalidRequest("send the body as JSON, with the header content-type: application/json")
    return parse_json(await read_body(request, limit_bytes=limit_bytes, timeout_s=timeout_s))


def validate(model: type[M], value: Any) -> M:
    """Return a body as the model it must match.

    Raises:
        Invalid: wrong types, missing or unknown fields, each with its pointer.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise from_validation(error) from None
