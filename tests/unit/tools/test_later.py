"""How a call that was left open is finished by its tool: what a vendor said is read, and what nobody tells is looked for."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from turnyard import ConfigError, Park, Tool, ToolContext, ToolError, tool
from turnyard.tools.later import NotYet, call_off, look, read_body
from turnyard.tools.runtime import ToolOutcome, run_tool

CTX = ToolContext.fake()


def nothing(_given: Any) -> None:
    """Find nothing."""


class Receipt(BaseModel):
    order_id: str
    total: float


def ordering() -> Tool[..., Any]:
    @tool(park=timedelta(hours=1))
    async def order(part: str) -> Receipt | Park:
        """Order a part."""
        return Park(f"{part} is ordered")

    return order


def exporting() -> Tool[..., Any]:
    @tool
    async def export(name: str) -> str | Park:
        """Export something."""
        return Park("it is made", poll=5, state={"job": name})

    return export


async def test_a_resolver_makes_a_result_of_what_a_vendor_said() -> None:
    order = ordering()

    @order.resolve
    async def hook(ctx: ToolContext[Any], body: dict[str, Any]) -> Receipt | None:
        assert ctx is CTX
        return Receipt(**body["data"]) if body["done"] else None

    got = await read_body(order, '{"done": true, "data": {"order_id": "7", "total": 2}}', CTX)
    assert got == ToolOutcome('{"order_id":"7","total":2.0}')
    assert await read_body(order, b'{"done": false}', CTX) == NotYet()
    assert await hook(CTX, {"done": False}) is None


@pytest.mark.parametrize(("body", "given"), [("no json", "no json"), ("5", 5), ('"5"', "5"), ("null", None), ('{"a": [1]}', {"a": [1]})])
async def test_a_body_comes_as_json_when_it_is_that_and_as_text_when_not(body: str, given: Any) -> None:
    order, seen = ordering(), []

    @order.resolve
    def hook(body: Any) -> str:
        seen.append(body)
        return "ok"

    assert (await read_body(order, body, CTX)) == ToolOutcome("ok")
    assert seen == [given]
    assert hook("x") == "ok"


async def test_a_body_is_checked_against_the_type_that_the_resolver_wants() -> None:
    order, text = ordering(), ordering()

    @order.resolve
    async def typed(_ctx: ToolContext[Any], body: Receipt) -> str:
        return f"{body.order_id} for {body.total:g}"

    @text.resolve
    async def plain(body: str) -> str:
        return body

    assert (await read_body(order, '{"order_id": "7", "total": 2}', CTX)) == ToolOutcome("7 for 2")
    unfit = await read_body(order, '{"order_id": "7"}', CTX)
    assert isinstance(unfit, NotYet)
    assert unfit.failed
    assert (await read_body(text, "[5]", CTX)) == ToolOutcome("[5]")


async def test_a_tool_without_a_resolver_takes_what_a_vendor_said_as_it_is() -> None:
    assert await read_body(ordering(), b"part 7 \xff", CTX) == ToolOutcome("part 7 \ufffd")


async def test_a_resolver_that_fails_is_no_result_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    order = ordering()

    @order.resolve
    async def hook(body: dict[str, Any]) -> str:
        return str(body["nothing"])

    with caplog.at_level(logging.ERROR):
        got = await read_body(order, "{}", CTX)
    assert isinstance(got, NotYet)
    assert got.failed
    assert got.failed in caplog.text
    assert "KeyError" in caplog.text
    assert await hook({"nothing": 1}) == "1"


async def test_a_tool_error_of_a_resolver_or_a_poller_is_the_result() -> None:
    order, export = ordering(), exporting()

    @order.resolve
    async def hook(body: dict[str, Any]) -> str:
        raise ToolError("sold out")

    @export.poll
    async def poll(state: dict[str, Any]) -> str:
        raise ToolError(f"{state['job']} is gone")

    assert await read_body(order, "{}", CTX) == ToolOutcome("sold out", is_error=True)
    assert await look(export, {"job": "j1"}, CTX) == ToolOutcome("j1 is gone", is_error=True)


async def test_a_poller_finds_a_result_or_says_when_to_look_again() -> None:
    export = exporting()

    @export.poll
    async def poll(ctx: ToolContext[Any], state: dict[str, Any]) -> str | Park | None:
        assert ctx is CTX
        return {"ready": "the file", "soon": None}.get(state["job"], Park(poll=timedelta(seconds=1), state={"job": "ready"}))

    assert await look(export, {"job": "ready"}, CTX) == ToolOutcome("the file")
    assert await look(export, {"job": "soon"}, CTX) == NotYet()
    again = await look(export, {"job": "other"}, CTX)
    assert isinstance(again, NotYet)
    assert again.request == {"poll_ms": 1000, "state": {"job": "ready"}}
    assert await poll(CTX, {"job": "soon"}) is None


async def test_a_poller_that_ends_its_own_task_is_asked_again() -> None:
    export = exporting()

    @export.poll
    async def poll(state: Any) -> str:
        raise asyncio.CancelledError

    got = await look(export, None, CTX)
    assert isinstance(got, NotYet)
    assert got.failed
    assert export.poller is poll


async def test_a_body_may_park_for_a_poller_only_where_there_is_one_and_with_a_state_that_is_json() -> None:
    export = exporting()
    assert "tool failed" in (await run_tool(export, {"name": "x"}, CTX)).content
    export.poll(nothing)
    outcome = await run_tool(export, {"name": "x"}, CTX)
    assert outcome.park is not None
    assert outcome.park.request == {"poll_ms": 5000, "state": {"job": "x"}}

    @tool
    async def bad() -> Park:
        """Keep what is no JSON."""
        return Park(poll=1, state=object())

    bad.poll(nothing)
    assert "tool failed" in (await run_tool(bad, {}, CTX)).content


def test_what_cannot_be_declared_is_refused_where_it_is_written() -> None:
    @tool(lift=True)
    async def render() -> str:
        """Render."""
        return ""

    order = ordering()
    with pytest.raises(ConfigError, match="called back"):
        exporting().resolve(nothing)
    with pytest.raises(ConfigError, match="lifted or polled"):
        render.poll(nothing)
    with pytest.raises(ConfigError, match="takes"):
        order.resolve(ordering)
    order.resolve(nothing)
    with pytest.raises(ConfigError, match="already"):
        order.resolve(nothing)
    with pytest.raises(ConfigError, match="keep one of"):
        tool(park=1, lift_after=1)(exporting().function)
    with pytest.raises(ConfigError, match="lift_after= must be"):
        tool(lift_after=0)(exporting().function)


def test_a_tool_has_a_queue_once_something_of_it_is_done_outside_a_turn() -> None:
    order, export = ordering(), exporting()
    assert (order.queue, export.queue) == (None, None)
    order.resolve(nothing)
    export.poll(nothing)
    assert (order.queue, export.queue) == ("default", "default")
    assert tool(lift_after=1, queue="gpu")(export.function).queue == "gpu"


async def test_what_a_call_left_going_is_stopped_by_its_tool_and_what_fails_there_ends_nothing() -> None:
    stopped: list[object] = []

    @tool
    async def render() -> Park:
        """Render."""
        return Park(poll=1, state="t-1")

    with pytest.raises(ConfigError, match="give it a poller first"):
        render.stop(lambda state: state)
    await call_off(render, "t-0", ToolContext.fake())
    render.poll(lambda state: None)

    @render.stop
    async def stop(ctx: ToolContext[None], state: str) -> None:
        stopped.append(state)
        raise OSError("the vendor is away")

    await call_off(render, "t-1", ToolContext.fake())
    assert stopped == ["t-1"]
