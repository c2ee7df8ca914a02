"""What docs/approvals.md shows runs as it is shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from turnyard.testing import ScriptedModel, call

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown() -> dict[str, Any]:
    """Return the names that the page's blocks leave behind, run from top to bottom."""
    page = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in BLOCK.findall(page):
        exec(block, names)
    return names


async def test_the_agent_of_the_page_asks_denies_and_is_decided_as_the_page_says() -> None:
    names = shown()
    tried = await names["try_it"]()
    assert [m.text for m in tried.messages][2:] == [
        '[approved with other arguments: {"order":"o1","amount":120}]\nrefunded 120 of o1',
        "done",
    ]
    script = [[call("refund", order="o13", amount=1), call("refund", order="o2", amount=2000), call("refund", order="VIP", amount=1)], "ok"]
    session = names["desk"].local(model=ScriptedModel(script))
    waiting = await session.prompt("go")
    assert [c.content for c in waiting.calls if c.content] == ["this order is frozen\n\ntell the customer to wait"]
    assert [(p.request or {})["approvers"] for p in waiting.parked] == [("boss",)]
    waiting = await session.approve(waiting.parked[0], by="boss")
    assert [(p.request or {})["reason"] for p in waiting.parked] == ["VIP order"]
    assert (await session.approve(waiting.parked[0])).text == "ok"
