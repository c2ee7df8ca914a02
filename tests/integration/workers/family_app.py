"""An app of a parent and its children, whose models are functions of what they read and leave a trace of each ask."""

from __future__ import annotations

from pathlib import Path

APP = '''
import asyncio, json, os
from pathlib import Path
from tests.unit.engine.strategies import Asks, Breaks, Fan, Sleeps
from turnyard import App, Limits
from turnyard.ports import AskedCall, Delta, Done

HERE = Path(__file__).parent

class Model:
    """Answers with what `reply` returns for the messages: a text, or calls as (agent, input)."""

    def __init__(self, name, reply):
        self.name, self.reply = name, reply

    async def stream(self, request):
        with (HERE / "trace").open("a") as file:
            file.write(f"{self.name} {os.getpid()}\\n")
        said = await self.reply(request.messages)
        calls = () if isinstance(said, str) else tuple(AskedCall(f"c{i}", a, json.dumps({"input": t})) for i, (a, t) in enumerate(said))
        yield Done("" if calls else said, calls, {"input_tokens": 1, "output_tokens": 1}, "tool_calls" if calls else "stop", self.name)

    async def aclose(self):
        pass

async def gate(name):
    while not (HERE / name).exists():
        await asyncio.sleep(0.01)

def news(messages):
    return [m["content"] for m in messages if "echo " in str(m["content"]) and m["role"] != "assistant"]

async def kid(messages):
    return f"echo {messages[-1]['content']}"

async def waits(messages):
    """Ask as many children as told, and answer with what they said."""
    count = int(next(m["content"] for m in messages if m["role"] == "user"))
    told = [m["content"] for m in messages if m["role"] == "tool"]
    return " ".join(told) if told else [("kid", f"n{i}") for i in range(count)]

async def stuck(messages):
    """Never come to an end by itself."""
    await gate("never")

async def hopes(messages):
    """Ask a child that never ends."""
    return [("stuck", "go")]

async def goes_on(messages):
    """Ask children in the background, then think until the gate opens, then say how much has come."""
    asked = sum(m["role"] == "assistant" for m in messages)
    if not asked:
        return [("aide", f"n{i}") for i in range(int(messages[-1]["content"]))]
    if asked == 1:
        await gate("thought")
        return "thought"
    return f"heard of {len(news(messages))}"

app = App()
child = app.agent("kid", model=Model("kid", kid))
aide = app.agent("aide", model=Model("aide", kid))
app.agent("waits", model=Model("waits", waits), tools=[child.as_tool()])
never = app.agent("stuck", model=Model("stuck", stuck))
app.agent("hopes", model=Model("hopes", hopes), tools=[never.as_tool()])
for strategy in (Fan(), Breaks(), Asks(), Sleeps()):
    impatient = Limits(paid_attempts=2, retry_base=0.01)
    app.agent(strategy.name, model=Model(strategy.name, kid), strategy=strategy, tools=[child.as_tool()], limits=impatient)
app.agent("goes", model=Model("goes", goes_on), tools=[aide.as_tool(wait=False)])
'''


class FamilyApp:
    """The app in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "family.py"
        self._directory = directory
        self.path.write_text(APP)

    def open(self, gate: str) -> None:
        """Let what waits for this gate go on."""
        (self._directory / gate).touch()

    def asked(self, model: str) -> int:
        """Return how often a model was asked."""
        trace = self._directory / "trace"
        return sum(line.startswith(f"{model} ") for line in trace.read_text().splitlines()) if trace.exists() else 0
