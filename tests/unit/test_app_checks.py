"""How an app says what still holds of its notices."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from turnyard import App, tool
from turnyard.errors import ConfigError
from turnyard.testing import ScriptedModel, call


def shown(request: Any) -> list[str]:
    return [str(m["content"]) for m in request.messages]


@pytest.mark.spec("turn-24")
async def test_each_round_claims_then_checks_then_builds_and_a_notice_that_is_over_is_gone_for_good() -> None:
    full = {"sda": "full", "sdb": "full"}
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(_app: App) -> Any:
        yield full

    app = App(lifespan=lifespan)

    @app.revalidate("disk")
    async def disk(ctx: Any, key: str) -> str:
        order.append(f"check {key}")
        return ctx.deps[key]

    @tool
    async def clean() -> str:
        """Clean up."""
        full["sda"] = ""
        talk.notice("no backup", group="disk", key="sdb")
        return "cleaned"

    class Ordered(ScriptedModel):
        def stream(self, request: Any) -> Any:
            order.append("build")
            return super().stream(request)

    model = Ordered([call("clean"), "done", "still"])
    agent = app.agent("a", model=model, tools=[clean])
    talk = agent.local()
    talk.notice("sda is full", group="disk", key="sda")
    await talk.prompt("hi")
    assert order == ["check sda", "build", "check sda", "check sdb", "build"]
    assert "sda is full" in str(shown(model.requests[0]))
    assert "sda is full" not in str(shown(model.requests[1]))
    assert "no backup" in str(shown(model.requests[1])), "claimed before it was checked"
    full["sda"] = "full"
    await talk.prompt("and now?")
    assert order[-2:] == ["check sdb", "build"]
    assert "sda is full" not in str(shown(model.requests[2])), "it was taken away, not hidden"
    assert [spec.name for spec in model.requests[0].tools] == ["clean"]


async def test_a_check_that_fails_does_not_fail_the_turn() -> None:
    app = App()

    @app.revalidate("disk")
    async def disk(_ctx: Any, _key: str) -> str:
        raise OSError("no such device")

    model = ScriptedModel(["hello"])
    talk = app.agent("a", model=model).local()
    talk.notice("full", group="disk", key="sda")
    assert (await talk.prompt("hi")).state == "succeeded"
    assert "full" in str(shown(model.requests[0]))


async def test_checks_are_those_of_the_app_that_declared_the_agent() -> None:
    home, other = App(), App()

    @home.revalidate("disk")
    async def disk(_ctx: Any, _key: str) -> None:
        return None

    model = ScriptedModel(["hello"])
    home.agent("a", model=model)
    other.include(home)
    talk = other["a"].local()
    talk.notice("full", group="disk", key="sda")
    await talk.prompt("hi")
    assert "full" not in str(shown(model.requests[0]))


def test_a_check_must_be_one_that_can_be_given_up() -> None:
    app = App()
    with pytest.raises(ConfigError, match="async def"):
        app.revalidate("disk")(lambda _ctx, _key: "")  # pyright: ignore[reportArgumentType]

    async def check(_ctx: Any, _key: str) -> str:
        return ""

    with pytest.raises(ConfigError, match="above zero"):
        app.revalidate("disk", timeout=0)(check)
    assert app.revalidate("disk", timeout=timedelta(seconds=1))(check) is check
    with pytest.raises(ConfigError, match="two checks"):
        app.revalidate("disk")(check)
