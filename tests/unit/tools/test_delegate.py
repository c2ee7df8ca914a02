"""An agent as a tool: what models and workers are told of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from turnyard import App, ConfigError
from turnyard.testing import ScriptedModel


def test_an_agent_as_a_tool_takes_one_text_and_holds_the_turn_unless_it_is_told_not_to() -> None:
    app = App()
    kid = app.agent("kid-2", model=ScriptedModel([]))
    boss = app.agent("boss", model=ScriptedModel([]), tools=[kid.as_tool(timeout=60)])
    other = app.agent("other", model=ScriptedModel([]), tools=[kid.as_tool(wait=False, description="Ask the kid.")])
    fact = boss.table().tools["kid-2"]
    assert (fact.kind, fact.awaited, fact.timeout_ms) == ("child", True, 60_000)
    assert (other.table().tools["kid-2"].awaited, other.table().tools["kid-2"].timeout_ms) == (False, 86_400_000)
    spec = boss.tools["kid-2"].spec()
    assert (spec.name, list(spec.schema["properties"]), spec.schema["required"]) == ("kid-2", ["input"], ["input"])
    assert "kid-2" in spec.description
    assert other.tools["kid-2"].spec().description == "Ask the kid."
    assert boss.manifest().tools[0].kind == "child"


def test_a_time_that_is_over_at_once_is_refused() -> None:
    kid = App().agent("kid", model=ScriptedModel([]))
    with pytest.raises(ConfigError, match="park="):
        kid.as_tool(timeout=timedelta(0))
