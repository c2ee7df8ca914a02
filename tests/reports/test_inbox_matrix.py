"""Every kind of input, in every mode, to a session in every state: delivered once, refused with a reason, or set aside.

The matrix is generated; a cell is a session of its own on one real server. What is sent carries a mark, and at the end,
when everything has come to rest, each mark is looked for in the logs and in the dead letters: accepted = delivered + set
aside, and what was refused has left no trace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest

from tests.protocol.scene import DAY_MS, SECRET, Scene, call
from turnyard.records.commit import Answer, Commit, Park, Say, TurnView
from turnyard.records.ids import hash_secret, session_key, store_key
from turnyard.records.log import RESULT, LogRecord
from turnyard.records.messages import Mode, UserMessage
from turnyard.state import fleet, ingress
from turnyard.state.flows import set_limits

CAP = 4  # messages that a session may have unclaimed
REFUSALS = {"busy", "inbox_full", "late", "gone", "conflict", "duplicate", "mismatch"}


@dataclass
class Cell:
    """One session, what was done to it, and what was sent."""

    scene: Scene
    owner: str
    session: str
    kind: str
    call: str | None = None
    turn: str | None = None
    job: str | None = None
    sent_job: str | None = None
    code: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def mark(self) -> str:
        """What the input carries."""
        return f"mark-{self.session}"

    async def say(self, text: str, **more: Any) -> str:
        message = self.scene.message(text, session=self.session, **more)
        accepted = await ingress.accept_message(self.scene.yard, message, inbox_cap=CAP)
        self.sent_job = accepted.job
        return accepted.code

    async def started(self) -> TurnView:
        """The session's first turn runs."""
        self.job = (await self.scene.say("first", session=self.session, user="ann", complete_when="settled")).job
        await self.scene.dispatch()
        view = await self.scene.begin(self.owner, self.session)
        assert view is not None
        self.turn = view.turn
        return view

    async def asked(self, kind: Any, *, awaited: bool) -> TurnView:
        view = await self.started()
        made = call(view, 0, kind, awaited=awaited)
        self.call = made.id
        return await self.scene.ask(view, made)


# -- states


async def unknown(cell: Cell) -> None:
    """Nobody ever wrote to it."""


async def idle(cell: Cell) -> None:
    await cell.scene.reply(await cell.started())


async def ready(cell: Cell) -> None:
    await set_limits(cell.scene.yard.shards[0], max_concurrent_turns=0)
    cell.job = (await cell.scene.say("first", session=cell.session, user="ann")).job
    await cell.scene.dispatch()
    assert await cell.scene.state(cell.session) == "ready"


async def assigned(cell: Cell) -> None:
    cell.job = (await cell.scene.say("first", session=cell.session, user="ann")).job
    await cell.scene.dispatch()
    assert await cell.scene.state(cell.session) == "assigned"


async def asking_its_model(cell: Cell) -> None:
    await cell.started()


async def in_a_tool(cell: Cell) -> None:
    view = await cell.asked("plain", awaited=False)
    await cell.scene.commit(view, start=(cell.call or "",))


async def parked_on_a_call(cell: Cell) -> None:
    view = await cell.asked("callback", awaited=True)
    await cell.scene.commit(view, park=(Park(cell.call or "", DAY_MS, hash_secret(SECRET)),), ending="park")


async def parked_on_an_approval(cell: Cell) -> None:
    view = await cell.asked("approval", awaited=True)
    await cell.scene.commit(view, park=(Park(cell.call or "", DAY_MS, hash_secret(SECRET)),), ending="park")


async def idle_with_a_call_outside(cell: Cell) -> None:
    view = await cell.asked("callback", awaited=False)
    await cell.scene.reply(await cell.scene.launch(view, cell.call or ""))


async def paused(cell: Cell) -> None:
    await idle(cell)
    await cell.scene.control("pause", session=cell.session)
    await cell.scene.dispatch()


async def paused_in_a_parked_turn(cell: Cell) -> None:
    await parked_on_a_call(cell)
    await cell.scene.control("pause", session=cell.session)
    await cell.scene.dispatch()


async def being_cancelled(cell: Cell) -> None:
    await in_a_tool(cell)
    await cell.scene.control("cancel", session=cell.session)
    await cell.scene.dispatch()


async def with_a_new_history(cell: Cell) -> None:
    await asking_its_model(cell)
    await cell.scene.control("new", session=cell.session)
    await cell.scene.dispatch()


async def full(cell: Cell) -> None:
    await asking_its_model(cell)
    for i in range(CAP):
        assert await cell.say(f"filler {i}", mode="follow_up" if i % 2 else "steer") == "accepted"
    await cell.scene.dispatch()


STATES = (
    *(unknown, idle, ready, assigned, asking_its_model, in_a_tool, parked_on_a_call, parked_on_an_approval),
    *(idle_with_a_call_outside, paused, paused_in_a_parked_turn, being_cancelled, with_a_new_history, full),
)

# -- inputs: each sends one thing to the cell's session and returns the code of the door


def _message(mode: Mode, **more: Any) -> Callable[[Cell], Awaitable[str]]:
    return lambda cell: cell.say(cell.mark, mode=mode, user="ann", **more)


def _control(name: ingress.Control) -> Callable[[Cell], Awaitable[str]]:
    async def send(cell: Cell) -> str:
        return (await cell.scene.control(name, session=cell.session, event=cell.mark)).code

    return send


def _outcome(value: str) -> Callable[[Cell], Awaitable[str]]:
    async def send(cell: Cell) -> str:
        store = store_key(session_key("default", cell.session), 0)
        body = {"content": cell.mark, "is_error": value == "error"}
        return (await cell.scene.outcome(store, cell.call or "call_none", value, session=cell.session, body=body)).code

    return send


async def _notice(cell: Cell) -> str:
    return (await cell.scene.notice(cell.mark, session=cell.session)).code


async def _cancelled_job(cell: Cell) -> str:
    return (await ingress.cancel_job(cell.scene.yard, cell.job or "job_none", tenant="default")).code


async def _again(cell: Cell) -> str:
    """The same message twice: the second one is known."""
    message: UserMessage = cell.scene.message(cell.mark, session=cell.session, user="ann")
    first = await ingress.accept_message(cell.scene.yard, message, inbox_cap=CAP)
    second = await ingress.accept_message(cell.scene.yard, message, inbox_cap=CAP)
    if first.code == "accepted":
        assert (second.code, second.position) == ("duplicate", first.position)
    third = await ingress.accept_message(cell.scene.yard, replace(message, body_hash="another"), inbox_cap=CAP)
    assert third.code == ("mismatch" if first.code == "accepted" else first.code)
    cell.sent_job = message.job
    return first.code


async def _unreadable(cell: Cell) -> str:
    """An accepted message whose entry was damaged on its way."""
    shard = cell.scene.shard(cell.session)
    code = await cell.say(cell.mark)
    if code == "accepted":
        entry, fields = (await shard.redis.xrevrange(shard.keys.ingress, count=1))[0]
        await shard.redis.xdel(shard.keys.ingress, entry)
        await shard.redis.xadd(shard.keys.ingress, {**fields, b"dy": b"soon"})
    return code


INPUTS: dict[str, Callable[[Cell], Awaitable[str]]] = {
    **{mode: _message(mode) for mode in get_args(Mode)},
    **{f"{mode} of a bystander": _message(mode, asker=False) for mode in ("steer", "follow_up", "rollback")},
    "later": _message("follow_up", delay_ms=60_000),
    "twice": _again,
    "unreadable": _unreadable,
    "notice": _notice,
    **{name: _control(name) for name in get_args(ingress.Control)},
    "cancel of the job": _cancelled_job,
    **{value: _outcome(value) for value in ("result", "error", "allow", "deny")},
}
MESSAGES = {name for name in INPUTS if name in get_args(Mode) or "bystander" in name or name in ("later", "twice")}


@pytest.mark.spec("rival-8")
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_every_input_is_delivered_once_refused_or_set_aside(scene: Scene, state: Callable[[Cell], Awaitable[None]]) -> None:
    shard = scene.yard.shards[0]
    owner = await scene.worker(capacity=200)
    cells = [Cell(scene, owner, f"{state.__name__}-{n}", kind) for n, kind in enumerate(INPUTS)]
    for cell in cells:
        await state(cell)
    for cell in cells:
        cell.code = await INPUTS[cell.kind](cell)
        assert cell.code == "accepted" or cell.code in REFUSALS, f"{cell.kind}: {cell.code}"
    await scene.dispatch()
    for cell in cells:
        cell.facts = await scene.head(cell.session)
    await set_limits(shard, max_concurrent_turns=200)
    await _rest(scene, owner, cells)
    for cell in cells:
        assert await _fate(cell) in ("delivered", "refused", "set aside"), cell.kind
    set_aside = [cell for cell in cells if cell.kind == "unreadable" and cell.code == "accepted"]
    assert len(await scene.dead()) == len(set_aside)


async def _rest(scene: Scene, owner: str, cells: list[Cell]) -> None:
    """Run everything to its end: pauses are lifted, calls time out, and one more message shows what only waited for a turn."""
    keys = {session_key("default", cell.session).encode(): cell.session for cell in cells}
    await _quiet(scene, owner, keys)
    for name in keys.values():
        await scene.control("resume", session=name)
    for passes_ms in (60_000, DAY_MS + 1):
        await _quiet(scene, owner, keys)
        await scene.pass_ms(passes_ms)
        await _quiet(scene, owner, keys)
        assert await _unclaimed(scene, keys) == [], "a message waits that nothing will wake"
        for name in keys.values():
            await scene.say("last", session=name, mode="follow_up")
    await _quiet(scene, owner, keys)
    assert {await scene.state(name) for name in keys.values()} == {"idle"}
    for job in await scene.yard.redis.keys("*:j:*"):
        assert await scene.yard.redis.hget(job, "st") in (b"succeeded", b"failed", b"cancelled")
    assert await _unclaimed(scene, keys) == []


async def _unclaimed(scene: Scene, keys: dict[bytes, str]) -> list[str]:
    """Return the idle sessions that say that accepted messages wait, or that hold some."""
    shard, found = scene.yard.shards[0], list[str]()
    for key, name in keys.items():
        queues = [await shard.redis.xrange(queue) for queue in (shard.keys.inbox(key.decode()), shard.keys.next(key.decode()))]
        waits = any(fields[b"k"] == b"user" for queue in queues for _, fields in queue)
        head = await scene.head(name)
        if head.get("st", "idle") == "idle" and (waits or head.get("q", "0") != "0"):
            found.append(name)
    return found


async def _quiet(scene: Scene, owner: str, keys: dict[bytes, str]) -> None:
    """Work until nothing runs and nothing could."""
    shard = scene.yard.shards[0]
    for _ in range(40):
        await fleet.beat(shard, owner, held=-1, lease_ms=30 * DAY_MS)
        await scene.tick()
        while await scene.ingress():
            await scene.dispatch()
        held = await shard.redis.zrange(shard.keys.prefix + "running", 0, -1)
        if not held:
            return
        for name in (keys[key] for key in held):
            view = await scene.begin_as(owner, int((await scene.head(name))["ep"]), name)
            if view is not None and not view.ended:
                await _step(scene, view)
    raise AssertionError("it never comes to rest")


async def _step(scene: Scene, view: TurnView) -> None:
    if view.cancel:
        await scene.commit(view, ending="finish", closing=True)
        return
    answers = tuple(Answer(row.call, row.outcome or "result", {"content": "ran", "is_error": False}) for row in view.rows)
    await scene.commit(view, Commit(append=(*answers, Say({"text": "bye"})), ending="finish"))


async def _records(cell: Cell) -> list[LogRecord]:
    return [record for ordinal in range(3) for record in await cell.scene.log(cell.session, ordinal)]


async def _fate(cell: Cell) -> str:
    """Return what became of the input, or how it broke the promise."""
    records = await _records(cell)
    marked = [r for r in records if r.is_entry and cell.mark in (r.body.get("text", ""), r.body.get("content", ""))]
    if cell.code != "accepted":
        return "refused" if not marked else f"refused and shown {len(marked)} times"
    if cell.kind == "unreadable":
        job = await cell.scene.yard.redis.hget(cell.scene.shard().keys.job(cell.sent_job or ""), "st")
        return "set aside" if (marked, job) == ([], b"failed") else f"shown {len(marked)} times, job {job}"
    if cell.kind in MESSAGES:
        job = (await cell.scene.yard.redis.hget(cell.scene.shard().keys.job(cell.sent_job or ""), "st")).decode()
        return "delivered" if (len(marked), job) == (1, "succeeded") else f"shown {len(marked)} times, job {job}"
    if cell.kind in ("notice", "result", "error"):
        return "delivered" if len(marked) == 1 else f"shown {len(marked)} times"
    return await _effect(cell, records)


async def _effect(cell: Cell, records: list[LogRecord]) -> str:
    """Tell whether a control or a decision, which shows no words, did what it is for, once."""
    ends = [r.outcome for r in records if r.type == "turn/end" and r.turn == cell.turn]
    outcomes = [r.outcome for r in records if r.type == RESULT and r.call == cell.call]
    done = {
        "cancel": lambda: ends == ["cancelled"],
        "new": lambda: sum(r.type == "store/opened" for r in records) == 1 + (cell.session.startswith("with_a_new")),
        "pause": lambda: cell.facts.get("pz") == "1",
        "resume": lambda: cell.facts.get("pz", "") == "",
        "allow": lambda: outcomes == ["result"],
        "deny": lambda: outcomes == ["denied"],
    }
    if cell.kind == "cancel of the job":
        state = (await cell.scene.yard.redis.hget(cell.scene.shard().keys.job(cell.job or ""), "st")).decode()
        return "delivered" if state == "cancelled" else f"job {state}"
    return "delivered" if done[cell.kind]() else f"no effect: {ends} {outcomes}"
