"""Approvals in a session of this process: what is shown is what runs, one decision stands, and a turn that waits holds nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, ApprovalRequired, Ask, Deny, Limits, LocalSession, Park, ParkedCall, RunResult, ToolContext, tool
from turnyard.engine.approving import REQUESTED, args_hash
from turnyard.errors import AlreadyDecided, InvalidInput, NotApprover, NotFound
from turnyard.records.approvals import Decision
from turnyard.records.log import CALL, DECIDED, RESULT, USER
from turnyard.testing import ManualClock, ScriptedModel, call

ran: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def large(_ctx: ToolContext[Any], amount: float, **_: Any) -> bool:
    return amount > 100


@tool(approval=large)
async def refund(ctx: ToolContext[Any], order: str, amount: float = 500.0) -> str:
    """Refund."""
    ran.append(("refund", order, amount, ctx.approved))
    return f"refunded {amount:g} of {order}"


@tool
async def look(what: str) -> str:
    """Look."""
    ran.append(("look", what))
    return f"saw {what}"


@tool(lift=True, wait=True, approval=True)
async def render(scene: str) -> str:
    """Render."""
    ran.append(("render", scene))
    return f"rendered {scene}"


@tool(lift=True, approval=Ask("costs money", approvers=["boss"], remember="session"))
async def buy(part: str) -> str:
    """Buy."""
    ran.append(("buy", part))
    return f"bought {part}"


@tool(park=60, approval=True)
async def order(ctx: ToolContext[Any], part: str) -> Park:
    """Order."""
    ran.append(("order", part, ctx.callback_url))
    return Park("ordered", wait=True)


@tool
async def vip(ctx: ToolContext[Any], name: str) -> str:
    """Serve a guest."""
    if not ctx.approved:
        raise ApprovalRequired(f"{name} is a VIP", approvers=["boss"], expires_in=60)
    ran.append(("vip", name))
    return f"served {name}"


@tool
async def stubborn() -> str:
    """Ask again and again."""
    raise ApprovalRequired("always")


def talk(*script: Any, tools: Any, clock: ManualClock | None = None, app: App | None = None, **options: Any) -> LocalSession:
    agent = (app or App()).agent("a", model=ScriptedModel(list(script)), tools=tools, **options)
    return agent.local(clock=clock, user="u1")


def results(session: LocalSession) -> list[tuple[str | None, Any]]:
    return [(e.outcome, e.body.get("content")) for e in session.entries if e.type == RESULT]


def asked(result: RunResult) -> list[tuple[str, dict[str, Any]]]:
    return [(p.tool, p.request) for p in result.parked if p.request]


# -- a decision


@pytest.mark.spec("S17")
async def test_a_call_waits_for_approval_and_runs_with_the_arguments_that_were_shown() -> None:
    session = talk(call("refund", order="o1", amount=250), "done", tools=[refund])
    waiting = await session.prompt("refund it")
    assert (waiting.state, ran) == ("waiting", [])
    [(name, request)] = asked(waiting)
    assert (name, request["kind"], request["args"]) == ("refund", "allow_deny", {"order": "o1", "amount": 250})
    assert request["hash"] == args_hash(request["args"])
    done = await session.approve(waiting.parked[0], by="boss")
    assert (done.state, done.text, ran) == ("succeeded", "done", [("refund", "o1", 250.0, True)])
    [entry] = [e for e in session.entries if e.type == RESULT]
    assert (entry.outcome, entry.body["content"]) == ("result", "refunded 250 of o1")
    audit = entry.body["audit"]
    assert (audit["approved_by"], audit["edited"]) == ("boss", False)
    assert audit["approved_at"] == (session.memory.rows[entry.call or ""].decided or {})["at"]


async def test_a_call_that_needs_no_approval_does_not_wait() -> None:
    result = await talk(call("refund", order="o1", amount=50), "done", tools=[refund]).prompt("go")
    assert (result.state, ran) == ("succeeded", [("refund", "o1", 50.0, False)])


async def test_a_rule_sees_the_functions_own_defaults() -> None:
    assert (await talk(call("refund", order="o1"), "done", tools=[refund]).prompt("go")).state == "waiting"


async def test_a_denied_call_is_not_run_and_the_model_reads_why() -> None:
    session = talk(call("refund", order="o1", amount=250), "sorry", tools=[refund])
    waiting = await session.prompt("go")
    done = await session.approve(waiting.parked[0], allow=False, by="boss", reason="too much")
    assert (done.text, ran) == ("sorry", [])
    [(outcome, content)] = results(session)
    assert outcome == "denied"
    assert "not executed" in content
    assert "too much" in content


@pytest.mark.spec("runner-34")
async def test_edited_arguments_run_in_place_of_the_models_who_is_told() -> None:
    session = talk(call("refund", order="o1", amount=250), "done", tools=[refund])
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0], by="boss", input={"order": "o1", "amount": 120})
    assert ran == [("refund", "o1", 120.0, True)]
    [entry] = [e for e in session.entries if e.type == RESULT]
    assert entry.body["content"] == '[approved with other arguments: {"order":"o1","amount":120}]\nrefunded 120 of o1'
    assert entry.body["audit"]["edited"] is True
    assert [e.body["args"] for e in session.entries if e.type == CALL] == [{"order": "o1", "amount": 250}]


@pytest.mark.spec("runner-34")
async def test_edited_arguments_that_do_not_fit_are_an_error_and_nothing_runs() -> None:
    session = talk(call("refund", order="o1", amount=250), "done", tools=[refund])
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0], input={"order": "o1", "amount": "lots"})
    assert ran == []
    [(outcome, content)] = results(session)
    assert outcome == "error"
    assert "approved with other arguments" in content
    assert "amount" in content


@pytest.mark.spec("runner-34")
async def test_edited_arguments_are_judged_again_and_a_denial_wins() -> None:
    app = App()

    @app.policy
    def never_o2(_ctx: Any, call: Any) -> Deny | None:  # pyright: ignore[reportUnusedFunction]
        return Deny("o2 is frozen", "leave it") if call.args.get("order") == "o2" else None

    session = talk(call("refund", order="o1", amount=250), "done", tools=[refund], app=app)
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0], by="boss", input={"order": "o2", "amount": 250})
    assert ran == []
    [entry] = [e for e in session.entries if e.type == RESULT]
    assert entry.outcome == "denied"
    assert entry.body["content"].endswith("o2 is frozen\n\nleave it")
    assert (entry.body["audit"]["approved_by"], entry.body["audit"]["reason"]) == ("boss", "o2 is frozen")


@pytest.mark.spec("rival-22")
async def test_several_approvals_wait_together_and_are_matched_by_call_whatever_the_order_of_the_answers() -> None:
    script = [call("refund", order="a", amount=200), call("refund", order="b", amount=300), call("refund", order="c", amount=400)]
    session = talk(script, "done", tools=[refund])
    waiting = await session.prompt("go")
    assert [request["args"]["order"] for _, request in asked(waiting)] == ["a", "b", "c"]
    first, second, third = waiting.parked
    assert (await session.approve(third)).state == "waiting"
    assert (await session.approve(second, allow=False)).state == "waiting"
    assert (await session.approve(first)).text == "done"
    assert ran == [("refund", "a", 200.0, True), ("refund", "c", 400.0, True)]
    by_call = {e.call: e.body["content"] for e in session.entries if e.type == RESULT}
    assert (by_call[first.call], by_call[third.call]) == ("refunded 200 of a", "refunded 400 of c")
    assert "refused" in by_call[second.call]


@pytest.mark.spec("S17")
async def test_one_decision_stands_and_who_may_not_decide_changes_nothing() -> None:
    session = talk(call("buy", part="x"), "later", "came", tools=[buy])
    waiting = await session.prompt("go")
    with pytest.raises(NotApprover):
        await session.approve(waiting.parked[0], by="u2")
    with pytest.raises(InvalidInput):
        await session.answer(waiting.parked[0], "yes")
    with pytest.raises(NotFound):
        await session.approve("call_of_nobody")
    await session.approve(waiting.parked[0], by="boss")
    with pytest.raises(AlreadyDecided):
        await session.approve(waiting.parked[0], allow=False, by="boss")
    assert ran == [("buy", "x")]


# -- what else may become of the question


@pytest.mark.spec("L32")
async def test_a_question_that_nobody_answers_ends_in_time_and_the_session_is_usable_all_the_while() -> None:
    clock = ManualClock()
    session = talk(call("refund", order="o1", amount=250), "nobody came", "hello", tools=[refund], clock=clock)
    waiting = await session.prompt("go")
    assert waiting.parked[0].deadline_ms == clock.now_ms() + 900_000
    await clock.advance(900)
    assert await session.expire() == [waiting.parked[0].call]
    assert ran == []
    [(outcome, _)] = results(session)
    assert outcome == "timeout"
    assert any(m.text.startswith("Not executed: nobody decided") for m in session.messages)
    assert (await session.prompt("hi")).text == "hello"


async def test_how_long_a_question_stands_is_said_by_the_rule_then_by_the_agent() -> None:
    clock = ManualClock()
    limits = Limits(approval_expires_in=timedelta(minutes=2))
    waiting = await talk(call("refund", order="o1"), tools=[refund], clock=clock, limits=limits).prompt("go")
    assert waiting.parked[0].deadline_ms == clock.now_ms() + 120_000
    waiting = await talk(call("vip", name="Ann"), tools=[vip], clock=clock, limits=limits).prompt("go")
    assert waiting.parked[0].deadline_ms == clock.now_ms() + 60_000


@pytest.mark.spec("runner-15")
async def test_a_newer_message_takes_the_place_of_the_question_and_the_model_reads_that_first() -> None:
    session = talk(call("refund", order="o1", amount=250), "as you like", tools=[refund])
    await session.prompt("go")
    done = await session.prompt("leave it")
    assert (done.text, ran) == ("as you like", [])
    told = [(e.type, e.outcome) for e in session.entries if e.type in (RESULT, USER)]
    assert told == [(USER, None), (RESULT, "superseded"), (USER, None)]


async def test_a_cancel_ends_the_question() -> None:
    session = talk(call("refund", order="o1", amount=250), tools=[refund])
    await session.prompt("go")
    session.cancel()
    await session.run()
    assert (results(session), session.parked, ran) == ([("cancelled", None)], (), [])


async def test_what_is_asked_and_how_it_ends_is_told_once_each() -> None:
    session = talk(call("refund", order="o1", amount=250), "done", tools=[refund])
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0], by="boss")
    told = [r for r in session.memory.log if r.type in (REQUESTED, DECIDED)]
    assert [(r.type, r.outcome) for r in told] == [(REQUESTED, None), (DECIDED, "allow")]
    asks = told[0].body
    assert (asks["call"], asks["kind"], asks["tool"]) == (waiting.parked[0].call, "approval", "refund")
    assert (asks["args"], asks["expires_in_ms"]) == ({"order": "o1", "amount": 250}, 900_000)


# -- by what the tool is


@pytest.mark.parametrize("waits", [True, False])
async def test_an_approved_lifted_call_is_lifted_with_the_arguments_that_were_approved(*, waits: bool) -> None:
    one = render if waits else buy
    asks = call("render", scene="a") if waits else call("buy", part="a")
    session = talk(asks, "first", "then", tools=[one])
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0], input={"scene" if waits else "part": "b"})
    assert ran == [(one.name, "b")]
    outcomes = [outcome for outcome, _ in results(session)]
    assert outcomes == (["result"] if waits else ["placeholder", "result"])


async def test_an_approved_call_that_may_finish_outside_runs_and_waits_then() -> None:
    session = talk(call("order", part="x"), "done", tools=[order])
    waiting = await session.prompt("go")
    assert ran == []
    ordered = await session.approve(waiting.parked[0])
    assert (ordered.state, [p.kind for p in ordered.parked], len(ran)) == ("waiting", ["callback"], 1)
    assert (await session.resolve(ordered.parked[0], "arrived")).text == "done"


async def test_a_body_may_ask_before_it_did_anything_and_is_run_again_once_it_is_allowed() -> None:
    session = talk(call("vip", name="Ann"), "done", tools=[vip])
    waiting = await session.prompt("go")
    [(name, request)] = asked(waiting)
    assert (name, request["reason"], request["approvers"]) == ("vip", "Ann is a VIP", ("boss",))
    done = await session.approve(waiting.parked[0], by="boss")
    assert (done.text, ran, done.usage["tool_calls"]) == ("done", [("vip", "Ann")], 1)


async def test_a_body_that_asks_again_though_it_was_allowed_is_an_error() -> None:
    session = talk(call("stubborn"), "done", tools=[stubborn])
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0])
    [(outcome, content)] = results(session)
    assert (outcome, "asks for approval again" in content) == ("error", True)


async def test_a_body_that_runs_outside_the_turn_cannot_ask_and_is_told_what_to_write() -> None:
    @tool(lift=True, wait=True)
    async def away() -> str:
        """Go away."""
        raise ApprovalRequired("far away")

    session = talk(call("away"), "done", tools=[away])
    await session.prompt("go")
    assert "declare it with approval=" in str(results(session)[0][1])


# -- beside other calls


@pytest.mark.spec("L28")
async def test_a_call_beside_an_approved_one_is_stored_with_its_result_and_the_next_turn_is_valid() -> None:
    script = [call("look", what="x"), call("refund", order="a", amount=200), call("look", what="y")]
    model = ScriptedModel([script, "done", "again"])
    app = App()

    @app.hook("after_tool")
    async def only_so_much(_ctx: Any, _call: Any, result: Any) -> None:  # pyright: ignore[reportUnusedFunction]
        result.content = f"{result.content[:5]}..."

    session = app.agent("a", model=model, tools=[look, refund], limits=Limits(parallel_tools=4)).local()
    waiting = await session.prompt("go")
    assert ran == [("look", "x")]
    await session.approve(waiting.parked[0])
    assert (await session.prompt("more")).text == "again"
    asked_of, answered = [e.call for e in session.entries if e.type == CALL], [e.call for e in session.entries if e.type == RESULT]
    assert asked_of == answered
    assert [content for _, content in results(session)] == ["saw x...", "refun...", "saw y..."]
    assert [m["role"] for m in model.requests[-1].messages] == ["user", "assistant", "tool", "tool", "tool", "assistant", "user"]


@pytest.mark.spec("L29")
async def test_a_call_that_fails_at_once_beside_two_that_wait_is_answered_alone() -> None:
    script = [call("refund", order=7), call("refund", order="a", amount=200), call("refund", order="b", amount=300)]
    session = talk(script, "done", tools=[refund], limits=Limits(parallel_tools=4))
    waiting = await session.prompt("go")
    assert (waiting.state, len(waiting.parked)) == ("waiting", 2)
    assert [outcome for outcome, _ in results(session)] == ["error"]
    assert "order" in str(results(session)[0][1])
    await session.approve(waiting.parked[1])
    assert (await session.approve(waiting.parked[0])).text == "done"
    assert [outcome for outcome, _ in results(session)] == ["error", "result", "result"]


async def test_a_body_that_asks_in_the_middle_of_a_group_waits_while_the_others_go_on() -> None:
    script = [call("look", what="x"), call("vip", name="Ann"), call("look", what="y")]
    session = talk(script, "done", tools=[look, vip], limits=Limits(parallel_tools=4))
    waiting = await session.prompt("go")
    assert (waiting.state, sorted(ran)) == ("waiting", [("look", "x"), ("look", "y")])
    assert (await session.approve(waiting.parked[0])).text == "done"
    assert [content for _, content in results(session)] == ["saw x", "saw y", "served Ann"]


# -- what is remembered


async def test_a_grant_for_the_session_is_asked_for_once_and_forgotten_with_the_session() -> None:
    script = [call("buy", part="a"), "one", "came", call("buy", part="b"), "two", "came", call("buy", part="c"), "three"]
    session = talk(*script, tools=[buy])
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0], by="boss", scope="session")
    result = await session.prompt("again")
    assert (result.state, ran) == ("succeeded", [("buy", "a"), ("buy", "b")])
    session.reset()
    assert (await session.prompt("again")).state == "waiting"


async def test_a_grant_that_was_not_offered_allows_this_one_call() -> None:
    session = talk(call("refund", order="a"), "one", call("refund", order="b"), "two", tools=[refund])
    waiting = await session.prompt("go")
    await session.approve(waiting.parked[0], scope="session")
    assert (await session.prompt("again")).state == "waiting"


# -- an owner who decides at once


async def test_the_owner_may_decide_on_the_way_or_leave_it_to_wait() -> None:
    def decides(one: ParkedCall) -> bool | Decision | None:
        order = one.args["order"]
        edit = Decision("allow", "boss", input={"order": order, "amount": 101})
        return {"a": True, "b": False, "c": edit}.get(order)

    script = [call("refund", order=order, amount=200) for order in "abc"]
    agent = App().agent("a", model=ScriptedModel([script, "done", call("refund", order="d"), "then"]), tools=[refund])
    session = agent.local(on_approval=decides)
    assert (await session.prompt("go")).text == "done"
    assert ran == [("refund", "a", 200.0, True), ("refund", "c", 101.0, True)]
    waiting = await session.prompt("more")
    assert waiting.state == "waiting"
    assert (await session.approve(waiting.parked[0])).text == "then"
