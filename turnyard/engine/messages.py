"""What a conversation looks like to its owner: messages with roles, made of the entries of a log.

The log is the truth. A message is a view of one entry, or of an answer together with the calls it makes; `seqs` says
which entries those are. A user entry may have a role of its own: the model sees it only as its converter shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from turnyard.engine.texts import text_of
from turnyard.errors import InvalidInput
from turnyard.ports import AskedCall
from turnyard.records.input import message_body
from turnyard.records.log import ASSISTANT as ANSWER
from turnyard.records.log import CALL, COMPACTION, NOTICE, RESULT, LogRecord
from turnyard.records.log import USER as ASKED
from turnyard.text import scrub, scrub_tree

USER = "user"
ASSISTANT = "assistant"
TOOL_RESULT = "tool_result"
SUMMARY = "compact_summary"
NOTIFICATION = "notification"
BUILT_IN = (USER, ASSISTANT, TOOL_RESULT, SUMMARY, NOTIFICATION)

_ROLES = {ASKED: USER, ANSWER: ASSISTANT, RESULT: TOOL_RESULT, COMPACTION: SUMMARY, NOTICE: NOTIFICATION}
_SUMMED = ("before", "after", "files")


@dataclass(frozen=True, slots=True)
class Image:
    """A picture of a user's message: an https or data URL."""

    url: str

    def part(self) -> dict[str, Any]:
        """Return it as a part of a message."""
        return {"type": "image_url", "image_url": {"url": self.url}}


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    `role` is user, assistant, tool_result, compact_summary, notification, or one of your own, whose `data` is yours.
    `calls` are those of an assistant; `call` and `tool` say which one a result answers. `stop` is why an answer ended:
    stop, tool_calls, length, refusal, content_filter, aborted or error; an aborted one is not shown to the model.
    `details` is what a tool told besides its result, which no model sees. `at_ms` is 0 for what is not in the log yet.
    """

    role: str
    text: str = ""
    parts: tuple[dict[str, Any], ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    calls: tuple[AskedCall, ...] = ()
    call: str = ""
    tool: str = ""
    is_error: bool = False
    thinking: str = ""
    stop: str = ""
    usage: Mapping[str, int] | None = None
    details: Any = None
    at_ms: int = 0
    seqs: tuple[int, ...] = ()


def role_of(entry: LogRecord) -> str:
    """Return the role of the message that this entry begins."""
    return entry.body.get("role") or _ROLES.get(entry.type, NOTIFICATION)


def message_of(entry: LogRecord, calls: Sequence[LogRecord] = (), *, tool: str = "") -> Message:
    """Return an entry as a message. `calls` are the call entries of an answer, `tool` the name of the tool that a result is of."""
    body = entry.body
    return Message(
        role_of(entry),
        str(body["content"]) if "content" in body else text_of(entry, tool) if entry.type == RESULT else str(body.get("text") or ""),
        tuple(body.get("parts") or ()),
        {name: body[name] for name in _SUMMED if name in body} if entry.type == COMPACTION else body.get("data") or {},
        tuple(_asked(call) for call in calls),
        call=entry.call or "",
        tool=tool,
        is_error=bool(body.get("is_error")),
        stop="aborted" if body.get("aborted") else str(body.get("finish") or ""),
        usage=body.get("usage"),
        details=body.get("details"),
        at_ms=entry.at_ms,
        seqs=(entry.seq, *(call.seq for call in calls)),
    )


def messages_of(entries: Iterable[LogRecord], tools: Mapping[str, str] | None = None) -> list[Message]:
    """Return the messages of these entries, in their order. `tools` names the tools of calls that are not among them."""
    messages: list[Message] = []
    said: LogRecord | None = None
    calls: list[LogRecord] = []
    names = dict(tools or {})
    for entry in entries:
        if entry.type == CALL:
            calls.append(entry)
            names[entry.call or ""] = str(entry.body.get("name", ""))
            if said is not None:
                messages[-1] = message_of(said, calls)
            continue
        said, calls = (entry, []) if entry.type == ANSWER else (None, [])
        messages.append(message_of(entry, tool=names.get(entry.call or "", "")))
    return messages


def body_of(content: str | Sequence[Mapping[str, Any]] | Message, *images: Image) -> dict[str, Any]:
    """Return the log body of a message that a user sends: text first, then the images.

    Raises:
        InvalidInput: there is nothing in it, or it has a role that only the engine writes.
    """
    if not isinstance(content, Message):
        body = message_body(content)
        return body if not images else {"parts": [*_parts(body), *(image.part() for image in images)]}
    if content.role in BUILT_IN and content.role != USER:
        raise InvalidInput(f"a message of the role {content.role} is made by the engine; send one of the role user, or of your own")
    if content.role == USER:
        given = list(content.parts) or message_body(content.text)["text"]
        parts = [*_parts({"text": given} if isinstance(given, str) else {"parts": given}), *(image.part() for image in images)]
        return {"text": given} if isinstance(given, str) and not images else {"parts": parts}
    return own_body(content)


def own_body(message: Message) -> dict[str, Any]:
    """Return the log body of a message with a role of its own."""
    body: dict[str, Any] = {"role": message.role, "text": scrub(message.text)}
    if message.parts:
        body["parts"] = list(message.parts)
    return body | ({"data": scrub_tree(dict(message.data))} if message.data else {})


def _parts(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(body["parts"]) if "parts" in body else [{"type": "text", "text": body["text"]}]


def _asked(entry: LogRecord) -> AskedCall:
    return AskedCall(entry.call or "", str(entry.body.get("name", "")), orjson.dumps(entry.body.get("args") or {}).decode())
