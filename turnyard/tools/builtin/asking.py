"""A tool by which a model asks the user a question, and gets the answer as its result, whenever that comes.

Nothing of it runs: a call of it is a question from the start, and the turn waits for whoever answers.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from turnyard.tools.tool import Tool, tool

Label = Annotated[str, Field(min_length=1, max_length=200)]


def asking(*, expires_in: timedelta | float = timedelta(days=1)) -> Tool[..., Any]:
    """Return a tool that asks the user; `expires_in` is how long a question stands, a timedelta or seconds.

    Raises:
        ConfigError: the time is not more than zero.
    """

    @tool(park=expires_in)
    async def ask_user(
        prompt: Annotated[str, Field(min_length=1, max_length=4_000)],
        options: Annotated[list[Label], Field(max_length=20)] | None = None,
        multi_select: bool = False,
        default: Annotated[str, Field(max_length=4_000)] | None = None,
    ) -> str:
        """Ask the user a question and wait for the answer. Ask only what you cannot find out yourself.

        Args:
            prompt: the question.
            options: answers to choose from; the user may still say something else.
            multi_select: whether several of the options may be chosen.
            default: the answer that is meant when the user leaves it open.
        """
        raise NotImplementedError("a question is answered by the user")

    ask_user.kind, ask_user.wait = "question", True
    return ask_user


ask_user = asking()
