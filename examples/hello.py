"""The smallest useful app: one agent, two tools, a model that answers from a file.

turnyard up examples/hello.py:app
turnyard submit hello "add 2 and 3" --wait
turnyard submit hello "count slowly" --session s1      # kill a worker meanwhile: nothing is lost
turnyard submit hello "order a part" --session s2      # the turn ends, the part arrives later
"""

import asyncio
from datetime import timedelta

from turnyard import App, ToolContext, tool


@tool(idempotent=True)
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first number.
        b: the second number.
    """
    return a + b


@tool(lift=True, timeout=timedelta(minutes=5), idempotent=True)
async def order(ctx: ToolContext[None], part: str) -> str:
    """Order a part; it takes a while to arrive.

    Args:
        ctx: the call: whom it is for, and how to report its progress.
        part: what to order.
    """
    for step in range(3):
        await ctx.progress(step / 3, "on its way")
        await asyncio.sleep(1)
    return f"the {part} has arrived"


app = App()
hello = app.agent("hello", model="scripted:hello.yaml", instructions="Be brief.", tools=[add, order])
