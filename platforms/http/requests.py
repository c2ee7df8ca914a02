"""The bodies that the API takes, field for field. Unknown fields are refused, and no type is converted to another."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from turnyard.records.messages import CompleteWhen, Mode
from turnyard.wire.approvals import MAX_REASON_CHARS
from turnyard.wire.submit import MAX_DELAY_S, MAX_PRIORITY

_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
    "additionalProperties": False,
}


def _content(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, dict) for part in cast("list[Any]", value)):
        return cast("list[dict[str, Any]]", value)
    raise ValueError('a string, or a list of parts such as {"type": "text", "text": "hi"}')


Content = Annotated[Any, AfterValidator(_content), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": _PART}]})]


class Body(BaseModel):
    """A body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Options(Body):
    user: str | None = None
    mode: Mode | None = None
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)
    start_after: float = Field(0, ge=0, le=MAX_DELAY_S, description="seconds from now")
    timeout_s: float | None = Field(None, gt=0, le=MAX_DELAY_S, description="seconds from its start; then it is cancelled")
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    role: str | None = Field(None, description="one of the agent's own roles; without it the message is the user's")


class JobRequest(_Options):
    """A job: a message for an agent, in a session of its own unless one is named."""

    agent: str
    input: Content
    session: str | None = None
    complete_when: CompleteWhen = "settled"


class MessageRequest(_Options):
    """A message for a session. Its agent is the session's; naming one lets the message open the session."""

    kind: Literal["user"] = "user"
    input: Content
    agent: str | None = None
    complete_when: CompleteWhen = "turn"


class NoticeRequest(Body):
    """A notice for a session: it replaces an unseen one of the same group and key unless it is not to supersede, and wakes nobody.

    With `clear` the one of that group and key goes and nothing takes its place.
    """

    kind: Literal["notice"]
    group: str
    key: str
    input: str | None = None
    tag: str | None = None
    origin: str | None = Field(None, description="where it comes from, for whoever reads the log")
    metadata: dict[str, str] = Field(default_factory=dict[str, str])
    supersede: bool = Field(True, description="whether it takes the place of one of its group and key that no model has seen yet")
    ttl_s: float | None = Field(None, gt=0, le=MAX_DELAY_S, description="seconds after which it does not matter any more")
    clear: bool = False
    agent: str | None = None


class JobCancelRequest(Body):
    """How far a cancel goes: with `cascade` to the sessions, too, that calls started."""

    cascade: bool = False


class CancelRequest(JobCancelRequest):
    """Which turn to cancel; the open one when none is named. With `cascade` the sessions that its calls started go, too."""

    turn: str | None = None


class OutcomeRequest(Body):
    """The outcome of a call: its result, any JSON value, or an error as text. Exactly one."""

    result: Any = None
    error: str | None = None


_EXAMPLES: Any = [
    {"decision": "allow", "user": "ann"},
    {"decision": "allow", "scope": "session", "input": {"order_id": "7", "amount": 80}, "user": "ann"},
    {"decision": "deny", "reason": "the order is under review", "user": "ann"},
    {"answer": [1, "Berlin"], "user": "ann"},
]


class DecideRequest(Body):
    """A decision about a call, or the answer to a question; `user` is who decides."""

    model_config = ConfigDict(json_schema_extra={"examples": _EXAMPLES})

    decision: Literal["allow", "deny", "answer"] | None = Field(None, description="may be left out beside an answer")
    user: str = Field(description="who decides: checked against the approvers, and kept")
    scope: Literal["once", "session"] = Field(
        "once", description="session: allow this tool for the rest of the session, where that is offered"
    )
    input: dict[str, Any] | None = Field(None, description="arguments in place of the model's; they must fit the tool")
    reason: str | None = Field(None, max_length=MAX_REASON_CHARS, description="shown to the model of a call that is denied, and kept")
    answer: str | int | list[str | int] | None = Field(
        None, description="of a question: an option by its number from 1 or its label, several in a list, or free text"
    )


def binary_body() -> dict[str, Any]:
    """Return what OpenAPI should say about a body that is a file, or a form with one."""
    form = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}, "required": ["file"]}
    raw = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": {"application/octet-stream": raw, "multipart/form-data": {"schema": form}}}}


def body_of(*models: type[BaseModel], required: bool = True) -> dict[str, Any]:
    """Return what OpenAPI should say about a route's JSON body."""
    schemas = [model.model_json_schema() for model in models]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
