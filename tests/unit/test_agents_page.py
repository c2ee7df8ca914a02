"""What docs/agents.md shows runs as it is shown."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from turnyard import App
from turnyard.testing import ManualClock, ScriptedModel

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown() -> dict[str, Any]:
    """Return the names that the page's blocks leave behind, run from top to bottom."""
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in BLOCK.findall(page):
        exec(block, names)
    return names


async def test_the_strategy_of_the_page_waits_then_asks_a_person_then_answers() -> None:
    names, clock = shown(), ManualClock()
    app = names["app"]
    assert isinstance(app, App)
    talk = app["careful"].local(model=ScriptedModel(["", "yes, sir"]), clock=clock)
    running = asyncio.ensure_future(talk.prompt("may I?"))
    await clock.advance(59)
    assert not running.done()
    await clock.advance(1)
    result = await running
    assert (result.state, [call.kind for call in result.parked]) == ("waiting", ["question"])
    result = await talk.resolve(result.parked[0], "yes")
    assert (result.state, result.text) == ("succeeded", "yes, sir")
