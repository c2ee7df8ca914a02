"""What wraps an effect: outermost first, able to refuse and to repeat, and counted for what was really done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.engine.test_local import by_hand
from turnyard import tool
from turnyard.engine.effects import RunTool, ToolResult
from turnyard.engine.middleware import Middleware
from turnyard.errors import ConfigError
from turnyard.ports import Done, ModelRequest
from turnyard.records.commit import TurnView
from turnyard.testing import ScriptedModel, call

ran: list[int] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
def count(n: int) -> str:
    """Count a number."""
    ran.append(n)
    return f"counted {n}"


def layer(name: str, seen: list[str]) -> Any:
    """A layer that writes down when it is entered and left."""

    async def around(view: TurnView, what: Any, next_: Any) -> Any:
        seen.append(f"{name} in")
        done = await next_(view, what)
        seen.append(f"{name} out")
        return done

    return around


async def refusing(_view: TurnView, _what: RunTool, _next: Any) -> ToolResult:
    return ToolResult("ERROR: not on a Sunday", is_error=True)


async def twice(view: TurnView, what: Any, next_: Any) -> Any:
    await next_(view, what)
    return await next_(view, what)


@pytest.mark.spec("turn-64")
async def test_layers_are_entered_from_the_outside_in_and_left_from_the_inside_out() -> None:
    seen: list[str] = []
    layers = Middleware(ask=(layer("a", seen), layer("b", seen)), tool=(layer("c", seen), layer("d", seen)))
    await by_hand(ScriptedModel([call("count", n=1), "done"]), [count], layers=layers).prompt("go")
    asked, called = ["a in", "b in", "b out", "a out"], ["c in", "d in", "d out", "c out"]
    assert seen == [*asked, *called, *asked]


@pytest.mark.spec("turn-64")
@pytest.mark.parametrize("parallel", [1, 2])
async def test_a_layer_that_does_not_go_on_refuses_the_call_which_is_not_run_and_not_counted(parallel: int) -> None:
    talk = by_hand(ScriptedModel([[call("count", n=1), call("count", n=2)], "done"]), [count], layers=Middleware(tool=(refusing,)))
    result = await talk.prompt("go")
    assert (ran, result.text) == ([], "done")
    assert [c.content for c in result.calls] == ["ERROR: not on a Sunday"] * 2
    assert result.usage.get("tool_calls", 0) == 0


@pytest.mark.spec("turn-64")
async def test_a_layer_that_does_not_go_on_may_answer_for_the_model_and_nothing_is_counted() -> None:
    async def instead(_view: TurnView, _what: ModelRequest, _next: Any) -> Done:
        return Done("from the cache", (), {"input_tokens": 5, "output_tokens": 5})

    model = ScriptedModel(["asked"])
    result = await by_hand(model, layers=Middleware(ask=(instead,))).prompt("go")
    assert (result.text, model.requests) == ("from the cache", [])
    assert result.usage.get("model_calls", 0) == 0


@pytest.mark.spec("turn-64")
async def test_a_layer_that_goes_on_twice_pays_twice() -> None:
    model = ScriptedModel([call("count", n=1), "done"])
    result = await by_hand(model, [count], layers=Middleware(ask=(twice,), tool=(twice,))).prompt("go")
    assert (ran, len(model.requests)) == ([1, 1], 4)
    assert (result.usage["model_calls"], result.usage["tool_calls"]) == (4, 2)
    assert (
        result.usage["output_tokens"]
        == 2 * (await by_hand(ScriptedModel([call("count", n=1), "done"]), [count]).prompt("go")).usage["output_tokens"]
    )


@pytest.mark.spec("turn-64")
@pytest.mark.parametrize("kind", ["ask", "tool"])
def test_a_layer_that_is_no_function_is_refused(kind: str) -> None:
    nothing: Any = None
    with pytest.raises(ConfigError, match=f"around {kind} is None"):
        Middleware(**{kind: (nothing,)})
