"""An app whose agent uses MCP servers, and whose model does what it is told: "tools", or "call NAME TEXT"."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

APP = """
import json, os
from pathlib import Path
from turnyard import App, MCP, secret
from turnyard.testing import FunctionModel, call

def answer(request):
    last = request.messages[-1]
    words = str(last["content"]).split()
    if last["role"] == "user" and words[:1] == ["call"]:
        return call(words[1], text=" ".join(words[2:]))
    if last["role"] == "user" and words == ["tools"]:
        return "tools: " + " ".join(tool.name for tool in request.tools)
    return f"then: {last['content']}"

given = json.loads(Path(__file__).with_suffix(".json").read_text())
for one in given:
    one["options"]["headers"] = {"Authorization": secret("CRM_TOKEN")} if "headers" in one["options"] else None
app = App()
app.agent(Path(__file__).stem, model=FunctionModel(answer), tools=[MCP(one["target"], **one["options"]) for one in given])
"""


def write_app(directory: Path, agent: str, *servers: tuple[str | list[str], dict[str, Any]]) -> Path:
    """Write the app with one agent that has these servers (target, options), and return its path."""
    path = directory / f"{agent}.py"
    path.with_suffix(".json").write_text(json.dumps([{"target": target, "options": options} for target, options in servers]))
    path.write_text(APP)
    return path


FAILING = [sys.executable, "-c", "raise SystemExit(3)"]
