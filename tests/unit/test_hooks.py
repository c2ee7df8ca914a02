"""Hooks around models and calls: in order, each seeing what the ones before it made of it, and the first that raises ends the turn."""

from __future__ import annotations

from typing import Any

import pytest

from turnyard import App, ConfigError, Limits, tool
from turnyard.records.log import CALL, RESULT
from turnyard.testing import ScriptedModel, call

ran: list[dict[str, Any]] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def pay(to: str, amount: int = 1) -> str:
    """Pay."""
    ran.append({"to": to, "amount": amount})
    return f"paid {to}, card 4111"


@tool(lift=True, wait=True)
async def render(scene: str) -> str:
    """Render."""
    ran.append({"scene": scene})
    return f"rendered {scene}"


def results(session: Any) -> list[tuple[str | None, str]]:
    return [(e.outcome, e.body.get("content", "")) for e in session.entries if e.type == RESULT]


async def test_hooks_of_a_point_are_asked_in_order_and_see_what_the_ones_before_made_of_it() -> None:
    app, model = App(), ScriptedModel(["hello"])

    @app.hook("before_model")
    async def first(ctx: Any, asking: Any) -> None:
        assert (ctx.agent, ctx.user) == ("a", "u1")
        asking.messages[-1]["content"] += " 1"
        asking.settings["temperature"] = 0

    @app.hook("before_model")
    def second(_ctx: Any, asking: Any) -> None:
        asking.messages[-1]["content"] += " 2"

    session = app.agent("a", model=model).local(user="u1")
    await session.prompt("go")
    assert (model.requests[0].messages[-1]["content"], model.requests[0].settings) == ("go 1 2", {"temperature": 0})
    await session.prompt("more")
    assert [m["content"] for m in model.requests[1].messages] == ["go", "hello", "more 1 2"]


async def test_an_answer_is_shown_to_its_hooks_before_anything_is_made_of_it() -> None:
    app = App()

    @app.hook("after_model")
    def no_cards(_ctx: Any, answer: Any) -> None:
        if answer.calls:
            raise ValueError("no calls today")

    session = app.agent("a", model=ScriptedModel([call("pay", to="ann"), "ok"]), tools=[pay]).local()
    result = await session.prompt("go")
    assert (result.state, (result.error or {})["code"], ran) == ("failed", "hook_failed", [])
    assert "no_cards" in (result.error or {})["message"]


@pytest.mark.parametrize("lifted", [False, True])
async def test_hooks_around_a_call_change_what_it_runs_with_and_what_the_model_reads(*, lifted: bool) -> None:
    app, seen = App(), list[Any]()
    one, given, key = (render, {"scene": "a"}, "scene") if lifted else (pay, {"to": "a"}, "to")

    @app.hook("before_tool")
    async def shout(ctx: Any, call: Any) -> None:
        seen.append((ctx.call_id == call.id, call.name, call.tool is one))
        call.args[key] = call.args[key].upper()

    @app.hook("after_tool")
    async def hide(_ctx: Any, call: Any, result: Any) -> None:
        result.content = result.content.replace("4111", "****") + f" ({call.args[key]})"

    session = app.agent("a", model=ScriptedModel([call(one.name, **given), "ok"]), tools=[one]).local()
    await session.prompt("go")
    assert ran[0][key] == "A"
    assert seen == [(True, one.name, True)]
    assert results(session) == [("result", "rendered A (A)" if lifted else "paid A, card **** (A)")]
    assert [e.body["args"] for e in session.entries if e.type == CALL] == [given]


@pytest.mark.spec("runner-34")
async def test_arguments_that_a_hook_spoils_are_checked_again() -> None:
    app = App()

    @app.hook("before_tool")
    def spoil(_ctx: Any, call: Any) -> None:
        call.args["amount"] = "lots"

    session = app.agent("a", model=ScriptedModel([call("pay", to="ann"), "ok"]), tools=[pay]).local()
    await session.prompt("go")
    assert ran == []
    assert "amount" in results(session)[0][1]


@pytest.mark.spec("runner-34")
@pytest.mark.parametrize(("point", "happened", "text"), [("before_tool", 0, "was not executed"), ("after_tool", 1, "held back")])
@pytest.mark.parametrize("parallel", [1, 4])
async def test_a_hook_that_raises_ends_the_turn_and_every_call_has_its_result(point: str, happened: int, text: str, parallel: int) -> None:
    app = App()

    def breaks(_ctx: Any, call: Any, *_result: Any) -> None:
        if call.args["to"] == "ann":
            raise RuntimeError("card 4111")

    app.hook(point)(breaks)
    model = ScriptedModel([[call("pay", to="ann"), call("pay", to="bob")], "next"])
    session = app.agent("a", model=model, tools=[pay], limits=Limits(parallel_tools=parallel)).local()
    result = await session.prompt("go")
    assert (result.state, (result.error or {})["code"]) == ("failed", "hook_failed")
    assert [r["to"] for r in ran].count("ann") == happened
    told = results(session)
    assert len(told) == 2
    assert any(text in content for _, content in told)
    assert "4111" not in str(told[0]) + str(result.error)
    assert (await session.prompt("still there?")).text == "next"


async def test_a_hook_that_raises_around_a_lifted_call_is_that_calls_error() -> None:
    app = App()

    @app.hook("before_tool")
    def breaks(_ctx: Any, _call: Any) -> None:
        raise RuntimeError("no")

    session = app.agent("a", model=ScriptedModel([call("render", scene="a"), "sorry"]), tools=[render]).local()
    result = await session.prompt("go")
    assert (result.text, ran, results(session)[0][0]) == ("sorry", [], "error")
    assert "was not executed" in results(session)[0][1]


async def test_a_model_that_is_asked_instead_of_one_that_failed_does_not_mend_a_hook() -> None:
    app, spare = App(), ScriptedModel(["from the spare"])

    @app.hook("before_model")
    def breaks(_ctx: Any, _asking: Any) -> None:
        raise RuntimeError("no")

    result = await app.agent("a", model=[ScriptedModel(["hello"]), spare]).run("go")
    assert ((result.error or {})["code"], spare.requests) == ("hook_failed", [])


def test_a_point_at_which_nothing_is_asked_is_refused() -> None:
    with pytest.raises(ConfigError, match="before_model, after_model, before_tool, after_tool, turn_stopping"):
        App().hook("before_lunch")(print)
