"""A tool by which a model says something to the user before it is done."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from turnyard.errors import StoreUnavailable, ToolError
from turnyard.tools.context import ToolContext
from turnyard.tools.tool import tool


@tool(idempotent=True)
async def send_message(ctx: ToolContext[Any], text: Annotated[str, Field(min_length=1, max_length=16_000)]) -> str:
    """Say something to the user now, and go on working. Use it for news on the way; your last reply reaches the user anyway.

    Args:
        ctx: the call.
        text: what to say.
    """
    try:
        await ctx.send(text)
    except StoreUnavailable:
        raise ToolError("it is not known whether it was said; say it again, or go on without") from None
    return "sent"
