"""What docs/tools.md shows runs as it is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnyard import App, ToolContext
from turnyard.testing import ScriptedModel, call

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown() -> dict[str, Any]:
    """Return the names that the page's blocks leave behind, run from top to bottom."""
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in BLOCK.findall(page):
        exec(compile(block, "tools.md", "exec", dont_inherit=True), names)
    return names


@dataclass
class Vendor:
    """Takes requests, and keeps what they say of themselves."""

    posted: list[dict[str, str]] = field(default_factory=list[dict[str, str]])

    async def post(self, path: str, *, json: Any, headers: dict[str, str]) -> None:
        """Take one request."""
        del path, json
        self.posted.append(headers)


@dataclass
class Request:
    """A request as a server sees it."""

    headers: dict[str, str]


async def test_the_unit_test_of_the_page_passes() -> None:
    await shown()["test_order"]()


async def test_the_agents_of_the_page_work_with_their_tools() -> None:
    app = shown()["app"]
    assert isinstance(app, App)
    lines = [{"part": "x", "count": 2}]
    model = ScriptedModel([[call("order", lines=lines), call("catalogue_price", **{"part-no": "7"}), call("order", lines=[])], "done"])
    made = (await app["buyer"].run("go", model=model)).calls
    assert [one.content for one in made] == ["ordered 1 lines, cheap", '{"part":"7","price":7}', "an order needs at least one line"]
    model = ScriptedModel([[call("catalogue_find", words="x")], "done"])
    assert "tool failed" in ((await app["finder"].run("go", model=model)).calls[0].content or "")  # the page's handler wants a part-no
    assert [spec.name for spec in model.requests[0].tools] == ["catalogue_find", "order"]
    assert sorted(app["helper"].tools) == ["ask_user", "crm", "send_message", "sleep"]


async def test_the_server_of_the_page_refuses_an_attempt_that_was_left_behind() -> None:
    names, vendor = shown(), Vendor()
    for fence in (1, 2, 1):
        await names["refund"](ToolContext.fake(deps=vendor, idempotency_key="k", fence=fence), "o1")
    assert [await names["serve_refund"](Request(headers)) for headers in vendor.posted] == [201, 201, 409]
