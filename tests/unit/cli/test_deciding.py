"""Deciding at the command line, and at the terminal that shows what waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from turnyard.cli.approvals import asked_of, read_input
from turnyard.cli.deciding import Deciding
from turnyard.cli.follow import note
from turnyard.client import Client
from turnyard.errors import InvalidRequest, NotApprover


class Decisions:
    """Approvals that only remember what was decided."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []
        self.refuse: Exception | None = None

    async def _take(self, *what: Any) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.made.append(what)

    async def allow(self, approval: str, *, user: str, reason: str | None = None) -> None:
        await self._take("allow", approval, user, reason)

    async def deny(self, approval: str, *, user: str, reason: str | None = None) -> None:
        await self._take("deny", approval, user, reason)

    async def answer(self, approval: str, answer: str, *, user: str) -> None:
        await self._take("answer", approval, user, answer)


@pytest.fixture
def decisions() -> Decisions:
    return Decisions()


@pytest.fixture
def deciding(decisions: Decisions) -> Deciding:
    return Deciding(cast("Client", SimpleNamespace(approvals=decisions)), "ann")


def asks(ident: str, kind: str = "allow_deny") -> dict[str, Any]:
    return {"type": "permission/request", "data": {"id": ident, "kind": kind}}


async def test_the_oldest_that_waits_is_meant_unless_another_is_named(deciding: Deciding, decisions: Decisions) -> None:
    for ident, kind in (("apr_1", "allow_deny"), ("apr_2", "question"), ("apr_3", "allow_deny")):
        deciding.see(asks(ident, kind))
    assert [await deciding.take(line) for line in ("/allow", "/deny apr_3 too much", "/answer 2", "hello")] == [True, True, True, False]
    assert decisions.made == [("allow", "apr_1", "ann", None), ("deny", "apr_3", "ann", "too much"), ("answer", "apr_2", "ann", "2")]
    deciding.see({"type": "permission/resolved", "data": {"id": "apr_1"}})
    await deciding.take("/deny")
    assert decisions.made[-1] == ("deny", "apr_3", "ann", None)


async def test_what_is_refused_is_said_and_the_conversation_goes_on(
    deciding: Deciding, decisions: Decisions, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await deciding.take("/allow")
    deciding.see(asks("apr_1"))
    decisions.refuse = NotApprover("this may be decided by fin-*")
    assert await deciding.take("/allow")
    said = capsys.readouterr().err
    assert "nothing waits for that" in said
    assert "/allow or /deny" in said
    assert "not taken: this may be decided by fin-*" in said


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        (
            "permission/request",
            {"id": "apr_1", "kind": "allow_deny", "tool": "refund", "args": {"amount": 120}, "reason": "over 100", "expires_at": "T"},
            "? refund(amount=120) waits to be allowed until T: over 100\n  turnyard approvals allow apr_1   or deny",
        ),
        (
            "permission/request",
            {"id": "apr_2", "kind": "question", "args": {"text": "where to?"}, "options": ["Paris", "Berlin"], "expires_at": "T"},
            "? where to? [1] Paris [2] Berlin (waits until T)\n  turnyard approvals answer apr_2 ANSWER",
        ),
        ("permission/resolved", {"outcome": "allow", "allow": True, "by": "ann"}, "✓ allowed by ann"),
        ("permission/resolved", {"outcome": "deny", "allow": False, "by": "ann", "reason": "no"}, "✗ denied by ann: no"),
        ("permission/resolved", {"outcome": "timeout", "allow": False, "by": "tick"}, "✗ not decided in time"),
        ("call/parked", {"kind": "approval", "expires_at": "T"}, None),
        ("message/sent", {"text": "half of it"}, "» half of it"),
    ],
)
def test_what_waits_has_its_line(kind: str, data: dict[str, Any], line: str | None) -> None:
    assert note(kind, data) == line


@pytest.mark.parametrize("text", ["{", "[1]", "3", "null"])
def test_arguments_are_a_json_object(text: str) -> None:
    with pytest.raises(InvalidRequest, match="--input"):
        read_input(text)
    assert read_input('{"amount": 80}') == {"amount": 80}


def test_a_list_shows_what_a_call_would_do_on_one_line() -> None:
    call = {"kind": "allow_deny", "args": {"order": "7\n8", "amount": 120}, "options": [], "reason": None}
    assert asked_of(call) == "order='7\\n8', amount=120"
    question = {"kind": "question", "args": {"text": "where to?"}, "options": ["Paris", "Berlin"], "reason": None}
    assert asked_of(question) == "where to? [1 Paris, 2 Berlin]"
