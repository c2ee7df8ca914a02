"""One script, played on the session in memory and on one in Redis, leaves the same log and the same answers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, Limits, Park, SessionClosed, ToolError, tool
from turnyard.app import Agent
from turnyard.app.calls import Hands
from turnyard.clock import SystemClock
from turnyard.engine.local import LocalSession
from turnyard.engine.runner import Model, Performer
from turnyard.engine.turn import commit_after, next_effect
from turnyard.records import ids
from turnyard.records.log import LogRecord
from turnyard.records.messages import UserMessage
from turnyard.state import agents, fleet, flows, ingress, turns
from turnyard.state.jobs import read_job
from turnyard.state.log import read_log
from turnyard.state.yard import Yard
from turnyard.testing import ScriptedModel, call


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@tool
async def leave(word: str) -> str:
    """End the session."""
    raise SessionClosed(word)


@tool(park=timedelta(minutes=1))
async def order(ctx: Any, part: str) -> Park | str:
    """Order a part, which may be there at once."""
    return "in stock" if part == "nut" else Park(f"ordered {part}")


TOOLS = (add, fail, leave, order)


@dataclass
class InRedis:
    """A session that a worker of this process runs on a real server."""

    yard: Yard
    agent: Agent
    model: ScriptedModel
    owner: str = field(default_factory=lambda: secrets.token_hex(16))
    serial: int = 1
    store: str = ""
    jobs: list[str] = field(default_factory=list[str])
    parked: list[str] = field(default_factory=list[str])

    async def enlist(self) -> None:
        """Publish the agent and register as a worker that runs it."""
        self.serial = (await agents.publish(self.yard, self.agent.manifest())).serial
        for shard in self.yard.shards:
            await fleet.register(shard, self.registration)

    @property
    def registration(self) -> fleet.Registration:
        return fleet.Registration(self.owner, "worker", "h", 1, 1, ("default",), {"a": self.serial}, 4)

    async def publish(self, text: str) -> None:
        key = ids.session_key("default", "s")
        shard = self.yard.shard_for(key)
        self.store = ids.store_key(key, 0)
        self.jobs.append(ids.new_job_id(shard.n))
        message = UserMessage("default", "s", "a", {"text": text}, self.jobs[-1], "h", complete_when="settled", platform="local")
        assert (await ingress.accept_message(self.yard, message)).code == "accepted"

    async def resolve(self, at: int, text: str) -> str:
        shard = self.yard.shard_for(ids.store_session(self.store))
        body = {"content": text, "is_error": False}
        told = await ingress.accept_outcome(
            self.yard,
            shard=shard.n,
            store=self.store,
            call=self.parked[at],
            outcome="result",
            body=body,
            secret_hash=_hash(self.parked[at]),
        )
        await self.run()
        return told.code

    async def run(self) -> None:
        """Dispatch, take and run until nothing is assigned."""
        shard = self.yard.shard_for(ids.session_key("default", "s"))
        lists = fleet.Lists(self.registration, extra=(f"default:a@{self.serial}",))
        while True:
            await flows.dispatch(shard)
            taken = [t for t in await fleet.take(shard, lists, free=1, block_ms=10) if isinstance(t, fleet.Assignment)]
            if not taken:
                return
            await self.turn(taken[0].session, taken[0].epoch)

    async def turn(self, session: str, epoch: int) -> None:
        shard = self.yard.shard_for(session)
        table = self.agent.table(secret_hash=_hash)
        performer = Performer(self.agent.means([Model(self.model, "ScriptedModel")], Hands("a", self.agent.tools, None)))
        view = await turns.begin(shard, session, epoch=epoch, owner=self.owner, serial=self.serial)
        assert view is not None
        while not view.ended:
            effect, result = await performer.perform(view, next_effect(view, table))
            change = commit_after(view, effect, result=result, facts=table)
            self.parked += [p.call for p in change.park]
            view = await turns.commit(shard, view, self.owner, change)
            if not view.ended:
                assert known(view.entries) == known(await self.log()), "what the worker believes is not what the log says"

    async def log(self) -> list[LogRecord]:
        shard = self.yard.shard_for(ids.store_session(self.store))
        return [r for r in await read_log(shard, self.store, limit=1000) if r.is_entry]

    async def answers(self) -> list[tuple[str, str | None, str | None]]:
        found = [await read_job(self.yard, job, tenant="default") for job in self.jobs]
        return [(j.state, (j.output or {}).get("text"), (j.error or {}).get("code")) for j in found if j]


@dataclass
class InMemory:
    """The same session in memory."""

    talk: LocalSession
    model: ScriptedModel
    jobs: list[str] = field(default_factory=list[str])

    async def publish(self, text: str) -> None:
        self.jobs.append(self.talk.publish(text))

    async def resolve(self, at: int, text: str) -> str:
        row = [r for r in self.talk.memory.rows.values() if r.state == "parked"][at]
        code = self.talk.memory.outcome(row.call, "result", {"content": text, "is_error": False})
        await self.run()
        return code

    async def run(self) -> None:
        await self.talk.run()

    async def log(self) -> list[LogRecord]:
        return list(self.talk.entries)

    async def answers(self) -> list[tuple[str, str | None, str | None]]:
        found = [self.talk.memory.jobs[job] for job in self.jobs]
        ended = [j.state == "succeeded" for j in found]
        return [(j.state, j.text if done else None, (j.error or {}).get("code")) for j, done in zip(found, ended, strict=True)]


Played = InRedis | InMemory
Play = Callable[[Played], Awaitable[None]]


def _hash(call_id: str) -> str:
    return ids.body_hash(call_id.encode())


def known(log: Sequence[LogRecord]) -> list[tuple[Any, ...]]:
    """What of a log decides over the messages."""
    return [(e.seq, e.type, e.turn, e.call, e.outcome, e.aside, e.late, e.body) for e in log]


def bare(log: list[LogRecord]) -> list[tuple[Any, ...]]:
    """A log without what differs by nature: ids, times, numbers of events between entries."""
    names: dict[str, str] = {}
    bodies = []
    for entry in log:
        call_name = names.setdefault(entry.call, f"call {len(names)}") if entry.call else None
        text = str(entry.body)
        for known, name in names.items():
            text = text.replace(known, name)
        bodies.append(
            (entry.type, call_name, entry.kind if entry.type != "tool/result" else None, entry.outcome, entry.aside, entry.late, text)
        )
    return bodies


async def one(s: Played) -> None:
    await s.publish("hi")
    await s.run()


async def together(s: Played) -> None:
    for text in ("one", "two", "three"):
        await s.publish(text)
    await s.run()


async def twice(s: Played) -> None:
    await one(s)
    await one(s)


async def answered_later(s: Played) -> None:
    await one(s)
    await s.publish("is it there?")
    assert await s.resolve(0, "here it is") == "accepted"
    assert await s.resolve(0, "here it is") == "duplicate"
    assert await s.resolve(0, "elsewhere") == "conflict"


SCRIPTS: dict[str, tuple[Play, list[Any], dict[str, Any]]] = {
    "an answer in words": (one, ["hello"], {}),
    "a call and its answer": (one, [call("add", a=1, b=2), "3"], {}),
    "two calls, then one, then an answer": (one, [[call("add", a=1, b=2), call("fail", why="no")], call("add", a=3, b=4), "7"], {}),
    "messages that wait together": (together, ["all"], {}),
    "two turns": (twice, ["a", "b"], {}),
    "a tool nobody has, arguments that do not fit": (one, [[call("nobody"), call("add", a="x"), call("add", a=1, b=1)], "2"], {}),
    "a tool that ends the turn": (one, [[call("leave", word="bye"), call("add", a=1, b=1)], "never"], {}),
    "a turn at its limit": (one, [call("add", a=1, b=1)] * 5, {"limits": Limits(model_calls=3)}),
    "calls that run together": (one, [[call("add", a=n, b=n) for n in range(5)], "done"], {"limits": Limits(parallel_tools=2)}),
    "a call that is answered later": (answered_later, [call("order", part="x"), "ordered", "there"], {}),
    "calls before and after one that parks": (
        answered_later,
        [[call("add", a=1, b=1), call("order", part="x"), call("add", a=2, b=2)], "ordered", "there"],
        {},
    ),
    "a call that could park and did not": (one, [[call("order", part="nut"), call("add", a=1, b=1)], "there"], {}),
    "a reply that is corrected": (one, ["seven", "7"], {"output": int}),
    "a reply that never fits": (one, ["seven"] * 5, {"output": int}),
    "a reply without its terminal tool": (one, ["done", call("leave", word="bye")], {"terminal_tool": "leave"}),
}


@pytest.fixture
async def yard(clean: str) -> AsyncIterator[Yard]:
    opened = await Yard.open(clean, clock=SystemClock())
    yield opened
    await opened.aclose()


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_script_leaves_the_same_log_and_the_same_answers_in_both(yard: Yard, name: str) -> None:
    play, script, options = SCRIPTS[name]
    agent = App().agent("a", model="scripted:none.yaml", tools=TOOLS, **options)
    local_model = ScriptedModel(script)
    here = InMemory(agent.local(model=local_model), local_model)
    there = InRedis(yard, agent, ScriptedModel(script))
    await there.enlist()
    await play(here)
    await play(there)
    assert bare(await there.log()) == bare(await here.log())
    assert await there.answers() == await here.answers()
    assert [len(r.messages) for r in there.model.requests] == [len(r.messages) for r in here.model.requests]
