"""Whatever a model answers and whatever arrives meanwhile: a run keeps its grammar, loses no message and asks validly."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from turnyard import App, Limits, SessionClosed, ToolError, tool
from turnyard.engine.bus import AgentEnd, Event
from turnyard.engine.local import LocalSession
from turnyard.errors import ModelError
from turnyard.ports import Delta, Done, ModelRequest
from turnyard.testing import ScriptedModel, call, say
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai

LETTERS = {
    "agent_start": "A",
    "turn_start": "T",
    "message_start": "m",
    "message_update": "u",
    "message_end": "e",
    "tool_execution_start": "x",
    "tool_execution_end": "y",
    "turn_end": "t",
    "agent_end": "Z",
}
# a run: turns of messages and tool executions; each message whole before the next, calls before their results
RUN = re.compile(r"A(T(mu*e|x|y)*t)*Z")

CALLS = st.sampled_from([call("fine"), call("bad"), call("nobody"), call("close")])
ANSWERS = st.one_of(
    st.just("answer"),
    st.lists(CALLS, min_size=1, max_size=3),
    st.just(say("first this", call("fine"))),
    st.just(ModelError("no")),
)
ACTIONS = st.sampled_from(["", "", "steer", "follow", "publish", "inject", "abort"])
MODES = st.sampled_from(["one", "all"])


class Eventful(ScriptedModel):
    """Lets something happen in the middle of each answer; says "the end" when its script is over."""

    def __init__(self, items: list[Any], happen: Any) -> None:
        super().__init__(items)
        self._happen = happen
        self._given = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        item = self._items[self._given] if self._given < len(self._items) else "the end"
        self._given += 1
        inner = ScriptedModel([item] * (1 + len(request.messages)))
        self.requests.append(request)
        yield Delta("text", 0, "…")
        await asyncio.sleep(0)
        self._happen()
        await asyncio.sleep(0)
        async for piece in inner.stream(request):
            yield piece


@tool
async def fine() -> str:
    """Work."""
    await asyncio.sleep(0)
    return "ok"


@tool
async def bad() -> str:
    """Fail."""
    raise ToolError("no")


@tool
async def close() -> str:
    """End the turn."""
    raise SessionClosed("bye")


class Scene:
    """One session, its script, and what was sent to it."""

    def __init__(self, answers: list[Any], actions: list[str], steering: Any, follow_ups: Any, parallel: int) -> None:
        self.actions = list(actions)
        self.sent: list[str] = []
        self.events: list[Event] = []
        self.model = Eventful(answers, self.happen)
        agent = App().agent("a", model=self.model, tools=[fine, bad, close], limits=Limits(parallel_tools=parallel, loop_guard=False))
        self.talk: LocalSession = agent.local(steering=steering, follow_ups=follow_ups)
        self.talk.bus.subscribe(self.events.append)

    def text(self, kind: str) -> str:
        self.sent.append(f"{kind} {len(self.sent)}")
        return self.sent[-1]

    def happen(self) -> None:
        action = self.actions.pop(0) if self.actions else ""
        if action == "steer":
            self.talk.steer(self.text(action))
        elif action == "follow":
            self.talk.follow_up(self.text(action))
        elif action == "publish":
            self.talk.publish(self.text(action))
        elif action == "inject":
            self.talk.inject(self.text(action))
        elif action == "abort":
            self.talk.abort()

    async def play(self) -> None:
        await self.run(self.talk.prompt(self.text("prompt")))
        await self.run(self.talk.prompt(self.text("prompt")))
        while self.talk.has_queued or self.talk.waiting:
            await self.run(self.talk.prompt(self.text("prompt")))

    async def run(self, running: Any) -> None:
        self.events.clear()
        before = len(self.talk.messages)
        await running
        letters = "".join(LETTERS[event.type] for event in self.events)
        assert RUN.fullmatch(letters), letters
        end = self.events[-1]
        assert isinstance(end, AgentEnd)
        assert list(end.messages) == self.talk.messages[before:]
        state = self.talk.state()
        assert (state.is_streaming, state.streaming_message, state.pending_tool_calls) == (False, None, frozenset())


@given(st.lists(ANSWERS, max_size=6), st.lists(ACTIONS, max_size=8), MODES, MODES, st.integers(1, 3))
def test_a_run_keeps_its_grammar_delivers_each_message_once_and_asks_only_what_models_accept(
    answers: list[Any], actions: list[str], steering: Any, follow_ups: Any, parallel: int
) -> None:
    scene = Scene(answers, actions, steering, follow_ups, parallel)
    asyncio.run(scene.play())
    # What the engine itself tells a model that repeats itself was sent by nobody.
    said = [m.text for m in scene.talk.messages if m.role == "user" or (m.role == "notification" and m.text.startswith("inject"))]
    assert sorted(said) == sorted(scene.sent)
    for kind in ("steer", "follow", "publish", "prompt"):
        assert [t for t in said if t.startswith(kind)] == [t for t in scene.sent if t.startswith(kind)]
    for request in scene.model.requests:
        assert not [*check_openai(request.messages), *check_anthropic(request.messages), *check_gemini(request.messages)]
        assert "…" not in [m["content"] for m in request.messages], "an aborted answer was shown"
