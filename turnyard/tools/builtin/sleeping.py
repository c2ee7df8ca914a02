"""A tool by which a model waits. Nothing waits with it: the call is parked, and its deadline is its result."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from turnyard.tools.park import Park
from turnyard.tools.tool import tool

_MOST_S = 7 * 86_400


@tool(idempotent=True, alone=True)
async def sleep(seconds: Annotated[float, Field(gt=0, le=_MOST_S)]) -> Park:
    """Wait, and go on when the time is over or when somebody writes something.

    Args:
        seconds: how long, at most a week.
    """
    span = timedelta(seconds=seconds)
    return Park(f"sleeping for {span}", expires_in=span, wait=True, ripe=f"{span} are over")
