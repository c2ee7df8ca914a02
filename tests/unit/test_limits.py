"""What `Limits` means to the engine, what it refuses, and what an app's hooks are."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, ConfigError, Limits, Stopping
from turnyard.engine.bounds import Bounds
from turnyard.records.manifest import parse_manifest
from turnyard.testing import ScriptedModel


def test_limits_are_bounds_in_the_units_of_the_engine() -> None:
    given = Limits(
        model_calls=40, tool_calls=30, tokens=200_000, cost=2.5, active=timedelta(minutes=10), paid_attempts=4, parallel_tools=8,
        continuations=2, segment_steps=20, soft_ratio=0.5, retry_base=0.25,
    )  # fmt: skip
    assert given.bounds == Bounds(
        model_calls=40, tool_calls=30, tokens=200_000, cost_micros=2_500_000, active_ms=600_000, continuations=2, segment_steps=20,
        soft_ratio=0.5, attempts=4, retry_base_ms=250,
    )  # fmt: skip
    assert given.parallel == 8


def test_what_is_left_out_is_the_engines_default() -> None:
    assert Limits().bounds == Bounds()
    assert Limits(model_calls=0).bounds == Bounds()
    assert Limits().parallel == 1


@pytest.mark.spec("runner-20")
@pytest.mark.parametrize("unlimited", [-1, None])
def test_minus_1_is_no_bound_everywhere(unlimited: Any) -> None:
    names = ("model_calls", "tool_calls", "tokens", "cost", "active", "paid_attempts", "parallel_tools", "continuations", "segment_steps")
    given = Limits(**dict.fromkeys(names, unlimited))
    assert given.bounds == Bounds(
        model_calls=None, tool_calls=None, tokens=None, cost_micros=None, active_ms=None, continuations=None, attempts=None
    )
    assert given.parallel > 1_000_000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_calls", -2), ("tool_calls", -2), ("tokens", -5), ("cost", -0.5), ("cost", float("nan")), ("continuations", -3),
        ("segment_steps", 0), ("paid_attempts", 0), ("parallel_tools", 0), ("soft_ratio", 0), ("soft_ratio", 1), ("soft_ratio", -1),
        ("active", 0), ("active", timedelta(0)), ("active", -3), ("retry_base", 0), ("retry_base", -1), ("retry_base", timedelta(seconds=-1)),
    ],
)  # fmt: skip
def test_a_limit_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        Limits(**{name: value})


def test_a_manifest_shows_the_limits_with_times_in_seconds() -> None:
    agent = App().agent("a", model="openai:x", limits=Limits(active=timedelta(minutes=1), cost=2))
    limits = parse_manifest(agent.manifest().to_json()).limits
    assert (limits["active"], limits["cost"], limits["retry_base"], limits["continuations"]) == (60.0, 2, 2.0, 0)


# -- hooks


def test_a_hook_of_a_point_that_nobody_asks_at_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'turn_starting'.*turn_stopping"):
        App().hook("turn_starting")(print)
    with pytest.raises(ConfigError, match="no function"):
        App().hook("turn_stopping")(3)  # pyright: ignore[reportArgumentType]


def test_the_engine_asks_hooks_only_of_an_agent_whose_app_has_some() -> None:
    app, other = App(), App()
    app.hook("turn_stopping")(print)
    other.agent("b", model="openai:x")
    app.agent("a", model="openai:x")
    app.include(other)
    assert [app[name].table().hooks for name in "ab"] == [True, False]


async def test_hooks_are_asked_in_order_each_seeing_what_the_ones_before_it_said() -> None:
    app, seen = App(), list[Any]()

    @app.hook("turn_stopping")
    async def first(ctx: Any, stopping: Stopping) -> None:
        seen.append((ctx.agent, stopping.reason, stopping.steps, stopping.segments, stopping.budget.continuations, list(stopping.texts)))
        if stopping.segments == 0:
            stopping.go_on("and the tests?")

    @app.hook("turn_stopping")
    def second(_ctx: Any, stopping: Stopping) -> None:
        seen.append([m["content"] for m in stopping.messages] + stopping.texts)
        if stopping.texts:
            stopping.go_on("in full")

    model = ScriptedModel(["done", "tested"])
    talk = app.agent("a", model=model, limits=Limits(continuations=1)).local()
    result = await talk.prompt("build it")
    assert (result.state, result.text) == ("succeeded", "tested")
    assert seen == [
        ("a", "no_calls", 1, 0, 1, []),
        ["build it", "done", "and the tests?"],
        ("a", "no_calls", 2, 1, 0, []),
        ["build it", "done", "and the tests?", "in full", "tested"],
    ]
    assert [m["content"] for m in model.requests[1].messages if m["role"] == "user"][-2:] == ["and the tests?", "in full"]


async def test_any_hook_can_stop_whatever_the_others_say() -> None:
    app = App()

    @app.hook("turn_stopping")
    def goes_on(_ctx: Any, stopping: Stopping) -> None:
        stopping.go_on("more")

    @app.hook("turn_stopping")
    def stops(_ctx: Any, stopping: Stopping) -> None:
        stopping.stop()

    model = ScriptedModel(["done", "more"])
    assert (await app.agent("a", model=model, limits=Limits(continuations=-1)).local().prompt("go")).text == "done"
    assert len(model.requests) == 1


async def test_a_hook_that_raises_fails_the_turn_with_a_reference_and_no_detail(caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.hook("turn_stopping")
    def broken(_ctx: Any, _stopping: Stopping) -> None:
        raise RuntimeError("secret detail")

    result = await app.agent("a", model=ScriptedModel(["done"])).local().prompt("go")
    assert result.error is not None
    assert (result.state, result.error["code"], result.text) == ("failed", "hook_failed", "done")
    assert "broken" in result.error["message"]
    assert "secret" not in result.error["message"]
    assert result.error["ref"] in caplog.text or result.error["ref"] in str([vars(r) for r in caplog.records])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=lambda e: type(e).__name__)
async def test_a_hook_that_raises_what_would_end_a_process_fails_its_turn_and_nothing_else(error: BaseException) -> None:
    app = App()

    @app.hook("turn_stopping")
    async def broken(_ctx: Any, _stopping: Stopping) -> None:
        raise error

    result = await app.agent("a", model=ScriptedModel(["done"])).local().prompt("go")
    assert (result.state, (result.error or {})["code"]) == ("failed", "hook_failed")


@pytest.mark.parametrize("text", [17, None, b"more"])
async def test_a_hook_that_goes_on_with_what_is_no_text_fails_its_turn(text: Any) -> None:
    app = App()

    @app.hook("turn_stopping")
    def broken(_ctx: Any, stopping: Stopping) -> None:
        stopping.go_on(text)

    result = await app.agent("a", model=ScriptedModel(["done"])).local().prompt("go")
    assert (result.state, (result.error or {})["code"]) == ("failed", "hook_failed")


async def test_what_a_hook_says_is_text_that_can_be_stored() -> None:
    app = App()

    @app.hook("turn_stopping")
    def odd(_ctx: Any, stopping: Stopping) -> None:
        if not stopping.segments:
            stopping.go_on("half \ud800 a pair")

    model = ScriptedModel(["done", "more"])
    assert (await app.agent("a", model=model, limits=Limits(continuations=1)).local().prompt("go")).text == "more"
    assert model.requests[1].messages[-1]["content"] == "half \ufffd a pair"
