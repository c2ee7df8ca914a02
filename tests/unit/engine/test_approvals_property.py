"""Whatever is called, and however people answer: nothing runs that was not allowed, with nothing but what was shown or given."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.integration.conversation import check_log
from turnyard import App, ApprovalRequired, Ask, Deny, Limits, LocalSession, Park, ToolContext, tool
from turnyard.engine.results import ParkedCall
from turnyard.testing import ManualClock, ScriptedModel, call

FROZEN = 13
MAY_ALWAYS = ("look", "park")
names = st.sampled_from(["look", "ask", "lift", "away", "body", "park", "gone"])
numbers = st.one_of(st.integers(0, 4), st.just(FROZEN), st.just("no number"))
answers = st.lists(st.tuples(names, numbers), min_size=1, max_size=4)
acts = st.sampled_from(["allow", "allow", "allow", "edit", "freeze", "spoil", "deny", "expire", "write", "cancel"])


@dataclass
class World:
    """An app whose tools write down what they ran with, and what people allowed by then."""

    ran: list[tuple[str, int, bool]] = field(default_factory=list[tuple[str, int, bool]])
    app: App = field(default_factory=App)

    def note(self, name: str, n: int, ctx: ToolContext[Any]) -> str:
        """Write down that a tool ran."""
        self.ran.append((name, n, ctx.approved))
        return f"{name} {n}"

    def made(self, name: str, **options: Any) -> Any:
        """A tool that runs, asks first in its body, or parks, as its name says."""

        async def run(ctx: ToolContext[Any], n: int) -> Any:
            if name == "body" and not ctx.approved:
                raise ApprovalRequired("the body asks")
            said = self.note(name, n, ctx)
            return Park("parked", wait=n % 2 == 0) if name == "park" else said

        run.__name__ = name
        return tool(**options)(run)

    def tools(self) -> list[Any]:
        """The tools, each with the context of its call."""
        lifted = [self.made("lift", lift=True, wait=True, approval=True), self.made("away", lift=True, approval=Ask("far"))]
        return [self.made("look"), self.made("ask", approval=True), *lifted, self.made("body"), self.made("park", park=60)]

    def session(self, script: list[list[tuple[str, Any]]], parallel: int) -> LocalSession:
        """A session whose model makes these calls, an answer after the other."""

        def frozen(_ctx: Any, made: Any) -> Deny | None:
            return Deny("frozen") if made.args.get("n") == FROZEN else None

        self.app.policy(frozen)
        said = [[call(name, n=n) for name, n in one] for one in script]
        limits = Limits(parallel_tools=parallel, loop_guard=False)
        agent = self.app.agent("a", model=ScriptedModel([*said, "done"] * 3), tools=self.tools(), limits=limits)
        return agent.local(clock=ManualClock())


async def act(session: LocalSession, how: str, one: ParkedCall, allowed: set[tuple[str, int]]) -> None:
    """Do something about a call that waits."""
    if how == "expire":
        await session.memory.clock.advance(3600)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        await session.expire()
    elif how == "write":
        await session.prompt("never mind")
    elif how == "cancel":
        session.cancel()
        await session.run()
    elif one.request is None:
        await session.resolve(one, "came")
    elif how == "deny":
        await session.approve(one, allow=False)
    else:
        edits: dict[str, dict[str, Any]] = {"edit": {"n": 7}, "freeze": {"n": FROZEN}, "spoil": {"n": "x"}}
        given = edits.get(how)
        n = (one.args if given is None else given).get("n")
        if isinstance(n, int) and n != FROZEN:
            allowed.add((one.tool, n))
        await session.approve(one, by="boss", input=given)


async def play(script: list[list[tuple[str, Any]]], parallel: int, doing: list[tuple[str, int]]) -> None:
    world = World()
    session = world.session(script, parallel)
    allowed: set[tuple[str, int]] = set()
    await session.prompt("go")
    for how, which in doing:
        if not session.parked:
            break
        await act(session, how, session.parked[which % len(session.parked)], allowed)
    for _ in range(20):
        if not session.parked:
            break
        await act(session, "deny", session.parked[0], allowed)
    assert (session.parked, session.memory.state) == ((), "idle")
    check_log(session.memory.log)
    assert all(n != FROZEN for _, n, _ in world.ran)
    for name, n, approved in world.ran:
        assert approved == (name not in MAY_ALWAYS)
        assert name in MAY_ALWAYS or (name, n) in allowed
    json.dumps([r.body for r in session.memory.log])


@pytest.mark.spec("S16", "S17", "runner-34")
@given(st.lists(answers, min_size=1, max_size=3), st.sampled_from([1, 3]), st.lists(st.tuples(acts, st.integers(0, 9)), max_size=8))
def test_nothing_runs_but_what_was_allowed(script: list[list[tuple[str, Any]]], parallel: int, doing: list[tuple[str, int]]) -> None:
    asyncio.run(asyncio.wait_for(play(script, parallel, doing), 20))
