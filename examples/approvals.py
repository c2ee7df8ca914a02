"""An agent that asks people before it pays: what waits for them, and how they decide.

turnyard up examples/approvals.py:app --detach
turnyard submit desk "refund order 7, 120 dollars" --session s1    # over 100: it waits, and holds no worker meanwhile
turnyard approvals list
turnyard approvals allow "$(turnyard approvals list --json | jq -r .id)" --user ann
turnyard follow s1

Who runs the yard may ask for more in turnyard.yaml, whatever the tools say:

approvals: [{tools: ["close*"], approvers: ["boss"]}]
"""

from datetime import timedelta
from typing import Any

from turnyard import App, Ask, ToolContext, tool

LIMIT = 100


def over_the_limit(_ctx: ToolContext[None], amount: float, **_: Any) -> Ask | None:
    """Ask Ann or somebody of finance about what is over the limit; they may allow it for the whole conversation."""
    if amount <= LIMIT:
        return None
    who = ["ann", "fin-*"]
    return Ask(f"{amount:g} is over {LIMIT}", approvers=who, self_approve=False, expires_in=timedelta(minutes=15), remember="session")


@tool(approval=over_the_limit)
async def refund(ctx: ToolContext[None], order: str, amount: float) -> str:
    """Pay an order back.

    Args:
        ctx: the call: whether it was approved, and by whom it may be looked up.
        order: the number of the order.
        amount: how much, in dollars.
    """
    return f"{amount:g} dollars of order {order} are paid back" + (", as it was approved" if ctx.approved else "")


@tool
async def close_order(order: str) -> str:
    """Close an order.

    Args:
        order: its number.
    """
    return f"order {order} is closed"


app = App()
desk = app.agent("desk", model="scripted:approvals.yaml", instructions="Be brief. Never promise money.", tools=[refund, close_order])
