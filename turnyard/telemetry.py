"""What a log line looks like.

A line is an event name and fields; the name is the message of an ordinary `logging` call and the fields its `extra`.
Fields never hold what a user, a model or a tool said, nor a secret. In JSON the known fields come first, in one order.
"""

from __future__ import annotations

import datetime
import logging
import sys
from typing import Any, Literal, TextIO

import orjson

Format = Literal["auto", "text", "json"]

FIELDS = ("ts", "level", "event", "role", "tenant", "session", "turn", "step", "call", "job", "worker", "epoch", "trace_id", "ref")
_BUILT_IN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


def setup(*, level: str = "info", form: Format = "auto", role: str | None = None, stream: TextIO | None = None) -> None:
    """Send this process's log lines to stderr, or to `stream`: text for a terminal, JSON for anything else."""
    target = stream or sys.stderr
    as_text = form == "text" or (form == "auto" and target.isatty())
    handler = logging.StreamHandler(target)
    handler.setFormatter(TextLines() if as_text else JsonLines(role))
    handler.addFilter(_is_ours_to_say)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Their request lines repeat what we log ourselves, with addresses and paths in them.
    for chatty in ("httpx", "httpcore", "httpx2", "httpcore2", "uvicorn.access", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


def _is_ours_to_say(record: logging.LogRecord) -> bool:
    """Tell whether to write a line; the MCP SDK shows what servers said, which may be anything, and what matters of it is told without."""
    return not (record.name.startswith("mcp.") or (record.name == "client" and record.module in ("session", "subscriptions")))


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, role: str | None = None) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        facts: dict[str, Any] = {"ts": at, "level": record.levelname.lower(), "event": record.getMessage(), "role": self._role}
        facts |= fields_of(record)
        facts["logger"] = record.name
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        ordered = {name: facts[name] for name in FIELDS if facts.get(name) is not None}
        ordered |= {name: value for name, value in facts.items() if name not in ordered and value is not None}
        return orjson.dumps(ordered, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class TextLines(logging.Formatter):
    """One line for people: time, level, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of one record."""
        at = datetime.datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = "" if record.levelno <= logging.INFO else f" {record.levelname}"
        extras = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        line = f"{at}{level} {record.getMessage()}{extras}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return what the caller gave as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _BUILT_IN}
