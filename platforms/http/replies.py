"""How answers are written: one JSON object or one page, and the headers that go with jobs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

from turnyard.errors import InvalidRequest
from turnyard.records import ids
from turnyard.records.input import MAX_ID_CHARS, MAX_WAIT_S, check_id
from turnyard.wire.shapes import JobShape, Page


def reply(shape: BaseModel | Mapping[str, Any], *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an object as the answer."""
    content = shape.model_dump_json().encode() if isinstance(shape, BaseModel) else orjson.dumps(shape)
    return Response(content, status, headers=headers, media_type="application/json")


def page(items: Sequence[BaseModel | Mapping[str, Any]], *, after: str | None = None) -> Response:
    """Return a list as the answer; `after` is the cursor of the page behind it."""
    data = [item.model_dump(mode="json") if isinstance(item, BaseModel) else item for item in items]
    return reply(Page(data=data, next=after))


def job_reply(job: JobShape, *, waited_s: int | None, replayed: bool, done: bool) -> Response:
    """Return the answer to a submit: 200 when its sender waited and it has ended, else 202."""
    headers = {"Location": job.links.self}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    if waited_s is not None:
        headers["Preference-Applied"] = f"wait={waited_s}"
    return reply(job, status=200 if done and waited_s is not None else 202, headers=headers)


def event_id(kind: str, tenant: str, session: str, key: str | None) -> str:
    """Return the id by which a repeated control or notice is known: of its key, or fresh when it has none."""
    return ids.keyed_event(kind, tenant, session, key) if key is not None else secrets.token_hex(12)


def read_wait(request: Request) -> int | None:
    """Return for how many seconds the client wants to wait (`Prefer: wait=N`), None when it does not.

    Raises:
        InvalidRequest: N is not a whole number from 0 to 60.
    """
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        if name.strip().lower() != "wait":
            continue
        value = value.strip().strip('"')
        if not (value.isascii() and value.isdigit() and len(value) <= 4 and int(value) <= MAX_WAIT_S):
            raise InvalidRequest(f"Prefer: wait=N takes whole seconds from 0 to {MAX_WAIT_S}")
        return int(value)
    return None


def read_key(request: Request) -> str | None:
    """Return the Idempotency-Key of a request, None when it has none.

    Raises:
        InvalidRequest: it is empty, over 255 characters, or given more than once.
    """
    keys = request.headers.getlist("idempotency-key")
    if not keys:
        return None
    if len(keys) > 1 or not keys[0] or len(keys[0]) > MAX_ID_CHARS:
        raise InvalidRequest(f"Idempotency-Key is given once and has 1 to {MAX_ID_CHARS} characters")
    return check_id(keys[0], pointer="/idempotency_key")
