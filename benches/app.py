"""What the benches run: a model that answers at once, with one tool call first or without, and slow ones to be interrupted."""

from __future__ import annotations

from pathlib import Path

from benches.stamps import Stamped
from turnyard import App, Limits, tool
from turnyard.clock import SystemClock
from turnyard.providers.scripted import Scripted

HERE = Path(__file__).resolve().parent


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def stamped(script: str) -> Stamped:
    """Return a scripted model that stamps its calls."""
    return Stamped(Scripted(HERE / script, clock=SystemClock()))


app = App()
plain = app.agent("plain", model="scripted:plain.yaml", instructions="Be brief.")
with_tool = app.agent("tool", model="scripted:tool.yaml", instructions="Be brief.", tools=[add])
told = app.agent("stamped", model=stamped("plain.yaml"), instructions="Be brief.")
slow = app.agent("slow", model=stamped("slow.yaml"), instructions="Be slow.")
steady = app.agent("steady", model=stamped("steady.yaml"), instructions="Take your time.")
stepping = app.agent(
    "stepping", model=stamped("stepping.yaml"), instructions="Go on and on.", tools=[add], limits=Limits(model_calls=-1, loop_guard=False)
)
