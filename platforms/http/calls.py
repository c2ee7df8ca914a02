"""Outcomes of parked calls, given from outside.

The token is the only credential: a wrong one, a used-up one and none at all look alike. It is part of the path, so
paths of these routes are never logged nor repeated in an answer.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from turnyard.errors import InvalidInput, NotFound
from turnyard.records.ids import read_call_token
from turnyard.text import OUTPUT_BYTES, scrub
from turnyard.tools.files import Files
from turnyard.tools.spill import shown_body
from turnyard.wire.submit import raise_refusal

from .body import parse_json, validate
from .desk import At, Desk
from .replies import reply
from .requests import OutcomeRequest, body_of
from .strangers import address_of

router = APIRouter(prefix="/v1", tags=["calls"])

# The same words for every token that is not one, whatever is wrong with it.
_NO_CALL = "no such call"


@router.post("/calls/{token}", response_model=None)
async def callback(token: str, request: Request, desk: At) -> Response:
    """Take a vendor's answer as it is, of any type: the result of the call, or what its tool makes a result of (`outcome` raw)."""
    raw = await desk.raw(request)
    body = {"content": scrub(raw.decode("utf-8", "replace")), "is_error": False}
    return await _settle(request, desk, token, outcome="raw", body=body)


@router.post("/outcomes/{token}", openapi_extra=body_of(OutcomeRequest), response_model=None)
async def outcome(token: str, request: Request, desk: At) -> Response:
    """Take the outcome of a call: `{"result": ...}` or `{"error": "..."}`."""
    body = validate(OutcomeRequest, parse_json(await desk.raw(request)))
    given = body.model_fields_set
    if len(given) != 1:
        raise InvalidInput("give exactly one of result and error")
    if "error" in given:
        if not body.error:
            raise InvalidInput("an error says in a few words what went wrong", pointer="/error")
        return await _settle(request, desk, token, outcome="error", body={"content": body.error, "is_error": True})
    return await _settle(request, desk, token, outcome="result", body={"content": _text(body.result), "is_error": False})


def _text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, separators=(",", ":"))


async def _settle(request: Request, desk: Desk, token: str, *, outcome: str, body: dict[str, Any]) -> Response:
    address = address_of(request)
    desk.strangers.check(address)
    where = read_call_token(token)
    if where is None:
        desk.strangers.wrong(address)
        raise NotFound(_NO_CALL)
    shard, store, call, secret_hash = where
    body = await _fitting(desk, where, body, raw=outcome == "raw")
    accepted = await desk.edge.accept_outcome(
        shard=shard, store=store, call=call, outcome=outcome, body=body, secret_hash=secret_hash, by="callback"
    )
    if accepted.code == "gone":
        desk.strangers.wrong(address)
        raise NotFound(_NO_CALL)
    raise_refusal(accepted)
    # What came raw is the result itself, unless the call's tool is still to read it.
    told = "result" if outcome == "raw" and accepted.entry != "raw" else outcome
    return reply({"object": "outcome", "call": call, "outcome": told, "repeated": accepted.code == "duplicate"})


async def _fitting(desk: Desk, where: tuple[int, str, str, str], body: dict[str, Any], *, raw: bool) -> dict[str, Any]:
    """Return a body as the log is to hold it: what is too long is cut, and kept whole for whoever has the token, and for nobody else.

    The same answer again is the same body: it names the file that is there already. One that a tool reads itself stays whole.
    """
    content = str(body["content"]).encode()
    if len(content) <= OUTPUT_BYTES:
        return body
    shard, store, call, secret_hash = where
    facts = await desk.edge.call_facts(shard=shard, store=store, call=call)
    if facts is None or (raw and facts.resolves) or not secrets.compare_digest(facts.secret_hash, secret_hash):
        return body
    mark = hashlib.sha256(content).hexdigest()
    if facts.body is not None and facts.body.get("sha256") == mark:
        return facts.body
    # Another answer than the one that is there is refused: nothing of it is to be kept.
    files = Files(desk.blobs, facts.tenant) if facts.body is None else None
    return await shown_body(body, files, name=f"answer-{call}.txt") | {"sha256": mark}
