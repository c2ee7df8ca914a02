"""Dead letters: what could not be handled, with the reason and what to do about it.

A letter is written by the script that gives up, in the same moment; nothing is dropped without one. It stays until
somebody decides: `retry_letter` puts it back through the front door, `drop_letter` takes it out. The letters of a shard
are bounded in bytes, the oldest go first; a letter's job row, which holds a message's body, stays as long as the letter.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from turnyard.records.ids import keyed_job_id
from turnyard.records.messages import UserMessage
from turnyard.state import ingress
from turnyard.state.agents import read_agents
from turnyard.state.jobs import read_job
from turnyard.state.reads import reading, text

if TYPE_CHECKING:
    from turnyard.records.messages import Accepted
    from turnyard.state.yard import Shard, Yard

log = logging.getLogger("turnyard.state")

CAP_BYTES = 8 * 1024 * 1024  # as lua/lib/letters.lua has it, unless dead:cap in the limits says otherwise
FIXES = {
    "unreadable": "a newer version wrote it, or it was damaged: retry it once every dispatcher runs the newest version, else drop it",
    "no_session": "its session was deleted or lost: retry a message to open the session anew, drop anything else",
    "poisoned": "the turn ended its workers again and again: find out from the worker's log what the tool or model did, then retry or drop",
    "lifted_poisoned": "the task ended its workers three times and its turn was told so: correct the tool, then drop it and ask again",
    "delivery_failed": "the receiver refused for good: correct its address or credentials, then retry; drop it to leave the reply unsent",
}
_UNKNOWN = "see the release notes of the version that wrote it; retry or drop it"
_CONTROLS = frozenset({"cancel", "pause", "resume", "new"})
_ID = re.compile(r"(\d+)\.(\d+-\d+)")
_KNOWN = frozenset({"reason", "at", "whole", "sid", "tn", "id", "job", "tu", "ag", "c", "la", "st"})
_PAGE = 100
_FIELD = 500


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One letter. `came` is the event as far as it was kept, each value cut and bodies left out; `whole` tells whether all of it was.

    `more` is what the writer of the letter added, such as how often workers died.
    """

    id: str
    reason: str
    fix: str
    at_ms: int
    tenant: str
    session: str
    job: str = ""
    turn: str = ""
    agent: str = ""
    call: str = ""
    lane: str = ""
    store: str = ""
    kind: str = ""
    whole: bool = True
    came: dict[str, str] = field(default_factory=dict[str, str])
    more: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Decision:
    """What became of a retry or drop. `code`: done, gone, or why not, which `why` says in words; `job` is the new one, if any."""

    code: str
    job: str | None = None
    why: str = ""

    @property
    def done(self) -> bool:
        """Tell whether the letter is decided; if not, it was there and still is, unless `code` is gone."""
        return self.code == "done"


@dataclass(frozen=True, slots=True)
class DeadStock:
    """How many letters there are, how much of their room they take, and when the oldest was written (None: no letter)."""

    letters: int
    bytes: int
    cap_bytes: int
    oldest_ms: int | None

    @property
    def nearly_full(self) -> bool:
        """Tell whether the oldest letters are about to be lost."""
        return self.bytes * 5 > self.cap_bytes * 4


async def list_letters(
    yard: Yard, *, tenant: str | None = None, session: str | None = None, limit: int = 100, before: str | None = None
) -> list[DeadLetter]:
    """Return letters, newest first; those of one tenant or session only, or of all. `before` is an id to go on after.

    At most ten pages of a hundred letters are looked at per shard, so a rare tenant's older ones may need `before`.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    found: list[DeadLetter] = []
    for shard in yard.shards:
        found += await _of_shard(shard, tenant, session, limit, before)
    found.sort(key=lambda letter: (letter.at_ms, letter.id), reverse=True)
    return found[:limit]


async def _of_shard(shard: Shard, tenant: str | None, session: str | None, limit: int, before: str | None) -> list[DeadLetter]:
    found: list[DeadLetter] = []
    highest = "+"
    if before is not None and (where := _ID.fullmatch(before)) and int(where[1]) == shard.n:
        highest = f"({where[2]}"
    for _ in range(10):
        with reading(f"dead letters of shard {shard.n}"):
            page = await shard.redis.xrevrange(_key(shard), highest, "-", count=_PAGE)
        letters = [_letter(shard.n, text(eid), fields) for eid, fields in page]
        found += [x for x in letters if tenant in (None, x.tenant) and session in (None, x.session)]
        if len(page) < _PAGE or len(found) >= limit:
            break
        highest = f"({text(page[-1][0])}"
    return found[:limit]


async def read_letter(yard: Yard, letter: str, *, tenant: str | None = None) -> DeadLetter | None:
    """Return a letter, or None when there is none of that id or it is another tenant's.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    found = _find(yard, letter)
    if found is None:
        return None
    shard, eid = found
    with reading(f"dead letter {letter}"):
        raw = await shard.redis.xrange(_key(shard), eid, eid)
    read = _letter(shard.n, text(raw[0][0]), raw[0][1]) if raw else None
    return read if read is not None and tenant in (None, read.tenant) else None


async def retry_letter(yard: Yard, letter: str, *, tenant: str | None = None, by: str = "") -> Decision:
    """Put what came back through the front door, then take the letter out.

    A message is sent again as a new job, whose id follows from the letter: however often it is retried, it is one
    message. What the session cannot take is refused, and the letter kept. `by` is who decided, for the log line.

    Raises:
        StoreUnavailable: what happened is unknown; retry it again.
    """
    found, read = _find(yard, letter), await read_letter(yard, letter, tenant=tenant)
    if found is None or read is None:
        return Decision("gone", why="there is no such letter; it may have been decided already")
    decision = await _send_again(yard, found[0], read)
    if decision.done and decision.job is not None:
        await _decide(found[0], "drop", found[1])
    _tell("dead letter retried", read, decision, by)
    return decision


async def drop_letter(yard: Yard, letter: str, *, tenant: str | None = None, by: str = "") -> Decision:
    """Take a letter out. What it holds is lost; the log line says who decided so.

    Raises:
        StoreUnavailable: what happened is unknown; drop it again.
    """
    found, read = _find(yard, letter), await read_letter(yard, letter, tenant=tenant)
    if found is None or read is None:
        return Decision("gone", why="there is no such letter; it may have been decided already")
    decision = await _decide(found[0], "drop", found[1])
    _tell("dead letter dropped", read, decision, by)
    return decision


async def read_stock(yard: Yard) -> DeadStock:
    """Return how many letters a deployment has.

    Raises:
        StoreUnavailable: the server did not answer.
    """
    letters = used = cap = 0
    oldest: list[int] = []
    for shard in yard.shards:
        with reading(f"dead letters of shard {shard.n}"):
            letters += await shard.redis.xlen(_key(shard))
            counted, limit = await shard.redis.hmget(shard.keys.limits, ["dead:bytes", "dead:cap"])
            first = await shard.redis.xrange(_key(shard), count=1)
        used, cap = used + int(float(counted or 0)), cap + int(float(limit or CAP_BYTES))
        oldest += [_letter(shard.n, text(eid), fields).at_ms for eid, fields in first]
    return DeadStock(letters, used, cap, min(oldest, default=None))


# -- what a retry is for each kind ------------------------------------------------------------------------------------


async def _send_again(yard: Yard, shard: Shard, letter: DeadLetter) -> Decision:
    event = f"dead:{letter.id}"
    if letter.reason == "lifted_poisoned":
        return Decision("refused", why=f"the turn was told that the call failed and went on; {FIXES['lifted_poisoned']}")
    if letter.reason == "delivery_failed":
        return await _decide(shard, "send", _stream_id(letter))
    if letter.reason == "poisoned" or letter.kind == "user":
        return await _message_again(yard, shard, letter)
    if letter.kind in _CONTROLS and letter.session:
        control: Any = letter.kind
        accepted = await ingress.accept_control(
            yard, tenant=letter.tenant, session=letter.session, control=control, event=event, turn=letter.came.get("tu") or None
        )
        if accepted.code in ("accepted", "duplicate"):
            return await _decide(shard, "drop", _stream_id(letter))
        return Decision("refused", why=_WHY.get(accepted.code, accepted.code))
    return await _decide(shard, "again", _stream_id(letter))


_WHY = {
    "inbox_full": "the session has as many unread messages as it may have; retry when it has caught up",
    "busy": "the message asked not to wait and the session is busy; retry when it is idle",
    "late": "the turn it was meant for has ended; drop it",
    "gone": "its session is gone; drop it",
    "cut": "the event was too large to be kept whole; drop it, and have it sent again",
    "no_session": "its session is gone; drop it",
    "no_message": "its message is not kept any more; drop it, and have it sent again",
}


async def _message_again(yard: Yard, shard: Shard, letter: DeadLetter) -> Decision:
    """Send the letter's message again, as a job of its own; the first job has failed for good."""
    job = await read_job(yard, letter.job, tenant=letter.tenant) if letter.job else None
    if job is None or not job.input:
        return Decision("refused", why=_WHY["no_message"])
    came = letter.came
    agent = (await read_agents(yard)).get(job.agent)
    with reading(f"job {letter.job}"):
        hashed = text(await shard.redis.hget(shard.keys.job(letter.job), "bh"))
    message = UserMessage(
        job=keyed_job_id(shard.n, letter.tenant, letter.session, f"dead {letter.id} {letter.at_ms}"),
        tenant=job.tenant,
        session=job.session,
        agent=job.agent,
        body=job.input,
        body_hash=hashed or hashlib.blake2b(letter.id.encode(), digest_size=12).hexdigest(),
        user=job.user,
        mode=job.mode,  # pyright: ignore[reportArgumentType]
        complete_when=job.complete_when,  # pyright: ignore[reportArgumentType]
        priority=job.priority,
        metadata={**job.metadata, "retry_of": letter.job},
    )
    message = replace(message, pool=came.get("po") or (agent.pool if agent else message.pool), asker=came.get("as", "1") == "1")
    if "wn" in came:
        message = replace(message, window_ms=_number(came, "wn"), window_max_ms=_number(came, "wx"))
    return _of_message(await ingress.accept_message(yard, message))


def _of_message(accepted: Accepted) -> Decision:
    if accepted.code in ("accepted", "duplicate"):
        return Decision("done", job=accepted.job)
    return Decision("refused", why=_WHY.get(accepted.code, accepted.code))


async def _decide(shard: Shard, how: str, eid: str) -> Decision:
    code = text(await shard.run("letter", how, eid))
    if code in ("done", "gone"):
        return Decision(code)
    return Decision("refused", why=_WHY[code])


# -- reading ----------------------------------------------------------------------------------------------------------


def _key(shard: Shard) -> str:
    return f"{shard.keys.prefix}dead"


def _find(yard: Yard, letter: str) -> tuple[Shard, str] | None:
    where = _ID.fullmatch(letter)
    shard = yard.shard(int(where[1])) if where else None
    return (shard, where[2]) if where and shard else None


def _stream_id(letter: DeadLetter) -> str:
    return letter.id.partition(".")[2]


def _letter(n: int, eid: str, fields: dict[bytes, bytes]) -> DeadLetter:
    known = {text(name): text(value) for name, value in fields.items()}
    came = {name[2:]: value for name, value in known.items() if name.startswith("e.")}
    reason = known.get("reason", "")
    return DeadLetter(
        id=f"{n}.{eid}",
        reason=reason,
        fix=FIXES.get(reason, _UNKNOWN),
        at_ms=int(float(known.get("at") or eid.partition("-")[0])),
        tenant=known.get("tn", ""),
        session=known.get("id", ""),
        job=known.get("job", ""),
        turn=known.get("tu", ""),
        agent=known.get("ag", ""),
        call=known.get("c", ""),
        lane=known.get("la", ""),
        store=known.get("st", ""),
        kind=came.get("kind", ""),
        whole=known.get("whole", "1") == "1",
        came={name: _shown(name, value) for name, value in came.items()},
        more={name: value for name, value in known.items() if name not in _KNOWN and not name.startswith("e.")},
    )


def _shown(name: str, value: str) -> str:
    """Return a field for people: what somebody wrote is nobody else's to read."""
    return f"({len(value)} characters)" if name == "b" else value[:_FIELD]


def _number(came: dict[str, str], name: str) -> int:
    value = came.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else 0


def _tell(what: str, letter: DeadLetter, decision: Decision, by: str) -> None:
    known = {"letter": letter.id, "reason": letter.reason, "tenant": letter.tenant, "session": letter.session, "job": letter.job}
    log.warning(what, extra=known | {"by": by or "unknown", "outcome": decision.code, "new_job": decision.job or "", "why": decision.why})
