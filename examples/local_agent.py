"""A conversation in this process: no server, no key. It streams, is steered, waits for a parcel and shortens its memory.

python examples/local_agent.py

The model is a function here; give `App.agent` a name such as "openai:gpt-4o-mini" and the rest stays as it is.
"""

import asyncio
from datetime import timedelta

from turnyard import App, Park, ToolContext, tool
from turnyard.engine.bus import Compacted, Event, MessageEnd, MessageUpdate, ToolExecutionEnd, ToolExecutionUpdate
from turnyard.engine.compaction import CompactionSettings, should_compact
from turnyard.ports import ModelRequest
from turnyard.testing import FunctionModel, ModelCall, Reply, call, say


@tool
async def weather(ctx: ToolContext[None], city: str) -> str:
    """Look up the weather of a city."""
    await ctx.progress(0.5, f"asking the station of {city}")
    session.steer("and in Fahrenheit, please")  # somebody says so while the tool runs
    return f"21 °C and sunny in {city}"


@tool(park=timedelta(days=1))
async def order(part: str) -> Park:
    """Order a part; the shop tells later that it has arrived."""
    return Park(f"one {part}, ordered")


def think(request: ModelRequest) -> str | ModelCall | Reply:
    """Answer as a model would: read what is new, then call a tool or say something."""
    last = request.messages[-1]
    said = str(last["content"])
    if last["role"] == "tool":
        return "It is ordered. I will tell you when it is here."
    if "weather" in said:
        return say("Let me look.", call("weather", city="Paris"))
    if "Fahrenheit" in said:
        return "It is 21 °C, which is 70 °F, and sunny."
    if "umbrella?" in said:
        return call("order", part="umbrella")
    if "arrived" in said:
        return "Your umbrella is here."
    return "You are welcome."


def show(event: Event) -> None:
    """Print what happens, as it happens."""
    match event:
        case MessageUpdate(delta=piece):
            print(piece.text, end="", flush=True)
        case MessageEnd(message=message) if message.role == "assistant" and message.text:
            print()
        case MessageEnd(message=message) if message.role == "user":
            print(f"> {message.text}")
        case ToolExecutionUpdate(tool=name, note=note):
            print(f"  [{name}] {note}")
        case ToolExecutionEnd(tool=name, content=content):
            print(f"  [{name}] {content.splitlines()[0]}")
        case Compacted(compaction=done):
            print(f"  [memory] {done.count} messages became: {done.summary}")
        case _:
            pass


app = App()
guide = app.agent("guide", model=FunctionModel(think), instructions="Be brief.", tools=[weather, order])
session = guide.local()


async def main() -> None:
    """Hold the conversation."""
    session.bus.subscribe(show)
    session.follow_up("thank you")  # is said once the run would end
    await session.prompt("what is the weather in Paris?")

    result = await session.prompt("can you get me an umbrella?")
    print(f"  [state] {result.state} for {result.parked[0].tool}")
    result = await session.resolve(result.parked[0], "it has arrived")
    print(f"  [state] {result.state}")

    if should_compact(session.messages, CompactionSettings(reserve_tokens=20), window=100):
        session.compact("They talked about the weather and bought an umbrella.", first_kept=len(session.messages) - 1)
    await session.prompt("thank you, goodbye")


if __name__ == "__main__":
    asyncio.run(main())
