"""An app whose model makes the calls that it is told to, as JSON, and whose tools leave a trace of each time they run."""

from __future__ import annotations

from pathlib import Path

APP = '''
import json, os
from datetime import timedelta
from pathlib import Path
from turnyard import App, ApprovalRequired, Ask, Deny, Limits, tool
from turnyard.ports import AskedCall, Done

HERE = Path(__file__).parent

class Obeys:
    """Makes the calls that the newest message of the user names, then tells what they gave."""

    async def stream(self, request):
        last = max(i for i, m in enumerate(request.messages) if m["role"] == "user")
        told = [m["content"] for m in request.messages[last + 1:] if m["role"] == "tool"]
        said = request.messages[last]["content"]
        if told or not said.startswith("["):
            yield Done(" | ".join(told) or f"heard {said}", (), {"input_tokens": 1, "output_tokens": 1}, "stop", "obeys")
        else:
            calls = tuple(AskedCall(f"c{i}", name, json.dumps(args)) for i, (name, args) in enumerate(json.loads(said)))
            yield Done("", calls, {"input_tokens": 1, "output_tokens": 1}, "tool_calls", "obeys")

    async def aclose(self):
        pass

def trace(*what):
    with (HERE / "trace").open("a") as file:
        file.write(json.dumps([os.getpid(), *what]) + "\\n")

def large(ctx, amount, **_):
    return amount > 100 and Ask("a large sum", approvers=["boss"], self_approve=False)

@tool(approval=large)
async def refund(ctx, order: str, amount: float) -> str:
    """Refund."""
    trace("refund", order, amount, ctx.approved)
    return f"refunded {amount:g} of {order}"

@tool(lift=True, wait=True, approval=Ask("costs money", remember="session"))
async def buy(ctx, part: str) -> str:
    """Buy."""
    trace("buy", part, ctx.approved)
    return f"bought {part}"

@tool
async def vip(ctx, name: str) -> str:
    """Serve a guest."""
    if not ctx.approved:
        raise ApprovalRequired(f"{name} is a VIP")
    trace("vip", name)
    return f"served {name}"

@tool
async def wipe() -> str:
    """Wipe."""
    trace("wipe")
    return "wiped"

app = App()

@app.policy
async def frozen(ctx, call):
    return Deny("o13 is frozen") if call.args.get("order") == "o13" else None

@app.hook("after_tool")
async def hide(ctx, call, result):
    result.content = result.content.replace("secret", "******")

kid = app.agent("kid", model=Obeys())
TOOLS = [refund, buy, vip, wipe, kid.as_tool()]
app.agent("desk", model=Obeys(), tools=TOOLS)
app.agent("hasty", model=Obeys(), tools=TOOLS, limits=Limits(approval_expires_in=timedelta(seconds=1)))
'''

CONFIG = """
approvals:
  - {tools: ["wipe*", "kid"], approvers: ["boss", "ops-*"], expires_in: 10m}
"""


class ApprovalApp:
    """The app in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "approval_app.py"
        self.path.write_text(APP)
        self.config = directory / "turnyard.yaml"
        self.config.write_text(CONFIG)
        self._trace = directory / "trace"

    def ran(self) -> list[str]:
        """Return each run of a tool, its process left out, in order."""
        lines = self._trace.read_text().splitlines() if self._trace.exists() else []
        return [line.partition(", ")[2].removesuffix("]") for line in lines]
