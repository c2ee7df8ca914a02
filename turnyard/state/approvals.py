"""What waits for people: listed by tenant, read by its id, decided once.

Who may decide, and until when, is what the request said when it was asked, and nobody can change that. The decision itself is one
call of `accept`: whatever races with it (another decision, the deadline, a newer message, a cancel), exactly one of them wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from turnyard.errors import InvalidInput
from turnyard.records.approvals import (
    Approval,
    ApprovalPage,
    ApprovalState,
    DecideCode,
    Decided,
    Decision,
    approval_id,
    check,
    read_approval_id,
    said,
)
from turnyard.records.ids import store_session
from turnyard.state.ingress import accept_outcome
from turnyard.state.reads import reading, text
from turnyard.text import scrub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnyard.state.yard import Shard, Yard

MOST_LISTED = 100
_STATES: dict[str, ApprovalState] = {
    "timeout": "timeout",
    "superseded": "superseded",
    "cancelled": "cancelled",
    "result": "answered",
    "error": "answered",
}


async def pending(yard: Yard, tenant: str, *, limit: int = 50, after: str | None = None) -> ApprovalPage:
    """Return up to `limit` (100 at most) of what waits for people in a tenant, oldest first; `after` is the `next` of the page before.

    What is decided while this looks is left out, so a page may be shorter than asked and still have a next one.

    Raises:
        InvalidInput: `after` is no place in such a list.
        StoreUnavailable: the server did not answer.
    """
    limit = max(1, min(limit, MOST_LISTED))
    place = _read_place(after) if after else (0, -1, "")
    found: list[tuple[int, int, str]] = []
    for shard in yard.shards:
        found += await _listed(shard, tenant, place, limit)
    found.sort()
    page = found[:limit]
    shown: dict[tuple[int, str], Approval] = {}
    for shard in yard.shards:
        members = [member for _, n, member in page if n == shard.n]
        for approval, member in zip(await _read(shard, members), members, strict=True):
            if approval is not None and approval.tenant == tenant and approval.state == "pending":
                shown[shard.n, member] = approval
    items = tuple(shown[n, member] for _, n, member in page if (n, member) in shown)
    return ApprovalPage(items, _place(*page[-1]) if len(page) == limit else None)


async def read(yard: Yard, tenant: str, ident: str) -> Approval | None:
    """Return an approval by its id, decided or not; None when the tenant has none of that id, or not any more.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    where = read_approval_id(ident)
    shard = None if where is None else yard.shard(where[0])
    if where is None or shard is None:
        return None
    (found,) = await _read(shard, [f"{where[1]}!{where[2]}"])
    return found if found is not None and found.tenant == tenant else None


async def decide(yard: Yard, tenant: str, ident: str, decision: Decision) -> Decided:
    """Decide an approval, or answer a question; the first one who may decides it.

    Raises:
        InvalidInput: a question cannot be allowed, an approval not be answered; or the answer is empty.
        StoreUnavailable: nothing is known to be decided; decide again, the same decision is taken once.
    """
    where, approval = read_approval_id(ident), await read(yard, tenant, ident)
    if where is None or approval is None:
        return Decided("gone")
    check(approval, decision)
    if not approval.may_be_decided_by(decision.by):
        return Decided("not_approver", approval)
    if approval.state == "timeout":
        return Decided("expired", approval)
    outcome, body, grant = said(approval, decision)
    told = await accept_outcome(
        yard,
        shard=where[0],
        store=where[1],
        call=where[2],
        outcome=outcome,
        body=body,
        secret_hash=None,
        by=decision.by,
        reason=scrub(decision.reason or ""),
        grant=grant,
    )
    code: DecideCode = told.code if told.code in ("accepted", "duplicate", "expired", "gone") else "conflict"
    return Decided(code, await read(yard, tenant, ident))


# -- the list -----------------------------------------------------------------------------------------------------------


def _place(since_ms: int, shard: int, member: str) -> str:
    return f"{since_ms}/{shard}/{member}"


def _read_place(raw: str) -> tuple[int, int, str]:
    since, _, rest = raw.partition("/")
    shard, _, member = rest.partition("/")
    if not (since.isdecimal() and shard.isdecimal() and member and len(raw) <= 256):
        raise InvalidInput(f"{raw[:80]!r} is no place in the list of approvals: pass the `next` of a page on as it is")
    return int(since), int(shard), member


async def _listed(shard: Shard, tenant: str, place: tuple[int, int, str], limit: int) -> list[tuple[int, int, str]]:
    """Return up to `limit` places after `place`; those of its very millisecond may have to be passed over."""
    found: list[tuple[int, int, str]] = []
    passed, key = 0, shard.keys.asked(tenant)
    while len(found) < limit:
        with reading(f"what waits for people in {tenant}"):
            page = await shard.redis.zrangebyscore(key, place[0], "+inf", start=passed, num=limit, withscores=True)
        passed += len(page)
        found += [where for member, score in page if (where := (int(score), shard.n, text(member))) > place]
        if len(page) < limit:
            break
    return found[:limit]


# -- one approval -------------------------------------------------------------------------------------------------------


async def _read(shard: Shard, members: Sequence[str]) -> list[Approval | None]:
    """Return what each member (`<store>!<call>`) is, None for one that asks nobody and never did."""
    if not members:
        return []
    names = [(member.partition("!")[0], member.partition("!")[2]) for member in members]
    names = [(store, call if ":" not in call and call != "_" else "?") for store, call in names]
    with reading("what waits for people"):
        async with shard.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            for store, call in names:
                pipe.hmget(shard.keys.calls(store), call, f"{call}:q", f"{call}:d", f"{call}:r")
                pipe.hmget(shard.keys.head(store_session(store)), "id", "tn")
            (seconds, micros), *found = await pipe.execute()
        rows = [orjson.loads(raw[0]) | {"c": call} if raw[0] else None for (_, call), raw in zip(names, found[::2], strict=True)]
        async with shard.redis.pipeline(transaction=False) as pipe:
            for (store, _), row in zip(names, rows, strict=True):
                seq = f"{int(row['q'])}-0" if row and "q" in row else "0-0"
                pipe.execute_command("XRANGE", shard.keys.log(store), seq, seq)
            records = await pipe.execute()
    now_ms = seconds * 1000 + micros // 1000
    idents = [approval_id(shard.n, store, call) for store, call in names]
    each = zip(idents, rows, found[::2], found[1::2], records, strict=True)
    return [_approval(ident, row, kept[1:], head, _body(record), now_ms) for ident, row, kept, head, record in each]


def _body(found: list[Any]) -> dict[str, Any]:
    return orjson.loads(found[0][1].get(b"b", b"{}")) if found else {}


def _approval(
    ident: str, row: dict[str, Any] | None, kept: Sequence[bytes | None], head: Sequence[bytes], said: dict[str, Any], now_ms: int
) -> Approval | None:
    state = None if row is None else _state(row, now_ms)
    if row is None or state is None:
        return None
    request: dict[str, Any] = orjson.loads(kept[0]) if kept[0] else {}
    args: dict[str, Any] = said.get("args") or {}
    asked = {**args, **request} if row["k"] == "question" else request
    return Approval(
        id=ident,
        kind="question" if row["k"] == "question" else "allow_deny",
        tenant=text(head[1]),
        session=text(head[0]),
        agent=row.get("ag", ""),
        user=row.get("us") or "",
        turn=row["t"],
        call=row["c"],
        tool=str(said.get("name", "")),
        args=args,
        reason=str(asked.get("reason") or asked.get("prompt") or asked.get("text") or ""),
        approvers=tuple(asked.get("approvers") or ()),
        self_approve=bool(asked.get("self_approve", True)),
        scope="anyone" if asked.get("scope") == "anyone" else "asker",
        remember="session" if asked.get("remember") == "session" else None,
        options=_labels(asked.get("options")),
        multi_select=bool(asked.get("multi_select")),
        since_ms=int(row.get("si", 0)),
        expires_ms=int(row.get("dl", 0)),
        state=state,
        decided=_decided(row, kept),
    )


def _labels(options: Any) -> tuple[str, ...]:
    if not isinstance(options, list):
        return ()
    return tuple(str(one.get("label", "")) if isinstance(one, dict) else str(one) for one in options)  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType, reportUnknownVariableType]


def _state(row: dict[str, Any], now_ms: int) -> ApprovalState | None:
    """Return how an asked call stands, None for one that nobody was asked about."""
    if row.get("d"):
        return "allowed" if row["d"] == "allow" else "denied"
    if row["k"] not in ("approval", "question"):
        return None
    if row.get("o"):
        return _STATES.get(row["o"])
    if row["s"] != "parked":
        return None
    return "timeout" if int(row["dl"]) <= now_ms else "pending"


def _decided(row: dict[str, Any], kept: Sequence[bytes | None]) -> dict[str, Any] | None:
    if "da" not in row:
        return None
    said: dict[str, Any] = orjson.loads(kept[1] or kept[2] or b"{}")
    answered = row["k"] == "question" and row.get("d") is None
    said = {"answer": said.get("content")} if answered else said.get("audit", said)
    return {**said, "by": row.get("by", ""), "at": int(row["da"])}
