"""One script, played on the session in memory and on one in Redis, leaves the same log and the same answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, Limits, Park, SessionClosed, ToolError, tool
from turnyard.app import Agent
from turnyard.app.calls import Hands
from turnyard.clock import SystemClock
from turnyard.engine.memory import MemorySession
from turnyard.engine.runner import Model, Performer
from turnyard.engine.store import MemoryStore
from turnyard.engine.strategy import Ask, Call, Continue, Decision, Finish, Question, Strategy
from turnyard.engine.turn import commit_after, next_effect
from turnyard.ports import AskedCall, Done, SessionStore
from turnyard.records.commit import TurnView
from turnyard.records.log import LogRecord
from turnyard.state.jobs import read_job
from turnyard.state.store import open_store
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


@tool
async def submit(what: str) -> str:
    """Hand something to a system that answers later."""
    return f'{{"pending": true, "correlation_id": "{what}", "ttl_s": 1e300}}'


@tool
async def tidy(disk: str) -> dict[str, Any]:
    """Make room, which is what a notice of the disk was about."""
    return {"clear": True, "group_by": "disk", "key": disk}


TOOLS = (add, fail, leave, order, submit, tidy)


@dataclass
class Played:
    """An agent's session on a store, driven here."""

    store: SessionStore
    agent: Agent
    model: ScriptedModel
    job: Callable[[str], Awaitable[tuple[str, str | None, str | None]]]
    jobs: list[str] = field(default_factory=list[str])
    parked: list[str] = field(default_factory=list[str])

    async def publish(self, text: str) -> None:
        self.jobs.append(await self.store.publish({"text": text}))

    async def resolve(self, at: int, text: str) -> str:
        code = await self.store.outcome(self.parked[at], "result", {"content": text, "is_error": False})
        await self.run()
        return code

    async def run(self) -> None:
        """Run turns until none is left to take."""
        table = self.agent.table()
        performer = Performer(self.agent.means([Model(self.model, "ScriptedModel")], Hands("a", self.agent.toolbox(), None)))
        while (view := await self.store.begin()) is not None:
            while not view.ended:
                effect, result = await performer.perform(view, next_effect(view, table))
                change = commit_after(view, effect, result=result, facts=table)
                self.parked += [p.call for p in change.park]
                view = await self.store.commit(view, change)
                if not view.ended:
                    assert known(view.entries) == known(await self.store.entries()), "what the driver believes is not what the log says"

    async def answers(self) -> list[tuple[str, str | None, str | None]]:
        return [await self.job(job) for job in self.jobs]


Play = Callable[[Played], Awaitable[None]]


def known(log: Sequence[LogRecord]) -> list[tuple[Any, ...]]:
    """What of a log decides over the messages."""
    return [(e.seq, e.type, e.turn, e.call, e.outcome, e.aside, e.late, e.body) for e in log]


def bare(log: Sequence[LogRecord]) -> list[tuple[Any, ...]]:
    """A log without what differs by nature: ids, times, numbers of events between entries."""
    names: dict[str, str] = {}
    bodies: list[tuple[Any, ...]] = []
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
    assert len(s.model.requests) == 1


async def twice(s: Played) -> None:
    await one(s)
    await one(s)


async def answered_later(s: Played) -> None:
    await one(s)
    await s.publish("is it there?")
    assert await s.resolve(0, "here it is") == "accepted"
    assert await s.resolve(0, "here it is") == "duplicate"
    assert await s.resolve(0, "elsewhere") == "conflict"


async def news_at_once(s: Played) -> None:
    await one(s)
    await s.store.notice({"text": "the shop closes"}, group="shop", key="hours")
    await s.publish("is it there?")
    assert await s.resolve(0, "here it is") == "accepted"
    assert len(s.model.requests) == 3
    news = [str(m["content"]) for m in s.model.requests[2].messages[-3:]]
    assert [text.partition("the shop closes")[1] or text.partition("here it is")[1] or text for text in news] == [
        "the shop closes",
        "is it there?",
        "here it is",
    ]


async def news_that_is_over(s: Played) -> None:
    await s.store.notice({"text": "the door is open"}, group="door", key="front")
    await one(s)
    await one(s)
    assert "the door is open" not in str([r.messages for r in s.model.requests])
    assert await s.store.notices() == []


async def news_that_a_tool_ends(s: Played) -> None:
    await s.store.notice({"text": "sda is full"}, group="disk", key="sda")
    await s.store.notice({"text": "sdb is full"}, group="disk", key="sdb")
    await one(s)
    shown = [[disk in str(request.messages) for disk in ("sda is full", "sdb is full")] for request in s.model.requests]
    assert shown == [[True, True], [False, True]]
    assert [notice.pair for notice in await s.store.notices()] == ["disk\nsdb"]


async def shut(_ctx: Any, _key: str) -> str:
    return ""


async def context_first(s: Played) -> None:
    await s.store.inject({"text": "it rains"})
    await s.run()
    assert s.model.requests == []
    await one(s)


async def question(s: Played) -> None:
    await one(s)
    assert len(s.parked) == 1
    assert await s.resolve(0, "green") == "accepted"


class Careful(Strategy[dict[str, int]]):
    """Asks somebody before it asks the model, and remembers how often it did."""

    name = "careful"

    def init(self, view: TurnView) -> dict[str, int]:
        return {"questions": 0, "answers": 0}

    def step(self, view: TurnView, state: dict[str, int], answer: Done | None) -> tuple[dict[str, int], Decision]:
        if answer is not None:
            return state | {"answers": state["answers"] + 1}, Call(answer.calls) if answer.calls else Continue(("is that so?",))
        if state["questions"] == 0:
            return state | {"questions": 1}, Call((Question("colour", {"text": "which?"}), AskedCall("own", "add", '{"a": 1, "b": 2}')))
        return state, Ask("in a word") if state["answers"] < 3 else Finish(state)


PLAN = '{"steps": [{"tool": "add", "args": {"a": 1, "b": 2}}, {"tool": "nobody", "args": {}}, {"tool": "add", "args": {"a": 3, "b": 4}}]}'


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
    "calls that run together, some of which promise their results": (
        answered_later,
        [[call("submit", what="x"), call("add", a=1, b=1), call("submit", what="y"), call("add", a=2, b=2)], "submitted", "half", "there"],
        {"limits": Limits(parallel_tools=2)},
    ),
    "a notice that a tool's result ends": (news_that_a_tool_ends, [[call("tidy", disk="sda"), call("add", a=1, b=1)], "tidied"], {}),
    "a notice that a result of several at once ends": (
        news_that_a_tool_ends,
        [[call("tidy", disk="sda"), call("add", a=1, b=1)], "tidied"],
        {"limits": Limits(parallel_tools=2)},
    ),
    "a call that is answered later": (answered_later, [call("order", part="x"), "ordered", "there"], {}),
    "a late result, a message and a notice at once": (news_at_once, [call("order", part="x"), "ordered", "all in one"], {}),
    "context that was injected": (context_first, ["hello"], {}),
    "a notice that its check finds to be over": (news_that_is_over, ["hello", "again"], {}),
    "calls before and after one that parks": (
        answered_later,
        [[call("add", a=1, b=1), call("order", part="x"), call("add", a=2, b=2)], "ordered", "there"],
        {},
    ),
    "a call that could park and did not": (one, [[call("order", part="nut"), call("add", a=1, b=1)], "there"], {}),
    "a reply that is corrected": (one, ["seven", "7"], {"output": int}),
    "a reply that never fits": (one, ["seven"] * 5, {"output": int}),
    "a plan, its steps and another look": (one, [PLAN, '{"steps": []}', "10"], {"strategy": "plan_execute"}),
    "a plan that cannot be read": (one, ["no", "still no"], {"strategy": "plan_execute"}),
    "a strategy that asks a question and remembers": (question, [call("add", a=1, b=1), "two", "2"], {"strategy": Careful()}),
    "a reply without its terminal tool": (one, ["done", call("leave", word="bye")], {"terminal_tool": "leave"}),
}


ROWS = {
    "messages that wait together": ("turn-19",),
    "a call that is answered later": ("turn-20", "turn-21", "turn-23"),
    "a late result, a message and a notice at once": ("turn-22",),
    "context that was injected": ("turn-18",),
    "a notice that its check finds to be over": ("turn-24",),
}


@pytest.fixture
async def yard(clean: str) -> AsyncIterator[Yard]:
    opened = await Yard.open(clean, clock=SystemClock())
    yield opened
    await opened.aclose()


@asynccontextmanager
async def in_redis(yard: Yard, agent: Agent, script: list[Any]) -> AsyncGenerator[Played]:
    """Play on a session of a real server."""

    async def job(ident: str) -> tuple[str, str | None, str | None]:
        found = await read_job(yard, ident, tenant="default")
        assert found is not None
        return found.state, (found.output or {}).get("text"), (found.error or {}).get("code")

    async with open_store(yard, tenant="default", session="s", agent="a") as store:
        yield Played(store, agent, ScriptedModel(script), job)


def in_memory(agent: Agent, script: list[Any]) -> Played:
    """Play on a session of this process."""
    session = MemorySession(SystemClock(), {"tenant": "default", "session": "s", "agent": "a", "user": "", "platform": "local"})

    async def job(ident: str) -> tuple[str, str | None, str | None]:
        found = session.jobs[ident]
        return found.state, found.text if found.state == "succeeded" else None, (found.error or {}).get("code")

    return Played(MemoryStore(session), agent, ScriptedModel(script), job)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.spec(*ROWS.get(name, ()))) for name in SCRIPTS])
async def test_a_script_leaves_the_same_log_and_the_same_answers_in_both(yard: Yard, name: str) -> None:
    play, script, options = SCRIPTS[name]
    app = App()
    app.revalidate("door")(shut)
    agent = app.agent("a", model="scripted:none.yaml", tools=TOOLS, **options)
    here = in_memory(agent, script)
    await play(here)
    async with in_redis(yard, agent, script) as there:
        await play(there)
        assert bare(await there.store.entries()) == bare(await here.store.entries())
        assert await there.answers() == await here.answers()
    assert [len(r.messages) for r in there.model.requests] == [len(r.messages) for r in here.model.requests]
