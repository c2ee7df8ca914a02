"""The words in which the rules of a session store are told: what a test opens, what it says, what it looks at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import orjson

from turnyard.engine.render import render
from turnyard.ports import SessionStore
from turnyard.records import ids
from turnyard.records.commit import PLACEHOLDER, Answer, Commit, NewCall, Note, Park, Part, Say, TurnView
from turnyard.records.log import COMPACTION, NOTICE, LogRecord
from turnyard.testing.checkers import check_anthropic, check_gemini, check_openai

MINUTE_MS = 60_000

# What a careless store would trim, decode, reorder or normalise.
ODD: dict[str, Any] = {
    "tag": ' [x]\t"y"\\ {"a":1} ',
    "origin": "a:b/{c}*\u202e\u0000é e\u0301 \U0001f9f5 ",
    "metadata": {"z": "1", "a": "", "": "0"},
    "parts": [{"type": "text", "text": "\u2028<|x|>"}, {"type": "image", "url": "data:,"}],
    "nested": {"z": [1, None, True, 0.5], "a": {"": ""}},
    "number": 9_007_199_254_740_993,
}


class StoreTest(ABC):
    """What a subclass says of its store."""

    @abstractmethod
    async def open(self) -> SessionStore:
        """Return one more client of the session of this test. It has the agent that all of them have."""

    @abstractmethod
    async def pass_ms(self, ms: int) -> None:
        """Let so much of the store's time pass."""


async def begun(store: SessionStore) -> TurnView:
    """Return the session's turn, which must be there to take."""
    view = await store.begin()
    assert view is not None, "there is no turn to take"
    return view


async def ended(store: SessionStore, view: TurnView, text: str = "bye") -> TurnView:
    """End a turn with a word of the model; return what the session shows then."""
    return await store.commit(view, Commit(append=(Say({"text": text}),), ending="finish"))


async def long_turn(store: SessionStore) -> TurnView:
    """Return a running turn of five entries."""
    await store.publish({"text": "hi"})
    return await store.commit(await begun(store), Commit(append=tuple(Note(NOTICE, {"text": str(i)}) for i in range(1, 5))))


async def shown_notice(store: SessionStore) -> TurnView:
    """Return a running turn whose log begins with a notice."""
    await store.notice({"text": "full"}, group="disk", key="sda")
    await store.publish({"text": "hi"})
    return await begun(store)


async def launched(store: SessionStore) -> tuple[TurnView, str]:
    """Return a running turn and the call of it that goes on outside, for a minute at most."""
    await store.publish({"text": "render it"})
    view = await begun(store)
    made = say(view, "", 1, kind="callback")
    call = made.calls[0].id
    view = await store.commit(view, Commit(append=(made,), start=(call,)))
    note = Answer(call, PLACEHOLDER, {"content": f"Pending: job-7 as {call}"})
    return await store.commit(view, Commit(append=(note,), park=(Park(call, MINUTE_MS),))), call


def say(view: TurnView, text: str, calls: int, kind: Any = "plain") -> Say:
    """Return an answer of the model with so many calls."""
    names = [ids.call_id(view.store, view.turn, view.rev + 1, i) for i in range(calls)]
    return Say({"text": text}, tuple(NewCall(name, kind, {"name": "look", "args": {}, "provider_id": name}) for name in names))


def answers(made: Say) -> tuple[Part, ...]:
    """Return a result for each of these calls."""
    return tuple(Answer(call.id, "result", {"content": "fine", "is_error": False}) for call in made.calls)


def summary(view: TurnView, count: int) -> Note:
    """Return the summary of the first entries of a view."""
    first, last = view.entries[0].seq, view.entries[count - 1].seq
    body = {"text": "summed up", "at": last, "spans": [[first, last]], "count": count, "before": 100, "after": 10, "more": False}
    return Note(COMPACTION, body)


async def records(store: SessionStore) -> list[LogRecord]:
    """Return the whole log, events and hidden entries too."""
    found: list[LogRecord] = []
    while (record := await store.entry(len(found) + 1)) is not None:
        found.append(record)
    return found


def one(found: Sequence[LogRecord], kind: str) -> LogRecord:
    """Return the only record of a type."""
    (record,) = (r for r in found if r.type == kind)
    return record


def words(entries: Sequence[LogRecord]) -> list[str]:
    """Return the texts of entries that have one."""
    return [e.body["text"] for e in entries if "text" in e.body]


def dumped(body: dict[str, Any]) -> bytes:
    """Return a body so that any difference shows, the order of its fields too."""
    return orjson.dumps(body)


def accepted_everywhere(view: TurnView) -> None:
    """Check that what the view renders to is a list which strict model APIs take."""
    messages = render(view.entries)
    assert [check(messages) for check in (check_openai, check_anthropic, check_gemini)] == [[], [], []]
