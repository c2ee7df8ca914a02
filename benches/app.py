"""What the benches run: a model that answers at once, with one tool call first or without."""

from __future__ import annotations

from turnyard import App, tool


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


app = App()
plain = app.agent("plain", model="scripted:plain.yaml", instructions="Be brief.")
with_tool = app.agent("tool", model="scripted:tool.yaml", instructions="Be brief.", tools=[add])
