"""What the benches run: a model that answers at once, with one tool call first or without, and slow ones to be interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from benches.stamps import Stamped
from turnyard import App, Limits, Park, tool
from turnyard.clock import SystemClock
from turnyard.ports import AskedCall, Delta, Done, ModelRequest
from turnyard.providers.scripted import Scripted

HERE = Path(__file__).resolve().parent


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(park=86_400)
async def order(what: str) -> Park:
    """Order something that comes later."""
    return Park(f"{what} is ordered")


class Ordering:
    """A model that orders something for each message, and has a word for whatever comes."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer at once."""
        last = request.messages[-1]
        if last["role"] == "user" and str(last["content"]).startswith("hello"):
            yield Done("", (AskedCall("c0", "order", '{"what": "it"}'),), finish="tool_calls")
        else:
            yield Done("Well said.")

    async def aclose(self) -> None:
        """Do nothing: nothing is held."""


def stamped(script: str) -> Stamped:
    """Return a scripted model that stamps its calls."""
    return Stamped(Scripted(HERE / script, clock=SystemClock()))


app = App()
plain = app.agent("plain", model="scripted:plain.yaml", instructions="Be brief.")
with_tool = app.agent("tool", model="scripted:tool.yaml", instructions="Be brief.", tools=[add])
told = app.agent("stamped", model=stamped("plain.yaml"), instructions="Be brief.")
slow = app.agent("slow", model=stamped("slow.yaml"), instructions="Be slow.")
steady = app.agent("steady", model=stamped("steady.yaml"), instructions="Take your time.")
parking = app.agent("parking", model=Stamped(Ordering()), instructions="Be brief.", tools=[order])
stepping = app.agent(
    "stepping", model=stamped("stepping.yaml"), instructions="Go on and on.", tools=[add], limits=Limits(model_calls=-1, loop_guard=False)
)
