"""What an agent is told that works for a call of another one, and what its end means for that call.

The same in this process and on the server, so that a parent reads the same whoever did the work.
"""

from __future__ import annotations

from typing import Any

import orjson

MOST_DEEP = 4


def child_input(args: dict[str, Any]) -> Any:
    """Return what the child is told: the argument `input`, or all arguments as JSON when there is none."""
    given = args.get("input")
    if isinstance(given, str | list):
        return given  # pyright: ignore[reportUnknownVariableType] - judged as any message is
    return orjson.dumps(args if given is None else given).decode() if args else ""


def too_deep(most_deep: int) -> str:
    """Return why a call has no child that would stand deeper than `most_deep`."""
    return f"agents may call each other {most_deep} deep and this call would go deeper"


def no_child(reason: str) -> dict[str, Any]:
    """Return the body of a call that got no child."""
    return _error(f"{reason}; no session was started")


def answered(text: str, output: Any, facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return (outcome, body) for a child that gave an answer. `output` goes along where it is more than the text.

    `content` is what the model reads; `facts` are for whoever decides: the child's session and its usage, with all below it.
    """
    more = {} if output is None or output == text else {"output": output}
    return "result", {"content": text, "is_error": False, "state": "succeeded"} | facts | more


def failed(agent: str, error: dict[str, Any], partial: str, facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return (outcome, body) for a child that failed, with what it had said by then."""
    code = str(error.get("code", "internal"))
    reason = f"{agent} failed ({code}): {error.get('message', 'no reason is known')}"
    return "error", _error(_with(reason, partial)) | {"state": "failed", "code": code, "partial": partial} | facts


def cancelled(agent: str, cause: str, partial: str, facts: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return (outcome, body) for a child that was cancelled. The row takes it as an error, and as nothing where it has its outcome."""
    body = _error(_with(f"{agent} was cancelled ({cause})", partial))
    return "cancelled", body | {"state": "cancelled", "code": "cancelled", "partial": partial} | facts


def _with(reason: str, partial: str) -> str:
    return f"{reason}\nIt had said: {partial}" if partial else reason


def _error(reason: str) -> dict[str, Any]:
    return {"content": f"ERROR: {reason}", "is_error": True}
