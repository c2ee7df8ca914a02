"""Approvals and questions on the server: who may decide, once, in time; and who else may take the place of what is asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.broken import Broken, snaps
from tests.protocol.scene import DAY_MS, OK, SECRET, Scene, call, shown
from turnyard.errors import InvalidInput
from turnyard.records.approvals import Decided, Decision, approval_id
from turnyard.records.commit import Answer, Park, TurnView
from turnyard.records.ids import hash_secret
from turnyard.records.log import DECIDED
from turnyard.state import approvals

pytestmark = pytest.mark.asyncio

ALLOW, DENY = Decision("allow", "bob"), Decision("deny", "bob", reason="too dear")


async def asked(
    scene: Scene, owner: str, *, kind: Any = "approval", calls: int = 1, ms: int = DAY_MS, user: str = "ann", **request: Any
) -> tuple[TurnView, list[str]]:
    """A turn of ann's that waits for people."""
    view = await scene.open_turn(owner, user=user)
    made = [call(view, i, kind, awaited=True) for i in range(calls)]
    view = await scene.ask(view, *made)
    await scene.commit(view, park=tuple(Park(c.id, ms, request={"reason": "why", **request}) for c in made), ending="park")
    assert (await scene.state(), await scene.running()) == ("parked", 0)
    return view, [c.id for c in made]


def ident(scene: Scene, view: TurnView, name: str) -> str:
    return approval_id(scene.shard("s").n, view.store, name)


async def decide(scene: Scene, view: TurnView, name: str, decision: Decision = ALLOW) -> Decided:
    return await approvals.decide(scene.yard, "default", ident(scene, view, name), decision)


async def listed(scene: Scene) -> list[str]:
    return [one.call for one in (await approvals.pending(scene.yard, "default")).items]


async def told(scene: Scene) -> list[tuple[str, str, str]]:
    """What followers hear: call, how it came out, by whom."""
    return [(r.call or "", r.outcome or "", r.extra["by"]) for r in await scene.log() if r.type == DECIDED]


async def run(scene: Scene, owner: str, name: str) -> TurnView:
    """The turn goes on after an allow: the call is started and has its result."""
    view = await scene.start(owner)
    assert [(r.call, r.state, r.decision) for r in view.rows] == [(name, "allowed", "allow")]
    view = await scene.commit(view, start=(name,))
    return await scene.commit(view, append=(Answer(name, "result", OK),), claim=True)


async def test_an_allowed_call_is_run_by_a_worker_that_knows_who_decided_what(scene: Scene) -> None:
    view, (name,) = await asked(scene, await scene.worker(), approvers=["b*"])
    (waiting,) = (await approvals.pending(scene.yard, "default")).items
    assert (waiting.call, waiting.tool, waiting.args, waiting.user, waiting.reason) == (name, "tool0", {"i": 0}, "ann", "why")
    assert (waiting.kind, waiting.session, waiting.agent, waiting.state, waiting.expires_ms) == (
        "allow_deny", "s", "bot", "pending", scene.now_ms + DAY_MS,
    )  # fmt: skip
    await scene.pass_ms(7)
    got = await decide(scene, view, name, Decision("allow", "bob", input={"i": 9}, reason="fine"))
    assert got.code == "accepted"
    assert got.approval is not None
    said = {"by": "bob", "at": scene.now_ms, "input": {"i": 9}, "reason": "fine", "scope": "once"}
    assert (got.approval.state, got.approval.decided) == ("allowed", said)
    assert await listed(scene) == []
    view = await scene.start(await scene.worker())
    assert [(r.state, r.awaited, r.decided) for r in view.rows] == [("allowed", False, said)]
    view = await scene.commit(view, start=(name,))
    assert view.rows[0].decided == said
    view = await scene.commit(view, append=(Answer(name, "result", OK),), claim=True)
    await scene.reply(view)
    assert await told(scene) == [(name, "allow", "bob")]


async def test_a_denial_is_the_calls_result_and_says_why(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    assert (await decide(scene, view, name, DENY)).code == "accepted"
    view = await scene.start(owner)
    assert shown(view)[-1] == f"{name}:denied"
    assert "too dear" in view.entries[-1].body.get("content", "")
    assert view.entries[-1].body.get("audit") == {"decision": "deny", "by": "bob", "reason": "too dear"}
    await scene.reply(view)
    assert await told(scene) == [(name, "deny", "bob")]


@pytest.mark.spec("S17")
async def test_there_is_one_decision_and_who_comes_later_hears_which(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner)
    codes = [(await decide(scene, view, name, d)).code for d in (ALLOW, ALLOW, DENY, Decision("allow", "eve"))]
    assert codes == ["accepted", "duplicate", "conflict", "conflict"]
    view = await run(scene, owner, name)
    await scene.reply(view)
    assert [(await decide(scene, view, name, d)).code for d in (ALLOW, DENY)] == ["duplicate", "conflict"]
    assert await told(scene) == [(name, "allow", "bob")]
    await scene.pass_ms(8 * DAY_MS)
    await scene.tick()
    assert (await decide(scene, view, name)).code == "gone"
    assert await scene.rows() == {}


@pytest.mark.spec("S17")
@pytest.mark.spec("runner-14")
async def test_who_may_not_decide_starts_nothing_whatever_they_name(scene: Scene) -> None:
    view, (name,) = await asked(scene, await scene.worker(), approvers=["bob", "ops:*"], self_approve=False)
    for who in ("", "eve", "ann", "ops"):
        assert (await decide(scene, view, name, Decision("allow", who))).code == "not_approver", who
    good = ident(scene, view, name)
    for guess in (
        "",
        "apr_",
        good[:-1],
        good + "A",
        ident(scene, view, "call_x"),
        ident(scene, view, "_"),
        approval_id(7, view.store, name),
    ):
        assert (await approvals.decide(scene.yard, "default", guess, ALLOW)).code == "gone", guess
    assert (await approvals.decide(scene.yard, "other", good, ALLOW)).code == "gone"
    for value in ("result", "error", "cancelled"):
        assert (await scene.outcome(view, name, value, secret_hash=None)).code == "conflict"
    with pytest.raises(InvalidInput):
        await decide(scene, view, name, Decision("answer", "bob", answer="yes"))
    assert (await scene.state(), await listed(scene), await told(scene)) == ("parked", [name], [])
    assert (await decide(scene, view, name, Decision("allow", "ops:7"))).code == "accepted"


@pytest.mark.spec("S17")
async def test_a_token_that_a_call_gave_out_decides_nothing(scene: Scene) -> None:
    view = await scene.open_turn(await scene.worker())
    made = call(view, 0, "callback")
    view = await scene.ask(view, made, start=(made.id,), tokens=((made.id, hash_secret(SECRET)),))
    await scene.commit(view, park=(Park(made.id, DAY_MS, kind="approval", awaited=True, request={}),), ending="park")
    assert [(await scene.outcome(view, made.id, value)).code for value in ("allow", "deny", "result")] == ["conflict"] * 3
    assert await listed(scene) == [made.id]


@pytest.mark.spec("S17")
async def test_a_decision_after_the_deadline_is_refused_whether_a_tick_has_come_or_not(scene: Scene) -> None:
    owner = await scene.worker()
    view, (name,) = await asked(scene, owner, ms=5000)
    await scene.pass_ms(5000)
    assert (await decide(scene, view, name)).code == "expired"
    await scene.tick()
    assert (await decide(scene, view, name)).code == "expired"
    view = await scene.start(owner)
    assert shown(view)[-1] == f"{name}:timeout"
    assert await told(scene) == [(name, "timeout", "tick")]
    await scene.reply(view)
    assert (await decide(scene, view, name)).code == "expired"


BROKEN: dict[str, Broken] = {
    "a token decides": (
        test_a_token_that_a_call_gave_out_decides_nothing,
        *("return secret == '' and decide(h, r, value, body) or {'conflict', 0, r.o}", "return decide(h, r, value, body)"),
    ),
    "anybody brings a result": (
        test_who_may_not_decide_starts_nothing_whatever_they_name,
        *("  if r.k == 'approval' and not r.d then return {'conflict', 0, r.o} end\n", ""),
    ),
    "a decision after the deadline counts": (
        test_a_decision_after_the_deadline_is_refused_whether_a_tick_has_come_or_not,
        *("  if r.dl <= NOW then return {'expired', 0, 'timeout'} end\n", ""),
    ),
    "the last decision counts": (
        test_there_is_one_decision_and_who_comes_later_hears_which,
        *("  if r.d then\n    local first", "  if false then\n    local first"),
    ),
    "what was allowed is forgotten with its result": (
        test_there_is_one_decision_and_who_comes_later_hears_which,
        *("  if r.h or r.d then call('ZADD', DEADLINES, NOW + TOMBSTONE", "  if r.h then call('ZADD', DEADLINES, NOW + TOMBSTONE"),
    ),
    "the worker is not told the decision": (
        test_an_allowed_call_is_run_by_a_worker_that_knows_who_decided_what,
        *("      if r.d then r.db = call('HGET', calls_key(h, h.ts), c .. ':d') or nil end\n", ""),
    ),
    "a denial says nothing": (
        test_a_denial_is_the_calls_result_and_says_why,
        *("c .. (value == 'deny' and ':r' or ':d'), body)", "c .. ':d', body)"),
    ),
}


@pytest.mark.parametrize("rule", BROKEN)
async def test_the_rules_of_approvals_are_what_these_tests_see(clean: str, monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    await snaps(clean, monkeypatch, BROKEN[rule])
