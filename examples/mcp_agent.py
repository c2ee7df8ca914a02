"""An agent with the tools of an MCP server, in this process: no Redis, no key. Needs the extra mcp.

python examples/mcp_agent.py

The server is `mcp_shop.py`, started as a command, as you would start `npx` or `uvx` with one that you use. The model is a
function here; give `App.agent` a name such as "openai:gpt-4o-mini" and the rest stays as it is.
"""

import asyncio
import sys
from pathlib import Path

from turnyard import MCP, App
from turnyard.ports import ModelRequest
from turnyard.testing import FunctionModel, ModelCall, call


def think(request: ModelRequest) -> str | ModelCall:
    """Answer as a model would: read what is new, then call a tool or say something."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return f"There are {last['content']}."
    print("offered:", ", ".join(tool.name for tool in request.tools))
    return call("shop_get_stock", part="hinge")


app = App()
shop = MCP([sys.executable, str(Path(__file__).with_name("mcp_shop.py"))], prefix="shop", allow=["get_*"])
agent = app.agent("clerk", model=FunctionModel(think), tools=[shop])


async def main() -> None:
    """Ask once."""
    answer = await agent.run("how many hinges are left?")
    print(answer.text)


if __name__ == "__main__":
    asyncio.run(main())
